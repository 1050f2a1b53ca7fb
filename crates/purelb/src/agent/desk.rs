//! The agent's desk: everything it knows, and what it wants done next.
//!
//! ```text
//! cluster, kernel, lease ──▶ hear ──▶ State ──▶ turn ──▶ orders to the kernel, writes, a renewal, Events
//! ```
//!
//! A desk does no I/O and reads no clock. Decisions are in `purelb_core`; the desk brings them what they depend on, and
//! puts what they say into the words of the cluster.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use purelb_api::annotations::LEASE_PREFIX;
use purelb_api::read;
use purelb_core::alloc::Notice;
use purelb_core::bgp::status::NodeReport;
use purelb_core::links::LinkKind;
use purelb_core::moment::Moment;
use purelb_core::plan::Step;
use purelb_core::want::{Leaving, State};
use tracing::info;

use super::Settings;
use super::bgp::secrets::Wanted;
use super::bgp::{Speak, SpeakerNews};
use super::guarded::Guarded;
use super::kernel::Order;
use super::lease::{self, Content};
use super::metrics::Metrics;
use super::work::Job;
use crate::cluster::known::Known;
use bgp::Bgp;
use endpoints::Slices;
use heartbeat::{Heartbeat, Pace};
use services::{Services, Surroundings};
use setup::Choices;
use sight::Sight;

mod bgp;
mod endpoints;
mod hear;
pub mod heartbeat;
mod notices;
mod services;
mod setup;
mod sight;
mod tell;
mod writes;

/// How many steps the kernel gets at once: few enough that something urgent never waits long.
const BATCH: usize = 128;

/// What is to be done at once.
#[derive(Debug, Default)]
pub struct Urgent {
    /// For the BGP speaker.
    pub speak: Option<Speak>,
    /// For the kernel, in this order.
    pub orders: Vec<Order>,
}

/// What is to be done after a turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// For the kernel, in this order, after what was urgent.
    pub orders: Vec<Order>,
    /// For the API server.
    pub jobs: Vec<Job>,
    /// For the users, about objects.
    pub notices: Vec<(ObjectReference, Notice)>,
    /// The lease as it is to be written now.
    pub renewal: Option<Box<Lease>>,
    /// For this node's BGPNodeStatus.
    pub report: Option<Box<NodeReport>>,
    /// The watch of leases is stuck and must begin anew.
    pub fresh_leases: bool,
    /// When to take the next turn although nothing happens.
    pub wake: Option<Moment>,
}

/// Why an agent has to end although nobody told it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Another agent writes the lease of this node.
    Usurped,
    /// The cluster was restored from a backup: what was known is of another past.
    Restored,
}

/// Everything an agent knows.
pub struct Desk {
    settings: Settings,
    metrics: Metrics,
    state: State,
    services: Services,
    slices: Slices,
    choices: Choices,
    guarded: Guarded,
    bgp: Bgp,
    /// Once everything was known, the kernel showed what it should: routers were told all there is.
    complete: bool,
    /// The addresses of all Nodes, as their leases say.
    peers: Known<String, Guarded>,
    sight: Sight,
    heartbeat: Heartbeat,
    /// Everything was known once, so that decisions count.
    begun: bool,
    /// The highest version of any lease that was heard when the last renewal was sent.
    heard: u64,
    /// Why this agent has to end, if it has to.
    ended: Option<Ended>,
    /// The last time in a lease: two writes never carry the same one, or the second would be no sign of life.
    stamp: Timestamp,
    /// How many steps the kernel has been ordered to do and has not answered for.
    applying: usize,
    /// How many it has done.
    steps_done: usize,
    leaving: bool,
    healthy: bool,
    todo: Turn,
}

impl Desk {
    /// A desk on which nothing lies yet.
    pub fn new(settings: Settings, metrics: Metrics) -> Self {
        let timing = settings.timing;
        let mut state = State::new(&settings.node, timing.members());
        state.set_host(&settings.host);
        Self {
            state,
            services: Services::default(),
            slices: Slices::default(),
            choices: Choices::new(&settings.node, &settings.namespace, timing.lease),
            guarded: Guarded::default(),
            bgp: Bgp::new(&settings.node, &settings.namespace),
            complete: false,
            peers: Known::default(),
            sight: Sight::new(&settings.node, timing.members().hold() / 2),
            heartbeat: Heartbeat::new(Pace { renew: timing.renew(), retry: timing.again() }),
            begun: false,
            heard: 0,
            ended: None,
            stamp: Timestamp::MIN,
            applying: 0,
            steps_done: 0,
            leaving: false,
            healthy: false,
            todo: Turn::default(),
            settings,
            metrics,
        }
    }

    /// Begins a turn: decides what nobody should wait for, which is what routers are told and what the kernel is to do. The
    /// rest of the turn takes longer than they do.
    pub fn hurry(&mut self, now: Moment) -> Urgent {
        self.begin(now);
        self.state.want(now);
        // One order after the other: what is planned next may depend on what comes of this one.
        if self.applying == 0 {
            let steps = self.state.steps(now, BATCH);
            self.complete |= steps.is_empty() && self.begun;
            self.apply(steps, now);
        }
        let speak = self.bgp.speak(&self.state, self.complete);
        Urgent { speak, orders: std::mem::take(&mut self.todo.orders) }
    }

    /// Decides the rest of the turn, after [`Desk::hurry`]. The time on the wall is only for the lease.
    pub fn turn(&mut self, now: Moment, wall: Timestamp) -> Turn {
        let wanted = self.state.next_wake();
        self.tell();
        self.look(now);
        let report = self.report(now);
        let beat = self.beat(now, wall);
        self.observe(now);
        let (fresh, stuck) = self.sight.is_stuck(now);
        self.todo.fresh_leases = fresh;
        let turn = std::mem::take(&mut self.todo);
        let wakes = [wanted, self.services.next_wake(), beat, stuck, report];
        Turn { wake: wakes.into_iter().flatten().min(), ..turn }
    }

    /// Everything is known once every list was complete. Whoever then finds its lease alive goes on where its predecessor
    /// stopped; whoever does not has a lease without subnets at first.
    fn begin(&mut self, now: Moment) {
        if self.begun || !self.is_known() {
            return;
        }
        self.begun = true;
        self.state.begin(now);
        self.state.set_synced(true);
        self.services.touch_all();
        info!(joined = self.state.has_joined(), "everything is known: addresses are held as they should be");
    }

    fn is_known(&self) -> bool {
        self.services.is_complete()
            && self.slices.is_complete()
            && self.choices.is_complete()
            && self.sight.is_complete()
            && self.state.links().is_some()
    }

    /// Whether everything is known and the lease says what this node serves.
    pub fn is_ready(&self) -> bool {
        self.begun && self.state.has_joined() && self.heartbeat.said().is_some()
    }

    /// Why this agent has to end although nobody told it to.
    pub fn ended(&self) -> Option<Ended> {
        let members = self.state.members();
        let usurped = members.is_usurped().then_some(Ended::Usurped);
        let restored = (members.is_restored() || self.services.is_restored()).then_some(Ended::Restored);
        self.ended.or(restored).or(usurped)
    }

    fn apply(&mut self, steps: Vec<Step>, decided: Moment) {
        if !steps.is_empty() {
            self.applying += steps.len();
            self.todo.orders.push(Order::Apply { steps, decided });
        }
    }

    /// Brings Services up to date, once it is certain what they should say.
    fn look(&mut self, now: Moment) {
        if !self.begun || self.leaving {
            return;
        }
        let around = Surroundings { me: &self.settings.node, state: &self.state, metrics: &self.metrics, now };
        let (told, jobs) = self.services.look(&around);
        self.todo.jobs.extend(jobs);
        for (service, notice) in told {
            self.tell_service(&service, notice);
        }
    }

    /// Counts and reports what BGP does if it is time; answers with when to look again.
    fn report(&mut self, now: Moment) -> Option<Moment> {
        if self.bgp.has_waited(now) {
            self.todo.notices.extend(self.bgp.notices(now));
        }
        let count = self.bgp.count(&self.state, &self.metrics.bgp, now);
        let (report, wake) = self.bgp.report_due(&self.state, now);
        self.todo.report = report;
        count.into_iter().chain(wake).chain(self.bgp.waits_until()).min()
    }

    /// The last report of this agent, if anybody may read it.
    pub fn last_report(&self) -> Option<NodeReport> {
        self.bgp.last_report(&self.state)
    }

    /// Renews the lease if it is time; answers with when to look again.
    fn beat(&mut self, now: Moment, wall: Timestamp) -> Option<Moment> {
        let owner = self.choices.node_uid()?.to_owned();
        if !self.begun {
            return None;
        }
        let wish = self.state.lease_wish();
        // A node that announces nothing says so: a lease without subnets is better than an old one that has them.
        let publish = wish.publish || self.state.is_ready() || self.heartbeat.said().is_some();
        if !publish || self.leaving {
            return None;
        }
        let addresses = self.choices.node_addresses().collect();
        let (subnets, claims, host) = (wish.subnets.clone(), wish.claims.clone(), self.settings.host.clone());
        let content = Content {
            subnets,
            claims,
            saw: wish.saw,
            settled: wish.settled,
            host,
            owner,
            addresses,
            gateways: self.state.gateways().collect(),
            api_servers: self.api_servers().collect(),
        };
        let due = self.heartbeat.due(&content, wish.urgent, wish.renew_from, now)?;
        if now < due {
            return Some(due);
        }
        if self.heartbeat.said().map(|said| &said.subnets) != Some(&content.subnets) {
            info!(
                event = "subnetsChanged",
                subnets = lease::subnets(&content),
                "the lease says which subnets this node serves"
            );
        }
        self.stamp = later(wall, self.stamp);
        let mut lease = lease::lease(
            &self.settings.node,
            &self.settings.instance,
            &content,
            self.settings.timing.lease,
            self.stamp,
        );
        let members = self.state.members();
        let shown = members.lease(&self.settings.node).and_then(|own| own.version);
        lease.metadata.resource_version = shown.map(|version| version.to_string());
        self.heard = members.acted_up_to();
        self.state.renewing(read::renew_text(self.stamp), &wish, now);
        self.heartbeat.sending(content, now);
        self.todo.renewal = Some(Box::new(lease));
        None
    }

    fn observe(&mut self, now: Moment) {
        let members = self.state.members();
        let healthy = members.fence().is_some_and(|fence| fence > now);
        self.metrics.lease_healthy(healthy);
        if std::mem::replace(&mut self.healthy, healthy) != healthy {
            let event = if healthy { "healthRestored" } else { "markUnhealthy" };
            info!(event, healthy, "whether this node may hold local addresses");
        }
        self.sight.compare(members);
        let local = self.heartbeat.said().map_or(0, |said| said.subnets.len());
        self.metrics.members(members.live().count(), members.subnets().count(), local);
        let shown = self.state.links().zip(self.state.desired().virtual_link.as_deref());
        let on = shown.and_then(|(links, name)| links.named(name));
        self.metrics.no_dummy(on.is_some_and(|(_, link)| link.kind == LinkKind::Ifb));
    }

    /// The agent is told to stop.
    pub fn leave(&mut self, how: Leaving) {
        self.leaving = true;
        self.state.leave(how);
    }

    /// Whether no local address is left here, so that the lease may go too.
    pub fn has_let_go(&self) -> bool {
        self.leaving && self.state.has_let_go()
    }

    /// How many steps the kernel has done.
    pub fn steps_done(&self) -> usize {
        self.steps_done
    }

    /// Whether nothing is left to do to the kernel.
    pub fn is_at_rest(&self) -> bool {
        self.applying == 0 && !self.state.waits_for_routers()
    }

    /// The Secrets that hold the passwords of this node's BGP sessions.
    pub fn secrets_wanted(&self) -> Wanted {
        self.bgp.secrets_wanted()
    }

    /// What the BGP speaker last said of itself.
    pub fn speaker(&self) -> &SpeakerNews {
        self.bgp.speaker()
    }

    /// The UID of this node's Node.
    pub fn node_uid(&self) -> Option<&str> {
        self.choices.node_uid()
    }

    /// What decisions depend on and lead to, for whoever asks.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// How the agent is set up.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The name of this node's lease.
    pub fn lease_name(&self) -> String {
        format!("{LEASE_PREFIX}{}", self.settings.node)
    }
}

/// The time on the wall in microseconds, but never the same one twice.
fn later(wall: Timestamp, last: Timestamp) -> Timestamp {
    let wall = Timestamp::from_microsecond(wall.as_microsecond()).unwrap_or(wall);
    if wall == last { Timestamp::from_microsecond(wall.as_microsecond() + 1).unwrap_or(wall) } else { wall }
}
