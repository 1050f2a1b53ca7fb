//! What a ServiceGroup says once it is understood, and which groups cannot live together.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::addr::{AddrRange, Aggregation, Family};
use crate::reason::{Problem, Reason};

/// One usable entry of `v4pools` or `v6pools`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// Path of the entry in the object, such as `spec.local.v4pools[0]`.
    pub field: String,
    /// The `pool` text exactly as written; status shows it.
    pub text: String,
    /// The addresses to give out.
    pub range: AddrRange,
    /// The network the addresses belong to.
    pub subnet: IpNet,
    /// The prefix they get on the virtual interface.
    pub aggregation: Aggregation,
}

impl Entry {
    /// The prefix length an address of this entry gets on the virtual interface.
    pub fn virtual_prefix(&self) -> u8 {
        match self.aggregation {
            Aggregation::Subnet => self.subnet.prefix_len(),
            Aggregation::Prefix(length) => length,
        }
    }
}

/// Where the addresses of a group are to be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Placement {
    /// On the NIC of one elected node.
    Local,
    /// On the virtual interface of every node.
    Remote,
    /// v1: local where a node's own subnet contains the address, else virtual.
    Auto,
}

impl Placement {
    /// The value of the annotation `purelb.io/pool-type`; automatic groups have none.
    pub const fn pool_type(self) -> Option<&'static str> {
        match self {
            Self::Local => Some("local"),
            Self::Remote => Some("remote"),
            Self::Auto => None,
        }
    }
}

/// Where the addresses of a group come from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Source {
    /// From ranges written in the group.
    Ranges(Ranges),
    /// From an IPAM beside the allocator, asked over a Unix socket.
    External {
        /// The name shown in the status.
        provider: String,
        /// Path of the socket.
        socket: String,
    },
    /// From a NetBox, asked over HTTP.
    Netbox {
        /// Base URL.
        url: String,
        /// Slug of the tenant whose reserved addresses are ours.
        tenant: String,
        /// The prefix its addresses get on the virtual interface, if one was written.
        aggregation: String,
    },
}

/// The ranges of a group, in the order they are used up.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ranges {
    /// IPv4 entries: `v4pools` in order, then `v4pool`.
    pub v4: Vec<Entry>,
    /// IPv6 entries: `v6pools` in order, then `v6pool`.
    pub v6: Vec<Entry>,
    /// One address from every range whose subnet has nodes.
    pub multi_pool: bool,
    /// Always from the range with the fewest addresses in use.
    pub balance_pools: bool,
}

impl Ranges {
    /// The entries of one family.
    pub fn of(&self, family: Family) -> &[Entry] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Every entry, IPv6 first: the order in which an address is looked up.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        self.v6.iter().chain(&self.v4)
    }

    /// Warnings for entries that repeat addresses of an earlier entry.
    pub fn merged(&self) -> Vec<Problem> {
        [&self.v4, &self.v6].into_iter().flat_map(|entries| repeats(entries)).collect()
    }
}

/// A ServiceGroup as the rest of PureLB sees it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Group {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object, and so of the pool.
    pub name: String,
    /// Where its addresses are announced.
    pub placement: Placement,
    /// Where its addresses come from.
    pub source: Source,
    /// Skip duplicate address detection for its local IPv6 addresses.
    pub skip_ipv6_dad: bool,
    /// The namespaces it serves first; empty means all.
    pub namespaces: Vec<String>,
    /// Those namespaces may use no other group, and no other namespace this one.
    pub enforce_namespaces: bool,
    /// The default for those namespaces where several groups serve them.
    pub namespace_default: bool,
}

impl Group {
    /// `namespace/name`, for sentences.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The entry that an address of this group came from.
    pub fn entry_of(&self, addr: IpAddr) -> Option<&Entry> {
        self.ranges().and_then(|ranges| ranges.all().find(|entry| entry.range.contains(addr)))
    }

    /// The ranges, where the group has any.
    pub fn ranges(&self) -> Option<&Ranges> {
        match &self.source {
            Source::Ranges(ranges) => Some(ranges),
            Source::External { .. } | Source::Netbox { .. } => None,
        }
    }
}

/// A group that cannot be used beside an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// Position of the refused group in the list that was asked about.
    pub refused: usize,
    /// Position of the group that stays.
    pub kept: usize,
    /// The field of the refused group and the reason.
    pub problem: Problem,
}

/// Which groups of a list cannot be used: those with the name or an address of a group that sorts before them.
///
/// Groups sort by namespace and name, so that the outcome does not depend on the order in which they were seen. A
/// refused group blocks no other. Each refused group is named once, with the first group it clashes with by name.
pub fn clashes(groups: &[Group]) -> Vec<Clash> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&i| (&groups[i].namespace, &groups[i].name));
    let mut kept: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for refused in order {
        let others: Vec<&Group> = kept.iter().map(|&i| &groups[i]).collect();
        match first_clash(&others, &groups[refused]) {
            Some((by, problem)) => found.push(Clash { refused, kept: kept[by], problem }),
            None => {
                kept.push(refused);
                kept.sort_by_key(|&i| &groups[i].name);
            }
        }
    }
    found
}

/// A group in the forms it may be used in.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Forms {
    /// As it is written now, as far as it can be used.
    pub written: Option<Group>,
    /// Whether nothing is wrong with it as it is written now.
    pub sound: bool,
    /// As it was when it was last in use with nothing wrong.
    pub earlier: Option<Group>,
}

impl Forms {
    /// The forms to try, the best one first.
    fn choices(&self) -> [Option<&Group>; 2] {
        match (&self.written, &self.earlier) {
            (Some(written), earlier) if self.sound => [Some(written), earlier.as_ref()],
            (_, Some(earlier)) => [Some(earlier), None],
            (written, None) => [written.as_ref(), None],
        }
    }

    /// The form that would be in use if there were no other groups.
    pub fn best(&self) -> Option<&Group> {
        self.choices()[0]
    }

    /// Who was in use comes before who is edited, and who is edited before who is new.
    fn rank(&self) -> u8 {
        match &self.earlier {
            Some(earlier) if self.best() == Some(earlier) => 0,
            Some(_) => 1,
            None => 2,
        }
    }
}

/// What becomes of one group beside the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing<'a> {
    /// The form that is in use.
    pub group: Option<&'a Group>,
    /// Why the group as it is written now cannot be used beside the others.
    pub clash: Option<Problem>,
}

/// Which groups are in use, in which form; one answer for each.
///
/// An edit takes nothing from a group that was in use: whoever has not changed keeps what it has, and a group whose edit
/// clashes with another stays as it was. Among the others the first by namespace and name is kept, as in [`clashes`].
pub fn settle(groups: &[Forms]) -> Vec<Standing<'_>> {
    let mut order: Vec<(usize, &Group)> =
        groups.iter().enumerate().filter_map(|(i, forms)| Some((i, forms.best()?))).collect();
    order.sort_by_key(|(i, best)| (groups[*i].rank(), &best.namespace, &best.name));
    let mut standings = vec![Standing::default(); groups.len()];
    let mut kept: Vec<&Group> = Vec::new();
    for (i, _) in order {
        for form in groups[i].choices().into_iter().flatten() {
            match first_clash(&kept, form) {
                // What is told is what is wrong with the form that the author wrote last.
                Some((_, problem)) => drop(standings[i].clash.get_or_insert(problem)),
                None => {
                    standings[i].group = Some(form);
                    kept.push(form);
                    kept.sort_by_key(|group| &group.name);
                    break;
                }
            }
        }
    }
    standings
}

fn first_clash(kept: &[&Group], group: &Group) -> Option<(usize, Problem)> {
    if let Some(twin) = kept.iter().position(|other| other.name == group.name) {
        let reason = Reason::GroupDuplicate { name: group.name.clone(), first: kept[twin].key() };
        return Some((twin, Problem::new("metadata.name", reason)));
    }
    kept.iter().enumerate().find_map(|(i, other)| overlap(group, other).map(|problem| (i, problem)))
}

fn overlap(group: &Group, other: &Group) -> Option<Problem> {
    let theirs = other.ranges()?;
    group.ranges()?.all().find_map(|entry| {
        let hit = theirs.all().find(|their| their.range.overlaps(&entry.range))?;
        let reason = Reason::GroupsOverlap { other: other.name.clone(), range: entry.range, other_range: hit.range };
        Some(Problem::new(format!("{}.pool", entry.field), reason))
    })
}

fn repeats(entries: &[Entry]) -> Vec<Problem> {
    let mut found = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        if let Some(earlier) = entries[..i].iter().find(|earlier| earlier.range.overlaps(&entry.range)) {
            let reason = Reason::RangesMerged { range: entry.range, earlier: earlier.range };
            found.push(Problem::new(format!("{}.pool", entry.field), reason));
        }
    }
    found
}

#[cfg(test)]
mod tests;
