//! Who is alive and which subnets each node can serve, as the Leases of the node agents show it to this process.
//!
//! No clock of another machine counts. A member lives until its Lease has not changed for its duration, and is declared
//! dead only on proof: a renewal of our own, sent when the member could no longer hold anything, has come back on the
//! same watch, so nothing the member wrote before is still on its way to us. The same return of our own renewals is
//! what lets this node hold addresses at all, so that a stalled watch neither kills anybody nor hides a newcomer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::moment::Moment;

mod claims;
mod join;
mod own;

use own::{Listed, Own};

/// After how many of its durations a Lease is old enough to be dead at first sight.
const OLD: u32 = 3;

/// The Lease of a node agent, as one look shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeaseView {
    /// The node.
    pub node: String,
    /// When it was renewed, as text: only that it changes counts.
    pub renewed: Option<String>,
    /// How long ago that was by the wall clock of the reader; used at first sight only.
    pub age: Duration,
    /// How long it is good for after a renewal.
    pub duration: Option<Duration>,
    /// The subnets the node can serve.
    pub subnets: BTreeSet<IpNet>,
    /// Addresses that the node comes first for, because a Service wants them near its endpoints and one is there.
    pub claims: BTreeSet<IpAddr>,
    /// Which agent of the node wrote it.
    pub instance: String,
    /// The version of the object.
    pub version: Option<u64>,
    /// The highest version of any Lease its agent had acted on when it wrote; `None` if the agent is another program.
    pub saw: Option<u64>,
    /// Whether all nodes whose Leases were deleted before that version are known to have let go.
    pub settled: bool,
    /// Which kernel its agent works on.
    pub host: String,
}

/// The times of this agent's own Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Timing {
    /// How long the Lease is good for after a renewal.
    pub duration: Duration,
    /// How long after a renewal was sent this agent may go on without the next one.
    pub renew_deadline: Duration,
}

impl Timing {
    /// How long after a renewal was sent local addresses may be held: a margin less than others wait.
    pub fn hold(&self) -> Duration {
        self.renew_deadline.min(self.duration.saturating_sub(margin(self.duration)))
    }
}

/// How much earlier than its Lease ends a node lets go.
fn margin(duration: Duration) -> Duration {
    (duration / 5).max(Duration::from_secs(1))
}

/// How long after a renewal a node may hold addresses, judged by what its Lease says.
///
/// The Lease says whole seconds, so that the true duration may be almost one more.
fn longest_hold(duration: Duration) -> Duration {
    let most = duration + Duration::from_secs(1);
    most.saturating_sub(margin(most)).min(duration)
}

/// What a renewal of this node's own Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The subnets that this node can serve.
    pub subnets: BTreeSet<IpNet>,
    /// The addresses that it comes first for.
    pub claims: BTreeSet<IpAddr>,
}

/// A difference in who can serve what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// A node can serve subnets that it could not serve before.
    Joined {
        /// The node.
        node: Arc<str>,
        /// The subnets that are new.
        subnets: BTreeSet<IpNet>,
    },
    /// A node can no longer serve subnets.
    Left {
        /// The node.
        node: Arc<str>,
        /// The subnets it lost.
        subnets: BTreeSet<IpNet>,
    },
    /// A node comes first for addresses that it did not come first for before.
    Claimed {
        /// The node.
        node: Arc<str>,
        /// The addresses that are new.
        addrs: BTreeSet<IpAddr>,
    },
    /// A node no longer comes first for addresses.
    Unclaimed {
        /// The node.
        node: Arc<str>,
        /// The addresses.
        addrs: BTreeSet<IpAddr>,
    },
}

/// All node agents that this process has heard of.
#[derive(Clone, Debug)]
pub struct Members {
    me: Arc<str>,
    own: Own,
    /// Every Lease there is, our own included.
    all: BTreeMap<Arc<str>, Member>,
    /// The live members of each subnet.
    by_subnet: BTreeMap<IpNet, BTreeSet<Arc<str>>>,
    /// The live members that claim an address.
    by_claim: BTreeMap<IpAddr, BTreeSet<Arc<str>>>,
    /// The highest version heard.
    heard: u64,
    /// What our own Lease said when this process first saw it: how far an agent before us had come.
    former_saw: Option<u64>,
    /// Subnets in Leases that somebody deleted, and until when their nodes may still hold addresses.
    ghosts: Vec<(BTreeSet<IpNet>, Moment)>,
    /// For how long a node may hold addresses after its last renewal.
    longest: Duration,
    /// Until when somebody may hold addresses whose Lease was deleted before we first looked.
    strangers: Option<Moment>,
    /// When this process began, and how long it watches at most before it joins.
    begun: Moment,
    watch: Duration,
    /// Which kernel this process works on, and whether another one's agent may hold addresses in our name.
    host: String,
    twin: Twin,
    /// The API server has shown an older version of a Lease after a newer one.
    restored: bool,
}

/// Whether an agent with our node's name, but on another machine, may still hold addresses.
#[derive(Clone, Debug, Default)]
enum Twin {
    #[default]
    None,
    /// It wrote our Lease before us, and holds addresses for this long after its last renewal at most.
    Before(Duration),
    /// We have written our Lease since, so that it must have let go by then.
    Until(Moment),
}

#[derive(Clone, Debug)]
struct Member {
    lease: LeaseView,
    /// When this process saw the Lease change.
    seen: Moment,
    /// Whether it has changed since first sight.
    stirred: bool,
    /// Whether it was old at first sight and has not changed since.
    old: bool,
    live: bool,
}

impl Member {
    fn serving(&self) -> BTreeSet<IpNet> {
        if self.live { self.lease.subnets.clone() } else { BTreeSet::new() }
    }

    fn claiming(&self) -> BTreeSet<IpAddr> {
        let served = self.lease.claims.iter().filter(|addr| self.live && self.serves(**addr));
        served.copied().collect()
    }

    fn serves(&self, addr: IpAddr) -> bool {
        self.lease.subnets.iter().any(|subnet| subnet.contains(&addr))
    }

    /// For how long it is good; a Lease that says nothing of the kind is nobody's.
    fn duration(&self) -> Duration {
        self.lease.duration.unwrap_or_default()
    }

    /// From when on its node cannot hold anything on the strength of what we have seen.
    fn let_go(&self) -> Moment {
        self.seen + longest_hold(self.duration())
    }
}

impl Members {
    /// Nobody known yet.
    pub fn new(me: &str, timing: Timing) -> Self {
        Self {
            me: me.into(),
            own: Own::new(timing.hold()),
            all: BTreeMap::new(),
            by_subnet: BTreeMap::new(),
            by_claim: BTreeMap::new(),
            heard: 0,
            former_saw: None,
            ghosts: Vec::new(),
            longest: longest_hold(timing.duration),
            strangers: None,
            begun: Moment::default(),
            watch: timing.duration * 3 / 4,
            host: String::new(),
            twin: Twin::None,
            restored: false,
        }
    }

    /// Which kernel this process works on; to be said before anything is heard.
    pub fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.host);
    }

    /// A complete list of the Leases: at the start, and whenever the watch begins anew.
    ///
    /// What is not in the list is gone, so the list must not be older than what was heard before. Our own Lease counts
    /// last, because it proves that the others are up to date.
    pub fn hear_all(&mut self, leases: Vec<LeaseView>, now: Moment) -> Vec<MemberChange> {
        let listed: BTreeSet<_> = leases.iter().map(|lease| lease.node.as_str()).collect();
        let gone: Vec<_> = self.all.keys().filter(|node| !listed.contains(&***node)).cloned().collect();
        for node in &gone {
            // The watch may have missed renewals, up to just before this list.
            if let Some(member) = self.all.get_mut(node).filter(|member| member.live) {
                member.seen = now;
            }
        }
        let mut changes: Vec<_> = gone.iter().flat_map(|node| self.gone(node)).collect();
        let (own, others): (Vec<_>, Vec<_>) = leases.into_iter().partition(|lease| *lease.node == *self.me);
        own.iter().for_each(|lease| self.remember_former(lease));
        for lease in others.into_iter().chain(own) {
            changes.extend(self.hear(lease, now));
        }
        changes
    }

    /// One Lease as the watch shows it, our own included, in the order of the watch.
    pub fn hear(&mut self, lease: LeaseView, now: Moment) -> Vec<MemberChange> {
        let lease = self.of_this_time(lease);
        self.heard = self.heard.max(lease.version.unwrap_or_default());
        let own = *lease.node == *self.me;
        if own {
            self.remember_former(&lease);
            self.own.hear(&lease, now);
            self.look_for_twin(&lease, now);
        } else {
            self.hear_witness(&lease, now);
        }
        let node: Arc<str> = lease.node.as_str().into();
        let mut member = self.heard_of(&node, lease, now);
        member.live &= !self.is_over(&member, now);
        let mut changes = self.put(&node, Some(member));
        if own {
            changes.extend(self.look(now));
        }
        changes
    }

    /// A Lease was deleted.
    ///
    /// An agent of ours that stops lists no subnet any more before it deletes its Lease. One that is deleted with subnets
    /// in it was deleted by somebody else, and its node may not have heard of that: it has its time to let go.
    pub fn gone(&mut self, node: &str) -> Vec<MemberChange> {
        if *node == *self.me {
            self.own.gone();
        } else if let Some(member) = self.all.get(node).filter(|member| member.lease.saw.is_some()) {
            let ghost = (member.lease.subnets.clone(), member.let_go());
            self.ghosts.extend((!ghost.0.is_empty()).then_some(ghost));
        }
        self.put(&node.into(), None)
    }

    /// A renewal of our own Lease goes out now, with these subnets and claims; whether it arrives is for the watch to show.
    ///
    /// To be called before it is sent. A subnet that it leaves out must not hold any address any more at this time, and
    /// a claim that it leaves out must not be what an address is held by.
    pub fn renewing(&mut self, renew_time: String, said: Said, now: Moment) {
        self.own.renewing(renew_time, said, now);
    }

    /// Declares dead who has not been heard of for too long; due whenever [`Self::next_wake`] passes.
    pub fn look(&mut self, now: Moment) -> Vec<MemberChange> {
        self.ghosts.retain(|(_, until)| *until > now);
        let over = |(node, member): (&Arc<str>, &Member)| {
            (member.live && self.is_over(member, now)).then(|| (node.clone(), Member { live: false, ..member.clone() }))
        };
        let dead: Vec<_> = self.all.iter().filter_map(over).collect();
        dead.into_iter().flat_map(|(node, member)| self.put(&node, Some(member))).collect()
    }

    /// When somebody will be dead unless something is heard before.
    pub fn next_wake(&self) -> Option<Moment> {
        let live = self.all.values().filter(|member| member.live);
        live.map(|member| {
            let expiry = member.seen + member.duration();
            if self.own.proves(member.let_go()) { expiry } else { expiry.max(self.own.idle_from()) }
        })
        .min()
    }

    /// From when on a renewal should go out early, because it would prove that a silent member is dead.
    ///
    /// Without it, the proof comes with the next regular renewal.
    pub fn proof_due(&self) -> Option<Moment> {
        let others = self.all.iter().filter(|(node, member)| member.live && **node != self.me);
        others.map(|(_, member)| member.let_go()).filter(|moment| self.own.sent_before(*moment)).min()
    }

    /// Until when local addresses may be held; `None` is not at all.
    ///
    /// It counts from the sending of the latest renewal that the watch has shown.
    pub fn fence(&self) -> Option<Moment> {
        self.own.fence()
    }

    /// The highest version heard: what our own Lease says we saw, once all that follows from it is done.
    pub fn acted_up_to(&self) -> u64 {
        self.heard
    }

    /// The live nodes that can serve an address, each once, in order.
    pub fn candidates(&self, addr: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        let mut serving = self.by_subnet.iter().filter(|(subnet, _)| subnet.contains(&addr)).map(|(_, nodes)| nodes);
        let mut found: Vec<_> = serving.next().into_iter().flatten().collect();
        let alone = found.len();
        found.extend(serving.flatten());
        if found.len() > alone {
            found.sort_unstable();
            found.dedup();
        }
        found.into_iter()
    }

    /// Whether a node can serve an address at this time.
    pub fn is_candidate(&self, node: &str, addr: IpAddr) -> bool {
        self.all.get(node).is_some_and(|member| member.live && member.serves(addr))
    }

    /// Whether a node is alive and says that it can serve a subnet.
    pub fn serves(&self, node: &str, subnet: &IpNet) -> bool {
        self.by_subnet.get(subnet).is_some_and(|nodes| nodes.contains(node))
    }

    /// The live members, each with the subnets it can serve.
    pub fn live(&self) -> impl Iterator<Item = (&str, &BTreeSet<IpNet>)> {
        self.all.iter().filter(|(_, member)| member.live).map(|(node, member)| (&**node, &member.lease.subnets))
    }

    /// The subnets that live members can serve.
    pub fn subnets(&self) -> impl Iterator<Item = IpNet> {
        self.by_subnet.keys().copied()
    }

    /// The node of this process.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// The Lease of a node as last heard.
    pub fn lease(&self, node: &str) -> Option<&LeaseView> {
        self.all.get(node).map(|member| &member.lease)
    }

    /// Whether a node is alive.
    pub fn is_live(&self, node: &str) -> bool {
        self.all.get(node).is_some_and(|member| member.live)
    }

    /// Whether a node's agent is one that says what it saw.
    pub fn speaks(&self, node: &str) -> bool {
        self.lease(node).is_some_and(|lease| lease.saw.is_some())
    }

    /// Whether this node, elected for an address that it does not hold, may take it now; if not, when to ask again.
    ///
    /// Nobody may take an address before all who could hold it have said that they know of this node, or are bound to
    /// have let go. Agents of other programs say nothing and are not waited for.
    pub fn may_take(&self, addr: IpAddr, now: Moment) -> Result<(), Moment> {
        self.free_since(addr, self.own.listed(addr), now)
    }

    fn free_since(&self, addr: IpAddr, listed: Option<Listed>, now: Moment) -> Result<(), Moment> {
        let Some(listed) = listed else { return Err(now + Duration::from_secs(1)) };
        let others = self.all.iter().filter(|(node, member)| **node != self.me && member.serves(addr));
        let unsure = others.filter_map(|(_, member)| {
            let unaware = member.live && member.lease.saw.is_some_and(|saw| saw < listed.version);
            // Who looked long dead at first sight may only have a slow clock: it has its whole duration to stir.
            let unaware = unaware.then(|| listed.shown + member.duration());
            let asleep = member.old.then(|| member.seen + member.duration());
            unaware.max(asleep)
        });
        let haunted = self.ghosts.iter().filter(|(subnets, _)| subnets.iter().any(|subnet| subnet.contains(&addr)));
        let unsure = unsure.chain(haunted.map(|(_, until)| *until)).chain(self.strangers).chain(self.twin_until(now));
        unsure.filter(|wait| *wait > now).max().map_or(Ok(()), Err)
    }

    /// The member as it is after its Lease was heard.
    fn heard_of(&self, node: &str, lease: LeaseView, now: Moment) -> Member {
        let duration = lease.duration.unwrap_or_default();
        let usable = lease.renewed.is_some() && !duration.is_zero();
        match self.all.get(node) {
            Some(known) if known.lease.renewed == lease.renewed => {
                Member { live: known.live && usable, lease, ..*known }
            }
            Some(_) => Member { live: usable, seen: now, stirred: true, old: false, lease },
            None => Member { live: usable, seen: now, stirred: false, old: lease.age > duration * OLD, lease },
        }
    }

    /// An agent that ran here before us left word in our Lease of how far it had come.
    fn remember_former(&mut self, own: &LeaseView) {
        if !self.all.contains_key(&self.me) && self.former_saw.is_none() {
            self.former_saw = own.saw;
        }
    }

    /// Whether a member has been silent for too long.
    ///
    /// An old Lease is over at first sight if the agent before us knew it as it is: had its node been alive to that
    /// agent, it would have held nothing for us to keep. Any other may be a newcomer whose clock is slow.
    fn is_over(&self, member: &Member, now: Moment) -> bool {
        let known = member.lease.version.is_some_and(|version| self.former_saw.is_some_and(|saw| version <= saw));
        let proved = self.own.proves(member.let_go()) || now >= self.own.idle_from();
        (member.old && known) || (proved && now >= member.seen + member.duration())
    }

    /// Puts a member as it is now in the place of what it was, and tells the difference.
    fn put(&mut self, node: &Arc<str>, member: Option<Member>) -> Vec<MemberChange> {
        let claims = self.put_claims(node, member.as_ref());
        let before = self.all.get(node).map(Member::serving).unwrap_or_default();
        let after = member.as_ref().map(Member::serving).unwrap_or_default();
        match member {
            Some(member) => drop(self.all.insert(node.clone(), member)),
            None => drop(self.all.remove(node)),
        }
        let lost: BTreeSet<_> = before.difference(&after).copied().collect();
        let won: BTreeSet<_> = after.difference(&before).copied().collect();
        lost.iter().for_each(|subnet| unlist(&mut self.by_subnet, subnet, node));
        for subnet in &won {
            self.by_subnet.entry(*subnet).or_default().insert(node.clone());
        }
        let lost = (!lost.is_empty()).then(|| MemberChange::Left { node: node.clone(), subnets: lost });
        let won = (!won.is_empty()).then(|| MemberChange::Joined { node: node.clone(), subnets: won });
        lost.into_iter().chain(won).chain(claims).collect()
    }
}

/// Takes a node out of what is listed for one thing.
fn unlist<K: Ord>(listed: &mut BTreeMap<K, BTreeSet<Arc<str>>>, key: &K, node: &str) {
    if let Some(nodes) = listed.get_mut(key) {
        nodes.remove(node);
        if nodes.is_empty() {
            listed.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
