//! A town of agents around one API server, in which everything may be late, lost, stalled or stopped.
//!
//! Each agent follows the rules: it holds an address while it is elected and its fence stands, takes it only when
//! allowed to, and what it holds goes by the kernel's own clock even while the agent sleeps. The kernels of all nodes
//! are compared after every single step of an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;

use super::super::*;
use crate::elect::{Elections, elect};

/// The shipped numbers.
pub const DURATION: Duration = Duration::from_secs(7);
const RETRY: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(200);

pub const NODES: usize = 4;
pub const SUBNETS: [&str; 2] = ["10.0.0.0/24", "10.0.1.0/24"];

/// Three addresses of each subnet.
fn addrs() -> impl Iterator<Item = IpAddr> {
    (0..6).map(|i| Ipv4Addr::new(10, 0, i / 3, 1 + i % 3).into())
}

/// What a person, the network or bad luck does to one node.
#[derive(Clone, Debug)]
pub enum Trouble {
    Pause(Duration),
    StallWatch(Duration),
    DelayWatch(Duration),
    DelayWrites(Duration),
    LoseWrites(Duration),
    LoseAnswers(Duration),
    Crash,
    PowerLoss,
    Start,
    Leave,
    Unplug(usize),
    Plug(usize),
    WatchAnew,
    /// Somebody deletes the Lease, which its agent may not hear of.
    DeleteLease,
    /// An agent is started on another machine under the name of the first node.
    StartTwin,
    /// The API server is given the state of this long ago, and breaks all connections.
    Restore(Duration),
}

/// The API server: Leases, and everything that ever happened to them.
#[derive(Default)]
struct Server {
    leases: BTreeMap<String, Stored>,
    log: Vec<(Moment, String, Option<Stored>)>,
    arriving: Vec<Write>,
}

#[derive(Clone)]
struct Stored {
    lease: LeaseView,
    /// When it was renewed by the wall clock of its writer, in seconds.
    wall: i64,
}

struct Write {
    at: Moment,
    node: usize,
    /// The version it expects to replace.
    base: Option<u64>,
    /// What it writes; nothing deletes.
    stored: Option<Stored>,
    answered: bool,
    /// The highest version that its agent had heard when it was sent.
    heard: u64,
}

struct Node {
    name: String,
    host: String,
    clock_off: i64,
    plugged: BTreeSet<IpNet>,
    /// What the kernel holds, and until when.
    kernel: BTreeMap<IpAddr, Moment>,
    agent: Option<Agent>,
    starts: u64,
    renew: Duration,
    paused: Moment,
    watch_stalled: Moment,
    writes_lost: Moment,
    answers_lost: Moment,
    watch_delay: Duration,
    write_delay: Duration,
}

struct Agent {
    members: Members,
    elections: Elections,
    /// How much of the log it has seen.
    seen: usize,
    listed: bool,
    /// Whether it watches from there on; otherwise it lists first.
    watching: bool,
    /// How often it renews: not quite as often as the others, so that they meet in every order.
    renew: Duration,
    joined: bool,
    restored: bool,
    /// What it has put into the kernel itself.
    taken: BTreeSet<IpAddr>,
    was_fenced: bool,
    last_sent: Option<Moment>,
    answered: bool,
    published: BTreeSet<IpNet>,
    urgent: bool,
}

pub struct Town {
    now: Moment,
    server: Server,
    nodes: Vec<Node>,
    renewals: u64,
    /// The API server was given an older state, after which two may hold an address for a while: see docs/decisions/0007.
    excused: bool,
}

impl Town {
    pub fn new(clocks: [i64; NODES]) -> Self {
        let subnets: BTreeSet<IpNet> = SUBNETS.iter().map(|subnet| subnet.parse().unwrap()).collect();
        let node = |(i, clock_off): (usize, &i64)| Node {
            // The last one has the name of the first.
            name: format!("node-{}", i % NODES),
            host: format!("host-{i}"),
            clock_off: *clock_off,
            plugged: subnets.clone(),
            kernel: BTreeMap::new(),
            agent: None,
            starts: 0,
            renew: Duration::from_millis(1_000 - 80 * i as u64),
            paused: Moment::default(),
            watch_stalled: Moment::default(),
            writes_lost: Moment::default(),
            answers_lost: Moment::default(),
            watch_delay: Duration::ZERO,
            write_delay: Duration::ZERO,
        };
        let nodes = clocks.iter().chain(&clocks[..1]).enumerate().map(node).collect();
        Self { now: Moment(Duration::from_secs(1_000)), server: Server::default(), nodes, renewals: 0, excused: false }
    }

    pub fn befall(&mut self, which: usize, trouble: &Trouble) {
        let now = self.now;
        let node = &mut self.nodes[which];
        match trouble {
            Trouble::Pause(time) => node.paused = now + *time,
            Trouble::StallWatch(time) => node.watch_stalled = now + *time,
            Trouble::DelayWatch(time) => node.watch_delay = *time,
            Trouble::DelayWrites(time) => node.write_delay = *time,
            Trouble::LoseWrites(time) => node.writes_lost = now + *time,
            Trouble::LoseAnswers(time) => node.answers_lost = now + *time,
            Trouble::Crash => node.agent = None,
            Trouble::PowerLoss => {
                node.agent = None;
                node.kernel.clear();
            }
            Trouble::Start => node.start(),
            Trouble::Leave => self.leave(which),
            Trouble::Unplug(subnet) => drop(node.plugged.remove(&SUBNETS[*subnet].parse().unwrap())),
            Trouble::Plug(subnet) => drop(node.plugged.insert(SUBNETS[*subnet].parse().unwrap())),
            Trouble::WatchAnew => {
                if let Some(agent) = &mut node.agent {
                    agent.watching = false;
                }
            }
            Trouble::DeleteLease => {
                let name = node.name.clone();
                self.server.store(now, &name, None);
            }
            Trouble::StartTwin => self.nodes[NODES].start(),
            Trouble::Restore(back) => {
                self.server.restore(now - *back);
                self.excused = true;
            }
        }
    }

    /// An agent that is asked to stop lets go first and deletes its Lease then.
    fn leave(&mut self, which: usize) {
        let node = &mut self.nodes[which];
        let Some(agent) = node.agent.take_if(|_| node.paused <= self.now) else { return };
        node.kernel.clear();
        if agent.members.has_twin(self.now) {
            return;
        }
        let base = self.server.version(&node.name);
        let at = self.now + node.write_delay;
        self.server.arriving.push(Write { at, node: which, base, stored: None, answered: false, heard: 0 });
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + TICK;
            self.write();
            for which in 0..self.nodes.len() {
                if self.nodes[which].paused <= self.now {
                    self.step(which);
                }
                self.check();
            }
        }
    }

    /// Every trouble ends.
    pub fn calm(&mut self) {
        for node in &mut self.nodes {
            let now = self.now;
            (node.paused, node.watch_stalled, node.writes_lost, node.answers_lost) = (now, now, now, now);
            (node.watch_delay, node.write_delay) = (Duration::ZERO, Duration::ZERO);
        }
    }

    /// No address has two holders.
    fn check(&self) {
        if self.excused {
            return;
        }
        for addr in addrs() {
            let holders = self.holders(addr);
            assert!(holders.len() < 2, "{addr} is on {holders:?} at {:?}", self.now.0);
        }
    }

    fn holders(&self, addr: IpAddr) -> Vec<&str> {
        let holds = |node: &&Node| node.kernel.get(&addr).is_some_and(|until| *until > self.now);
        self.nodes.iter().filter(holds).map(|node| node.name.as_str()).collect()
    }

    /// Each address is with the one that should be elected of those whose agents run.
    pub fn check_elected(&self) {
        for addr in addrs() {
            let serves =
                |node: &&Node| node.agent.is_some() && node.plugged.iter().any(|subnet| subnet.contains(&addr));
            let candidates: BTreeSet<Arc<str>> =
                self.nodes.iter().filter(serves).map(|n| n.name.as_str().into()).collect();
            let candidates: Vec<_> = candidates.into_iter().collect();
            let expected: Vec<_> = elect(addr, &candidates, None).iter().map(|elected| &**elected.node).collect();
            assert_eq!(self.holders(addr), expected, "of {addr} at {:?}", self.now.0);
        }
    }

    /// What has arrived is stored, unless somebody was faster.
    fn write(&mut self) {
        let now = self.now;
        let (arrived, arriving) =
            std::mem::take(&mut self.server.arriving).into_iter().partition(|write| write.at <= now);
        self.server.arriving = arriving;
        for write in arrived {
            let node = &mut self.nodes[write.node];
            if self.server.version(&node.name) != write.base || (write.base.is_none() && write.stored.is_none()) {
                continue;
            }
            self.server.store(now, &node.name, write.stored);
            let version = self.server.version(&node.name);
            if let Some(agent) = &mut node.agent {
                agent.answered |= write.answered;
                agent.restored |= write.answered && version.is_some_and(|version| version <= write.heard);
            }
        }
    }

    fn step(&mut self, which: usize) {
        let (now, node) = (self.now, &mut self.nodes[which]);
        let Some(mut agent) = node.agent.take() else { return };
        agent.listen(node, &self.server, now);
        if agent.restored || agent.members.is_restored() {
            // It ends without a word, and whoever looks after it starts another.
            return node.start();
        }
        if agent.members.is_usurped() {
            return node.kernel.clear();
        }
        if agent.listed {
            agent.act(node, now);
            if agent.should_renew(node, now) {
                self.renewals += 1;
                let write = agent.renew(node, which, &self.server, self.renewals, now);
                let arrives = node.writes_lost <= now;
                self.server.arriving.extend(arrives.then_some(write));
            }
        }
        self.nodes[which].agent = Some(agent);
    }
}

impl Server {
    fn version(&self, node: &str) -> Option<u64> {
        self.leases.get(node).and_then(|stored| stored.lease.version)
    }

    fn store(&mut self, now: Moment, node: &str, stored: Option<Stored>) {
        let version = self.log.len() as u64 + 1;
        let stored = stored.map(|mut stored| {
            stored.lease.version = Some(version);
            stored
        });
        match &stored {
            Some(stored) => drop(self.leases.insert(node.to_owned(), stored.clone())),
            None => drop(self.leases.remove(node)),
        }
        self.log.push((now, node.to_owned(), stored));
    }

    /// As an operator would: everything after a moment never was, and whatever was under way is lost.
    fn restore(&mut self, moment: Moment) {
        self.log.retain(|(at, ..)| *at <= moment);
        self.arriving.clear();
        self.leases.clear();
        for (_, node, stored) in &self.log {
            match stored {
                Some(stored) => drop(self.leases.insert(node.clone(), stored.clone())),
                None => drop(self.leases.remove(node)),
            }
        }
    }
}

impl Node {
    fn start(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.starts += 1;
        let timing = Timing { duration: DURATION, renew_deadline: DURATION };
        let mut members = Members::new(&self.name, timing);
        members.set_host(&self.host);
        self.agent = Some(Agent {
            members,
            elections: Elections::new(),
            seen: 0,
            listed: false,
            watching: false,
            renew: self.renew,
            joined: false,
            restored: false,
            taken: BTreeSet::new(),
            was_fenced: false,
            last_sent: None,
            answered: true,
            published: BTreeSet::new(),
            urgent: false,
        });
    }

    /// A Lease as this node sees it, with its age by this node's wall clock.
    fn view(&self, stored: &Stored, now: Moment) -> LeaseView {
        let wall = i64::try_from(now.0.as_secs()).unwrap() + self.clock_off;
        let age = Duration::from_secs(u64::try_from(wall - stored.wall).unwrap_or_default());
        LeaseView { age, ..stored.lease.clone() }
    }

    fn serves(&self, addr: IpAddr) -> bool {
        self.plugged.iter().any(|subnet| subnet.contains(&addr))
    }
}

impl Agent {
    /// Hears what the watch shows by now.
    fn listen(&mut self, node: &Node, server: &Server, now: Moment) {
        let mut changes = Vec::new();
        if node.watch_stalled <= now {
            // Time never runs backwards, not even in a list.
            let unseen = server.log.get(self.seen..).unwrap_or_default();
            let new = unseen.iter().take_while(|(at, ..)| *at + node.watch_delay <= now).count();
            let shown = self.seen + new;
            if self.watching {
                for (_, name, stored) in &unseen[..new] {
                    changes.extend(match stored {
                        Some(stored) => self.members.hear(node.view(stored, now), now),
                        None => self.members.gone(name),
                    });
                }
            } else {
                // After the past was changed, a list is shorter than what was seen.
                let shown = shown.min(server.log.len());
                changes.extend(self.list(node, &server.log[..shown], now));
                self.seen = shown;
            }
            (self.seen, self.watching, self.listed) = (shown, true, true);
        }
        if self.members.next_wake().is_some_and(|wake| wake <= now) {
            changes.extend(self.members.look(now));
        }
        for change in &changes {
            self.elections.changed(change, &self.members);
            let MemberChange::Joined { subnets, .. } = change else { continue };
            self.urgent |= subnets.iter().any(|subnet| node.plugged.contains(subnet));
        }
    }

    fn list(&mut self, node: &Node, log: &[(Moment, String, Option<Stored>)], now: Moment) -> Vec<MemberChange> {
        let mut latest = BTreeMap::new();
        for (_, name, stored) in log {
            latest.insert(name, stored);
        }
        let leases: Vec<_> = latest.into_values().flatten().map(|stored| node.view(stored, now)).collect();
        let changes = self.members.hear_all(leases, now);
        if !self.listed {
            self.members.begin(now);
            self.joined = self.members.is_expected() || node.kernel.values().any(|until| *until > now);
        }
        for addr in addrs() {
            self.elections.watch(addr, None, &self.members);
        }
        changes
    }

    /// Brings the kernel in line.
    fn act(&mut self, node: &mut Node, now: Moment) {
        self.joined = self.joined || self.members.may_join(now).is_ok();
        let fence = self.members.fence();
        self.was_fenced |= fence.is_some();
        for addr in addrs() {
            let held = node.kernel.get(&addr).is_some_and(|until| *until > now);
            let mine = node.serves(addr) && self.elections.winner(addr) == Some(&node.name);
            if mine && held && !self.taken.contains(&addr) && self.members.has_twin(now) {
                // It was left by an agent before that of the other machine, and ends by itself.
                continue;
            }
            let allowed = match fence {
                Some(fence) => now < fence && (held || self.members.may_take(addr, now).is_ok()),
                None => held && !self.was_fenced,
            };
            match fence {
                _ if !mine || !allowed => {
                    node.kernel.remove(&addr);
                    self.taken.remove(&addr);
                }
                Some(fence) => {
                    node.kernel.insert(addr, now + Duration::from_secs(fence.since(now).as_secs()));
                    self.taken.insert(addr);
                }
                None => {}
            }
        }
    }

    fn should_renew(&self, node: &Node, now: Moment) -> bool {
        let Some(last) = self.last_sent else { return true };
        let due = now >= last + self.renew || (!self.answered && now >= last + RETRY);
        let proof = self.members.proof_due().is_some_and(|due| due <= now);
        due || self.urgent || proof || self.published != self.said(node, now)
    }

    /// The subnets it says it serves.
    fn said(&self, node: &Node, now: Moment) -> BTreeSet<IpNet> {
        let mut said = if self.joined { node.plugged.clone() } else { BTreeSet::new() };
        said.extend(self.members.subnets_of_twin(now));
        said
    }

    fn renew(&mut self, node: &Node, which: usize, server: &Server, number: u64, now: Moment) -> Write {
        let renewed = number.to_string();
        let subnets = self.said(node, now);
        let said = Said { subnets: subnets.clone(), ..Said::default() };
        self.members.renewing(renewed.clone(), said, now);
        (self.last_sent, self.answered, self.urgent) = (Some(now), false, false);
        self.published.clone_from(&subnets);
        let lease = LeaseView {
            node: node.name.clone(),
            renewed: Some(renewed),
            duration: Some(DURATION),
            subnets,
            instance: format!("{} {}", node.host, node.starts),
            host: node.host.clone(),
            saw: Some(self.members.answers_up_to(now)),
            settled: self.members.is_settled(now),
            ..LeaseView::default()
        };
        let wall = i64::try_from(now.0.as_secs()).unwrap() + node.clock_off;
        let answered = node.answers_lost <= now;
        let (base, heard) = (server.version(&node.name), self.members.acted_up_to());
        Write { at: now + node.write_delay, node: which, base, stored: Some(Stored { lease, wall }), answered, heard }
    }
}
