//! What an agent counts, under the names and labels that PureLB's dashboards and alerts have always used.

use std::net::IpAddr;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Series;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use purelb_core::plan::Why;

pub use bgp::BgpMetrics;

mod bgp;

/// The states of [`Metrics::selector_state`].
pub const SELECTOR_STATES: [&str; 4] = ["default", "configured", "deselected", "invalid"];

/// The agent's metrics; clones count into the same ones.
#[derive(Clone, Debug)]
pub struct Metrics {
    announced: Series<Announced, Gauge>,
    selector_state: Series<State, Gauge>,
    /// Gratuitous ARP rounds that went out.
    pub garp_sent: Counter,
    /// Gratuitous ARP rounds that did not.
    pub garp_errors: Counter,
    /// Unsolicited neighbour advertisements that went out.
    pub na_sent: Counter,
    /// Unsolicited neighbour advertisements that did not.
    pub na_errors: Counter,
    /// Addresses put on an interface.
    pub additions: Counter,
    /// Addresses taken off an interface.
    pub withdrawals: Counter,
    /// Lifetimes prolonged.
    pub renewals: Counter,
    /// Lifetimes that could not be prolonged.
    pub renewal_errors: Counter,
    /// Steps that the kernel refused.
    pub step_errors: Counter,
    /// Elections of this node.
    pub wins: Counter,
    /// Elections of another node after this one.
    pub losses: Counter,
    slot_steals: Series<Steal, Counter>,
    taken: Series<Kind, Counter>,
    lost: Series<Lost, Counter>,
    no_dummy: Gauge,
    lifetime_beyond_lease: Gauge,
    lease_healthy: Gauge,
    /// Renewals of the lease that the API server accepted.
    pub lease_renewals: Counter,
    /// Renewals of the lease that failed.
    pub lease_failures: Counter,
    winner_changes: Series<Service, Counter>,
    members: Gauge,
    subnets: Gauge,
    local_subnets: Gauge,
    affinity_fallbacks: Series<Service, Counter>,
    /// Services written.
    pub updates: Counter,
    /// Writes of Services that failed.
    pub update_errors: Counter,
    config_loaded: Gauge,
    /// Events that nobody will see.
    pub events_lost: Counter,
    renewed_at: Gauge<f64, AtomicU64>,
    /// What is counted of BGP.
    pub bgp: BgpMetrics,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Announced {
    service: String,
    node: String,
    ip: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Steal {
    from: String,
    to: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lost {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Service {
    service: String,
}

impl Metrics {
    /// All metrics, registered under their full names: the registry must have no prefix.
    pub fn new(registry: &mut Registry) -> Self {
        let [garp_sent, garp_errors, na_sent, na_errors] = packet_counters(registry);
        let [additions, withdrawals, renewals, renewal_errors, step_errors] = address_counters(registry);
        Self {
            garp_sent,
            garp_errors,
            na_sent,
            na_errors,
            additions,
            withdrawals,
            renewals,
            renewal_errors,
            step_errors,
            wins: agent(registry, "election_wins", "Addresses for which this node was newly elected"),
            losses: agent(registry, "election_losses", "Addresses for which another node was newly elected"),
            announced: agent(registry, "announced", "1 while this node announces the address"),
            selector_state: agent(registry, "selector_state", "Which LBNodeAgent counts on this node"),
            slot_steals: agent(registry, "announce_slot_steal", "Entries of another node that this node replaced"),
            taken: agent(registry, "addresses_taken", "Addresses that this node began to hold"),
            lost: agent(registry, "addresses_lost", "Addresses that this node ceased to hold"),
            no_dummy: agent(
                registry,
                "virtual_interface_is_ifb",
                "1 where the kernel has no dummy interfaces and an ifb stands in",
            ),
            lifetime_beyond_lease: agent(
                registry,
                "lifetime_beyond_lease",
                "1 where validLifetime lets the local addresses of a killed agent outlive its lease",
            ),
            lease_healthy: election(registry, "lease_healthy", "1 while this node may hold local addresses"),
            lease_renewals: election(registry, "lease_renewals", "Renewals of the lease"),
            lease_failures: election(registry, "lease_renewal_failures", "Failed renewals of the lease"),
            winner_changes: election(registry, "winner_changes", "Local addresses that this node took or gave up"),
            members: election(registry, "member_count", "Nodes with a live lease"),
            subnets: election(registry, "subnet_count", "Subnets that live nodes serve"),
            local_subnets: election(registry, "local_subnet_count", "Subnets that this node serves"),
            affinity_fallbacks: election(registry, "affinity_fallback", "Elections without any node to prefer"),
            renewed_at: election(registry, "lease_renewed_timestamp_seconds", "When the lease was last renewed"),
            updates: client(registry, "updates", "Services brought up to date"),
            update_errors: client(registry, "update_errors", "Services that could not be brought up to date"),
            events_lost: agent(
                registry,
                "events_lost",
                "Events that found no room or that the API server did not take",
            ),
            config_loaded: client(registry, "config_loaded_bool", "1 once a configuration was accepted"),
            bgp: BgpMetrics::new(registry),
        }
    }

    /// This node announces the address for the Service, or ceases to.
    pub fn announced(&self, service: &str, node: &str, ip: IpAddr, is: bool) {
        let label = Announced { service: service.to_owned(), node: node.to_owned(), ip: ip.to_string() };
        if is {
            self.announced.get_or_create(&label).set(1);
        } else {
            self.announced.remove(&label);
        }
    }

    /// Which of [`SELECTOR_STATES`] holds.
    pub fn selector_state(&self, is: &'static str) {
        for state in SELECTOR_STATES {
            self.selector_state.get_or_create(&State { state }).set(i64::from(state == is));
        }
    }

    /// An entry of another node was replaced by our own.
    pub fn slot_stolen(&self, from: &str, to: &str) {
        self.slot_steals.get_or_create(&Steal { from: from.to_owned(), to: to.to_owned() }).inc();
    }

    /// This node began to hold an address.
    pub fn taken(&self, local: bool) {
        self.taken.get_or_create(&Kind { kind: kind(local) }).inc();
    }

    /// This node ceased to hold an address; without a reason somebody else took it off.
    pub fn lost(&self, local: bool, why: Option<Why>) {
        let reason = why.map_or("takenOff", Into::into);
        self.lost.get_or_create(&Lost { kind: kind(local), reason }).inc();
    }

    /// A local address of this Service came or went.
    pub fn winner_changed(&self, service: &str) {
        self.winner_changes.get_or_create(&Service { service: service.to_owned() }).inc();
    }

    /// The label is the address: that is what dashboards know.
    pub fn affinity_fell_back(&self, addr: IpAddr) {
        self.affinity_fallbacks.get_or_create(&Service { service: addr.to_string() }).inc();
    }

    /// Whether the virtual interface is an ifb.
    pub fn no_dummy(&self, is_ifb: bool) {
        self.no_dummy.set(i64::from(is_ifb));
    }

    /// Whether local addresses outlive the lease of a killed agent, because somebody wrote so.
    pub fn lifetime_beyond_lease(&self, beyond: bool) {
        self.lifetime_beyond_lease.set(i64::from(beyond));
    }

    /// Whether this node may hold local addresses.
    pub fn lease_healthy(&self, healthy: bool) {
        self.lease_healthy.set(i64::from(healthy));
    }

    /// The API server accepted a renewal, at this Unix time.
    pub fn lease_renewed(&self, at: f64) {
        self.lease_renewals.inc();
        self.renewed_at.set(at);
    }

    /// How many nodes are alive, the subnets they serve, and the subnets this node serves.
    pub fn members(&self, nodes: usize, subnets: usize, local_subnets: usize) {
        self.members.set(count(nodes));
        self.subnets.set(count(subnets));
        self.local_subnets.set(count(local_subnets));
    }

    /// A configuration was accepted.
    pub fn config_loaded(&self) {
        self.config_loaded.set(1);
    }
}

fn kind(local: bool) -> &'static str {
    if local { "local" } else { "virtual" }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn packet_counters(registry: &mut Registry) -> [Counter; 4] {
    [
        ("garp_sent", "Rounds of gratuitous ARP sent"),
        ("garp_errors", "Rounds of gratuitous ARP that could not be sent"),
        ("na_sent", "Unsolicited neighbour advertisements sent"),
        ("na_errors", "Unsolicited neighbour advertisements that could not be sent"),
    ]
    .map(|(name, help)| agent(registry, name, help))
}

fn address_counters(registry: &mut Registry) -> [Counter; 5] {
    [
        ("address_additions", "Addresses put on an interface"),
        ("address_withdrawals", "Addresses taken off an interface"),
        ("address_renewals", "Lifetimes of addresses prolonged"),
        ("address_renewal_errors", "Lifetimes of addresses that could not be prolonged"),
        ("kernel_errors", "Steps that the kernel refused"),
    ]
    .map(|(name, help)| agent(registry, name, help))
}

fn agent<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    add(registry, &format!("purelb_lbnodeagent_{name}"), help)
}

fn election<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    add(registry, &format!("purelb_election_{name}"), help)
}

fn client<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    add(registry, &format!("purelb_k8s_client_{name}"), help)
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests;
