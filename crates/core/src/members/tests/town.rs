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

pub const DURATION: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);
/// How long an agent without a live Lease watches before it joins.
const WATCHES: Duration = Duration::from_millis(7_500);

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
}

struct Node {
    name: String,
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
    started: Moment,
    /// How much of the log it has seen.
    seen: usize,
    listed: bool,
    /// Whether it watches from there on; otherwise it lists first.
    watching: bool,
    /// How often it renews: not quite as often as the others, so that they meet in every order.
    renew: Duration,
    found_live: bool,
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
}

impl Town {
    pub fn new(clocks: [i64; NODES]) -> Self {
        let subnets: BTreeSet<IpNet> = SUBNETS.iter().map(|subnet| subnet.parse().unwrap()).collect();
        let node = |(i, clock_off): (usize, &i64)| Node {
            name: format!("node-{i}"),
            clock_off: *clock_off,
            plugged: subnets.clone(),
            kernel: BTreeMap::new(),
            agent: None,
            starts: 0,
            renew: Duration::from_millis(5_000 - 400 * i as u64),
            paused: Moment::default(),
            watch_stalled: Moment::default(),
            writes_lost: Moment::default(),
            answers_lost: Moment::default(),
            watch_delay: Duration::ZERO,
            write_delay: Duration::ZERO,
        };
        let nodes = clocks.iter().enumerate().map(node).collect();
        Self { now: Moment(Duration::from_secs(1_000)), server: Server::default(), nodes, renewals: 0 }
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
            Trouble::Start => node.start(now),
            Trouble::Leave => self.leave(which),
            Trouble::Unplug(subnet) => drop(node.plugged.remove(&SUBNETS[*subnet].parse().unwrap())),
            Trouble::Plug(subnet) => drop(node.plugged.insert(SUBNETS[*subnet].parse().unwrap())),
            Trouble::WatchAnew => {
                if let Some(agent) = &mut node.agent {
                    agent.watching = false;
                }
            }
        }
    }

    /// An agent that is asked to stop lets go first and deletes its Lease then.
    fn leave(&mut self, which: usize) {
        let node = &mut self.nodes[which];
        if node.paused > self.now || node.agent.take().is_none() {
            return;
        }
        node.kernel.clear();
        let base = self.server.version(&node.name);
        let at = self.now + node.write_delay;
        self.server.arriving.push(Write { at, node: which, base, stored: None, answered: false });
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + TICK;
            self.write();
            for which in 0..NODES {
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
            let candidates: Vec<Arc<str>> = self.nodes.iter().filter(serves).map(|n| n.name.as_str().into()).collect();
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
            if let Some(agent) = &mut node.agent {
                agent.answered |= write.answered;
            }
        }
    }

    fn step(&mut self, which: usize) {
        let (now, node) = (self.now, &mut self.nodes[which]);
        let Some(mut agent) = node.agent.take() else { return };
        agent.listen(node, &self.server, now);
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
}

impl Node {
    fn start(&mut self, now: Moment) {
        if self.agent.is_some() {
            return;
        }
        self.starts += 1;
        let timing = Timing { duration: DURATION, renew_deadline: Duration::from_secs(8) };
        self.agent = Some(Agent {
            members: Members::new(&self.name, timing),
            elections: Elections::new(),
            started: now,
            seen: 0,
            listed: false,
            watching: false,
            renew: self.renew,
            found_live: false,
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
            let new = server.log[self.seen..].iter().take_while(|(at, ..)| *at + node.watch_delay <= now).count();
            let shown = self.seen + new;
            if self.watching {
                for (_, name, stored) in &server.log[self.seen..shown] {
                    changes.extend(match stored {
                        Some(stored) => self.members.hear(node.view(stored, now), now),
                        None => self.members.gone(name),
                    });
                }
            } else {
                changes.extend(self.list(node, &server.log[..shown], now));
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
        let own = leases.iter().find(|lease| lease.node == node.name);
        self.found_live |= own.is_some_and(|own| own.age < DURATION);
        let changes = self.members.hear_all(leases, now);
        for addr in addrs() {
            self.elections.watch(addr, None, &self.members);
        }
        changes
    }

    /// Brings the kernel in line.
    fn act(&mut self, node: &mut Node, now: Moment) {
        let fence = self.members.fence();
        self.was_fenced |= fence.is_some();
        for addr in addrs() {
            let held = node.kernel.get(&addr).is_some_and(|until| *until > now);
            let mine = node.serves(addr) && self.elections.winner(addr) == Some(&node.name);
            let allowed = match fence {
                Some(fence) => now < fence && (held || self.members.may_take(addr, now).is_ok()),
                None => held && !self.was_fenced,
            };
            match fence {
                _ if !mine || !allowed => drop(node.kernel.remove(&addr)),
                Some(fence) => drop(node.kernel.insert(addr, now + Duration::from_secs(fence.since(now).as_secs()))),
                None => {}
            }
        }
    }

    fn should_renew(&self, node: &Node, now: Moment) -> bool {
        let Some(last) = self.last_sent else { return self.found_live || now >= self.started + WATCHES };
        let due = now >= last + self.renew || (!self.answered && now >= last + RETRY);
        let proof = self.members.proof_due().is_some_and(|due| due <= now);
        due || self.urgent || proof || self.published != node.plugged
    }

    fn renew(&mut self, node: &Node, which: usize, server: &Server, number: u64, now: Moment) -> Write {
        let renewed = number.to_string();
        let said = Said { subnets: node.plugged.clone(), ..Said::default() };
        self.members.renewing(renewed.clone(), said, now);
        (self.last_sent, self.answered, self.urgent) = (Some(now), false, false);
        self.published.clone_from(&node.plugged);
        let lease = LeaseView {
            node: node.name.clone(),
            renewed: Some(renewed),
            duration: Some(DURATION),
            subnets: node.plugged.clone(),
            instance: node.starts.to_string(),
            saw: Some(self.members.acted_up_to()),
            ..LeaseView::default()
        };
        let wall = i64::try_from(now.0.as_secs()).unwrap() + node.clock_off;
        let answered = node.answers_lost <= now;
        let base = server.version(&node.name);
        Write { at: now + node.write_delay, node: which, base, stored: Some(Stored { lease, wall }), answered }
    }
}
