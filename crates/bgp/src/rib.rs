//! What a peer should know against what it was told: the difference, in full messages, withdrawals first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::message::Update;
use crate::path::Path;
use crate::wire::{self, HEADER};
use crate::wish::{Families, Family, Groups, Routes};

/// Octets of an UPDATE around its withdrawn prefixes: two lengths, and MP_UNREACH_NLRI without prefixes.
const AROUND_WITHDRAWN: usize = HEADER + 4 + 7;

/// The prefixes of some groups, or all. What cannot be a unicast route is left out.
pub fn chosen<'a>(routes: &'a Routes, groups: Option<&'a Groups>) -> impl Iterator<Item = IpNet> + 'a {
    let wanted = move |own: &Groups| groups.is_none_or(|groups| !groups.is_disjoint(own));
    let wanted = routes.iter().filter(move |(prefix, own)| wire::can_be_route(prefix) && wanted(own));
    wanted.map(|(prefix, _)| prefix.trunc())
}

/// What a peer should know: each prefix with its attributes.
pub type Want = BTreeMap<IpNet, Arc<Path>>;

/// What one peer was told in this session.
#[derive(Clone, Debug, Default)]
pub struct Rib {
    told: Want,
    /// Withdrawn, but the bytes may not have left yet.
    leaving: BTreeSet<IpNet>,
    /// To be told again, because the peer asked.
    again: BTreeSet<IpNet>,
    /// Families whose end of the first telling is still owed.
    owed: Families,
    /// Announced so lately that they have to wait, and until when.
    resting: BTreeMap<IpNet, Duration>,
}

impl Rib {
    /// A session begins, and nothing was said.
    #[must_use]
    pub fn new(families: Families) -> Self {
        Self { owed: families, ..Self::default() }
    }

    /// The peer has forgotten a family and asks for it (RFC 2918 §4).
    pub fn refresh(&mut self, family: Family) {
        self.again.extend(self.told.keys().filter(|net| Family::of_net(net) == family));
    }

    /// It is so late now: whatever has rested until then may be announced again.
    pub fn wake(&mut self, now: Duration) {
        self.resting.retain(|_, until| *until > now);
    }

    /// The prefixes that these messages announce rest until then.
    pub fn rest(&mut self, updates: &[Update], until: Duration) {
        for update in updates {
            if let Update::Announce(_, nets) = update {
                self.resting.extend(nets.iter().map(|net| (*net, until)));
            }
        }
    }

    /// When the first of those that rest is to be announced again.
    #[must_use]
    pub fn next_wake(&self, want: &Want) -> Option<Duration> {
        let owed = |net: &IpNet| want.get(net).is_some_and(|path| self.is_other(net, path));
        self.resting.iter().filter(|(net, _)| owed(net)).map(|(_, until)| *until).min()
    }

    /// What to say next: at most so many messages. With `complete`, the end of a family's first telling too.
    pub fn next(&mut self, want: &Want, complete: bool, most: usize) -> Vec<Update> {
        let mut updates = self.withdraw(want, most);
        if updates.len() < most {
            updates.extend(self.announce(want, most - updates.len()));
        }
        if updates.len() + 2 <= most && complete {
            updates.extend(std::mem::take(&mut self.owed).iter().map(Update::EndOfRib));
        }
        updates
    }

    /// All bytes of what was said so far have left. Says whether that changes what the peer holds.
    pub fn settled(&mut self) -> bool {
        !std::mem::take(&mut self.leaving).is_empty()
    }

    /// What the peer may have from us: told, or withdrawn a moment ago.
    #[must_use]
    pub fn held(&self) -> BTreeSet<IpNet> {
        self.told.keys().chain(&self.leaving).copied().collect()
    }

    fn withdraw(&mut self, want: &Want, most: usize) -> Vec<Update> {
        let gone = self.told.iter().filter(|(net, _)| !want.contains_key(net));
        let mut groups: BTreeMap<(Family, bool), Vec<IpNet>> = BTreeMap::new();
        for (net, path) in gone {
            groups.entry((Family::of_net(net), path.is_multiprotocol())).or_default().push(*net);
        }
        let mut updates = Vec::new();
        for ((_, multiprotocol), nets) in groups {
            for full in packed(&nets, wire::LONGEST - AROUND_WITHDRAWN).take(most - updates.len()) {
                self.leaving.extend(full);
                full.iter().for_each(|net| self.forget(net));
                updates.push(Update::Withdraw(full.to_vec(), multiprotocol));
            }
        }
        updates
    }

    fn forget(&mut self, net: &IpNet) {
        self.told.remove(net);
        self.again.remove(net);
    }

    fn announce(&mut self, want: &Want, most: usize) -> Vec<Update> {
        let mut groups: Vec<(Arc<Path>, Vec<IpNet>)> = Vec::new();
        for (net, path) in want.iter().filter(|(net, path)| self.is_news(net, path)) {
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, path) || known == path) {
                Some((_, nets)) => nets.push(*net),
                None => groups.push((path.clone(), vec![*net])),
            }
        }
        let mut updates = Vec::new();
        for (path, nets) in groups {
            for full in packed(&nets, wire::room(&path)).take(most - updates.len()) {
                full.iter().for_each(|net| self.tell(*net, &path));
                updates.push(Update::Announce(path.clone(), full.to_vec()));
            }
        }
        updates
    }

    /// Whether it is to be told now; whoever asks to hear it again need not wait.
    fn is_news(&self, net: &IpNet, path: &Arc<Path>) -> bool {
        self.again.contains(net) || self.is_other(net, path) && !self.resting.contains_key(net)
    }

    fn is_other(&self, net: &IpNet, path: &Arc<Path>) -> bool {
        self.told.get(net).is_none_or(|told| !Arc::ptr_eq(told, path) && told != path)
    }

    fn tell(&mut self, net: IpNet, path: &Arc<Path>) {
        self.again.remove(&net);
        self.leaving.remove(&net);
        self.told.insert(net, path.clone());
    }
}

/// Cuts prefixes into runs that fit into so many octets each.
fn packed(mut nets: &[IpNet], room: usize) -> impl Iterator<Item = &[IpNet]> {
    std::iter::from_fn(move || {
        let mut left = room;
        let mut fits = |net: &IpNet| {
            let size = 1 + usize::from(net.prefix_len().div_ceil(8));
            left.checked_sub(size).map(|rest| left = rest).is_some()
        };
        let count = nets.iter().take_while(|net| fits(net)).count();
        let (full, rest) = nets.split_at(count);
        nets = rest;
        (count > 0).then_some(full)
    })
}

#[cfg(test)]
mod tests;
