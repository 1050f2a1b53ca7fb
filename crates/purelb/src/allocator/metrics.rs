//! What the allocator counts, under the names and labels that PureLB's dashboards and alerts have always used.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Series;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use purelb_core::addr::Family;
use purelb_core::book::Slot;
use purelb_core::pool::Pool as CorePool;
use purelb_core::reason::Reason;
use purelb_core::report::Stock;

use super::desk::{Desk, Tally};

/// The pool of a refusal when the Service asked for none.
pub const NO_POOL: &str = "<none>";
/// The pool of a refusal when the addresses of a Service do not tell one.
pub const UNKNOWN_POOL: &str = "<unknown>";
/// The pool of a refusal when Services ask for ever more groups that there are none of, or for one with a very long name.
pub const OTHER_POOL: &str = "<other>";

/// How many names of groups that there are none of become labels, and how many characters such a name may have: what users
/// write is no reason for ever more series.
const STRANGERS: usize = 50;
const LONGEST_NAME: usize = 63;

/// Upper bounds in seconds, the customary ones.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A number that may be as large as an IPv6 pool.
type Amount = Gauge<u64, AtomicU64>;
type Durations = Series<RpcMethod, Histogram, fn() -> Histogram>;

/// The allocator's metrics; clones count into the same ones.
#[derive(Clone, Debug)]
pub struct Metrics {
    size: Series<Pool, Amount>,
    in_use: Series<Pool, Amount>,
    rejected: Series<Rejection, Counter>,
    multipool: Series<Pool, Counter>,
    multipool_partial: Series<Pool, Counter>,
    balanced: Series<Pool, Counter>,
    out_of_scope: Series<Group, Gauge>,
    status_writes: Series<StatusWrite, Counter>,
    rpcs: Series<Rpc, Counter>,
    rpc_seconds: Durations,
    updates: Counter,
    update_errors: Counter,
    config_loaded: Gauge,
    leader: Gauge,
    events_lost: Counter,
    /// What the gauges with labels show, so that what is no longer there can be taken away.
    shown: Arc<Mutex<Shown>>,
}

#[derive(Debug, Default)]
struct Shown {
    pools: BTreeSet<String>,
    out_of_scope: BTreeSet<Group>,
    /// Names of groups that there are none of, which are labels.
    strangers: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejection {
    pool: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct Group {
    namespace: String,
    name: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusWrite {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rpc {
    socket: String,
    method: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcMethod {
    socket: String,
    method: &'static str,
}

/// The metric's word for a reason. Dashboards know these words; the full list of reasons is in conditions and events.
pub fn reason_label(reason: &Reason) -> &'static str {
    match reason {
        // A pool without the family always counted as exhausted.
        Reason::Exhausted { .. } | Reason::FamilyNotServed { .. } => "exhausted",
        Reason::PortInUse { .. } => "port_conflict",
        Reason::SharingKeyBound { .. } | Reason::AddressInUse { .. } => "sharing_key_conflict",
        Reason::MultiPoolShared | Reason::MultiPoolAndBalancePools => "multipool_refused",
        Reason::MultiPoolSpans { .. } => "multipool_pool_mismatch",
        Reason::GroupConfined { .. } | Reason::NamespaceConfined { .. } => "namespace_denied",
        Reason::AmbiguousNamespaceDefault { .. } => "ambiguous_namespace_default",
        Reason::GroupUnusable { .. } | Reason::NetboxUnsupported { .. } | Reason::NoRanges => "no_usable_pool",
        Reason::NoGroups { .. } | Reason::UnknownPool { .. } => "unknown_pool",
        _ => "other",
    }
}

impl Metrics {
    /// All metrics, registered under their full names: the registry must have no prefix.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            size: add(registry, "purelb_address_pool_size", "Addresses in the pool"),
            in_use: add(registry, "purelb_address_pool_addresses_in_use", "Addresses of the pool in use"),
            rejected: add(registry, "purelb_address_pool_allocation_rejected", "Refused allocations by reason"),
            multipool: add(registry, "purelb_address_pool_multipool_allocations", "Multi-pool allocations"),
            multipool_partial: add(
                registry,
                "purelb_address_pool_multipool_partial",
                "Multi-pool allocations that did not get an address of every active range",
            ),
            balanced: add(registry, "purelb_address_pool_balance_pools_allocations", "Balanced allocations"),
            out_of_scope: add(
                registry,
                "purelb_servicegroups_out_of_scope",
                "ServiceGroups ignored because they are outside the namespace PureLB is installed in",
            ),
            status_writes: add(registry, "purelb_allocator_sg_status_writes", "Writes of ServiceGroup status"),
            rpcs: add(registry, "purelb_allocator_sidecar_rpc", "Calls to external IPAM by gRPC code"),
            rpc_seconds: add_durations(registry),
            updates: add(registry, "purelb_k8s_client_updates", "Kubernetes objects brought up to date"),
            update_errors: add(
                registry,
                "purelb_k8s_client_update_errors",
                "Kubernetes objects that could not be brought up to date",
            ),
            config_loaded: add(registry, "purelb_k8s_client_config_loaded_bool", "1 once a configuration was accepted"),
            leader: add(registry, "purelb_allocator_leader", "1 while this allocator leads"),
            events_lost: add(registry, "purelb_allocator_events_lost", "Events that were dropped or not accepted"),
            shown: Arc::default(),
        };
        // An alert on a rate needs a zero to start from.
        for outcome in ["success", "conflict", "forbidden", "other"] {
            drop(metrics.status_writes.get_or_create(&StatusWrite { outcome }));
        }
        metrics
    }

    /// The pool has so many addresses.
    pub fn pool_size(&self, pool: &str, addresses: u128) {
        self.size.get_or_create(&Pool::named(pool)).set(saturated(addresses));
    }

    /// So many addresses of the pool are in use.
    pub fn pool_in_use(&self, pool: &str, addresses: u128) {
        self.in_use.get_or_create(&Pool::named(pool)).set(saturated(addresses));
    }

    /// There is no such pool any more; what was counted stays.
    pub fn pool_gone(&self, pool: &str) {
        self.size.remove(&Pool::named(pool));
        self.in_use.remove(&Pool::named(pool));
    }

    /// An allocation was refused; the pool is the group that was asked for, [`NO_POOL`], [`UNKNOWN_POOL`] or [`OTHER_POOL`].
    pub fn rejected(&self, pool: &str, reason: &Reason) {
        let label = Rejection { pool: pool.to_owned(), reason: reason_label(reason) };
        self.rejected.get_or_create(&label).inc();
    }

    /// A Service got addresses of several ranges; partial when an active range had none for it.
    pub fn multipool_allocated(&self, pool: &str, partial: bool) {
        self.multipool.get_or_create(&Pool::named(pool)).inc();
        if partial {
            self.multipool_partial.get_or_create(&Pool::named(pool)).inc();
        }
    }

    /// A Service got an address of the least used range.
    pub fn balance_pools_allocated(&self, pool: &str) {
        self.balanced.get_or_create(&Pool::named(pool)).inc();
    }

    /// All groups that are ignored for their namespace: namespace, name, and `local`, `remote` or `external`.
    pub fn out_of_scope<'a>(&self, groups: impl IntoIterator<Item = (&'a str, &'a str, &'static str)>) {
        let group = |(namespace, name, r#type): (&str, &str, _)| Group {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            r#type,
        };
        let groups: BTreeSet<Group> = groups.into_iter().map(group).collect();
        let mut shown = self.shown();
        for group in shown.out_of_scope.difference(&groups) {
            self.out_of_scope.remove(group);
        }
        for group in &groups {
            self.out_of_scope.get_or_create(group).set(1);
        }
        shown.out_of_scope = groups;
    }

    /// The status of a ServiceGroup was written, or not: `success`, `conflict`, `forbidden` or `other`.
    pub fn status_write(&self, outcome: &'static str) {
        self.status_writes.get_or_create(&StatusWrite { outcome }).inc();
    }

    /// An external IPAM was called and answered with this gRPC code, such as `OK`.
    pub fn sidecar_rpc(&self, socket: &str, method: &'static str, code: &str, took: Duration) {
        let socket = socket.to_owned();
        self.rpcs.get_or_create(&Rpc { socket: socket.clone(), method, code: code.to_owned() }).inc();
        self.rpc_seconds.get_or_create(&RpcMethod { socket, method }).observe(took.as_secs_f64());
    }

    /// An object was brought up to date.
    pub fn updated(&self) {
        self.updates.inc();
    }

    /// An object could not be brought up to date.
    pub fn update_failed(&self) {
        self.update_errors.inc();
    }

    /// A configuration was accepted.
    pub fn config_loaded(&self) {
        self.config_loaded.set(1);
    }

    /// The counter of Events that nobody will see.
    pub fn events_lost(&self) -> Counter {
        self.events_lost.clone()
    }

    /// Whether this allocator leads. One that does not knows nothing of the pools, and says nothing of them.
    pub fn leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
        if !leads {
            self.pools([]);
            self.out_of_scope([]);
        }
    }

    /// All pools with their size and how much of each is in use.
    pub fn pools<'a>(&self, pools: impl IntoIterator<Item = (&'a str, u128, u128)>) {
        let mut names = BTreeSet::new();
        for (pool, size, in_use) in pools {
            self.pool_size(pool, size);
            self.pool_in_use(pool, in_use);
            names.insert(pool.to_owned());
        }
        let mut shown = self.shown();
        shown.pools.difference(&names).for_each(|pool| self.pool_gone(pool));
        shown.pools = names;
    }

    /// Shows what the leader has on its desk, if that has changed, and counts what it has refused since the last time.
    pub fn observe(&self, desk: &mut Desk) {
        if !desk.take_unshown() {
            return;
        }
        self.pools(desk.book().slots().filter_map(|slot| {
            let (size, in_use) = amounts(slot, desk.stock(&slot.group.name))?;
            Some((slot.group.name.as_str(), size, in_use))
        }));
        self.out_of_scope(desk.groups().ignored());
        if desk.is_deciding() {
            self.config_loaded();
        }
        for tally in desk.take_tallies() {
            match tally {
                Tally::Refused(asked, reason) => self.rejected(self.label(desk, asked.as_deref(), &reason), &reason),
                Tally::MultiPool { group, partial } => self.multipool_allocated(&group, partial),
                Tally::Balanced(group) => self.balance_pools_allocated(&group),
            }
        }
    }

    /// The pool of a refusal: the name that was asked for.
    fn label<'a>(&self, desk: &Desk, asked: Option<&'a str>, reason: &Reason) -> &'a str {
        match asked {
            _ if matches!(reason, Reason::MultiPoolSpans { .. }) => UNKNOWN_POOL,
            None => NO_POOL,
            Some(asked) if desk.groups().has(asked) => asked,
            Some(asked) => self.stranger(asked),
        }
    }

    /// The label for a name that is no group's.
    fn stranger<'a>(&self, name: &'a str) -> &'a str {
        let mut shown = self.shown();
        let known = shown.strangers.contains(name);
        if !known && (shown.strangers.len() >= STRANGERS || name.chars().count() > LONGEST_NAME) {
            return OTHER_POOL;
        }
        shown.strangers.insert(name.to_owned());
        name
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn named(pool: &str) -> Self {
        Self { pool: pool.to_owned() }
    }
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn add_durations(registry: &mut Registry) -> Durations {
    let durations: Durations = Series::new_with_constructor(|| Histogram::new(SECONDS));
    let help = "Duration of calls to external IPAM";
    registry.register("purelb_allocator_sidecar_rpc_duration_seconds", help, durations.clone());
    durations
}

/// How many addresses a group has and how many are in use. How much an external IPAM has, only it can tell.
fn amounts(slot: &Slot, stock: Option<&Stock>) -> Option<(u128, u128)> {
    if slot.group.ranges().is_some() {
        return Some((size(&slot.pool), in_use(&slot.pool)));
    }
    let stock = stock?;
    let sum = |v4: u64, v6: u64| u128::from(v4) + u128::from(v6);
    Some((stock.size.map_or(0, |(v4, v6)| sum(v4, v6)), sum(stock.in_use_v4, stock.in_use_v6)))
}

fn size(pool: &CorePool) -> u128 {
    pool.size(Family::V4).saturating_add(pool.size(Family::V6))
}

fn in_use(pool: &CorePool) -> u128 {
    (pool.in_use(Family::V4) + pool.in_use(Family::V6)) as u128
}

fn saturated(addresses: u128) -> u64 {
    u64::try_from(addresses).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
