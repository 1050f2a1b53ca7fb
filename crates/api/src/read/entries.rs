//! From the pools of a group to the entries that can be used, each judged by itself.

use ipnet::IpNet;
use purelb_core::addr::{AddrRange, Aggregation, Family, parse_subnet};
use purelb_core::group::{Entry, Ranges};
use purelb_core::reason::Reason;

use super::Notes;
use crate::service_group::{AddressPool, LocalPools, Pools, ServiceGroupSpec};

/// v1's single range, whose family only its text tells. An empty text is as good as none.
#[derive(Default)]
pub struct Flat<'a> {
    pool: &'a str,
    subnet: &'a str,
    aggregation: Option<&'a str>,
}

impl<'a> Flat<'a> {
    /// The range directly under `spec`, as the oldest documents have it.
    pub fn of_spec(spec: &'a ServiceGroupSpec) -> Self {
        Self::new(&spec.pool, &spec.subnet, &spec.aggregation)
    }

    /// The range under `spec.local`, as PureLB's first releases have it.
    pub fn of_local(local: &'a LocalPools) -> Self {
        Self::new(&local.pool, &local.subnet, &local.aggregation)
    }

    fn new(pool: &'a Option<String>, subnet: &'a Option<String>, aggregation: &'a Option<String>) -> Self {
        let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
        Flat { pool: text(pool), subnet: text(subnet), aggregation: aggregation.as_deref() }
    }

    /// Whether there is anything to read.
    pub fn is_written(&self) -> bool {
        !self.pool.is_empty() || !self.subnet.is_empty()
    }
}

/// Reads all pools under `path`; `None` if no entry of them can be used. `lenient` is for automatic groups, which 0.13
/// let say more.
pub fn ranges(path: &str, pools: &Pools, flat: Flat, lenient: bool, notes: &mut Notes) -> Option<Ranges> {
    if pools.multi_pool && pools.balance_pools {
        notes.problem(path, Reason::MultiPoolAndBalancePools);
    }
    let mut reader = Reader { lenient, notes };
    let mut ranges = Ranges {
        v4: reader.family(path, Family::V4, &pools.v4pools, pools.v4pool.as_ref()),
        v6: reader.family(path, Family::V6, &pools.v6pools, pools.v6pool.as_ref()),
        multi_pool: pools.multi_pool,
        balance_pools: pools.balance_pools,
    };
    match reader.flat(path, pools, &flat) {
        Some(entry) if entry.range.family() == Family::V4 => ranges.v4.push(entry),
        Some(entry) => ranges.v6.push(entry),
        None => {}
    }
    if !flat.is_written() && [Family::V4, Family::V6].into_iter().all(|family| !has(pools, family)) {
        notes.problem(path, Reason::NoRanges);
    }
    notes.warnings.extend(ranges.merged());
    let usable = !ranges.v4.is_empty() || !ranges.v6.is_empty();
    usable.then_some(ranges)
}

/// Whether pools of a family are written, usable or not.
fn has(pools: &Pools, family: Family) -> bool {
    match family {
        Family::V4 => pools.v4pool.is_some() || !pools.v4pools.is_empty(),
        Family::V6 => pools.v6pool.is_some() || !pools.v6pools.is_empty(),
    }
}

struct Reader<'a> {
    lenient: bool,
    notes: &'a mut Notes,
}

impl Reader<'_> {
    /// The entries of one family: the list in its order, then the single pool.
    fn family(&mut self, path: &str, family: Family, list: &[AddressPool], single: Option<&AddressPool>) -> Vec<Entry> {
        let name = family.short();
        let listed = list.iter().enumerate().map(|(i, pool)| (format!("{path}.{name}pools[{i}]"), pool));
        let single = single.map(|pool| (format!("{path}.{name}pool"), pool));
        listed.chain(single).filter_map(|(field, pool)| self.entry(field, family, pool)).collect()
    }

    fn entry(&mut self, field: String, wanted: Family, pool: &AddressPool) -> Option<Entry> {
        let range = self.range(&field, &pool.pool);
        let subnet = self.subnet(&field, &pool.subnet);
        let range = range?;
        if range.family() != wanted {
            self.notes.problem(format!("{field}.pool"), Reason::RangeWrongFamily { range, wanted });
            return None;
        }
        self.complete(field, &pool.pool, range, subnet, pool.aggregation.as_deref())
    }

    fn flat(&mut self, path: &str, pools: &Pools, flat: &Flat) -> Option<Entry> {
        let beside_pools = has(pools, Family::V4) || has(pools, Family::V6);
        if flat.pool.is_empty() && (beside_pools || !flat.is_written()) {
            return None;
        }
        let range = self.range(path, flat.pool);
        let subnet = self.subnet(path, flat.subnet);
        let range = range?;
        if has(pools, range.family()) {
            let reason = Reason::LegacyRangeBesidePool { family: range.family() };
            self.notes.problem(format!("{path}.pool"), reason);
            return None;
        }
        self.complete(path.to_owned(), flat.pool, range, subnet, flat.aggregation)
    }

    fn range(&mut self, field: &str, text: &str) -> Option<AddrRange> {
        let missing = Reason::FieldMissing { field: "pool", example: "a range such as 192.0.2.10-192.0.2.20" };
        let range = if text.is_empty() { Err(missing) } else { AddrRange::parse(text) };
        self.notes.accept(format!("{field}.pool"), range)
    }

    fn subnet(&mut self, field: &str, text: &str) -> Option<IpNet> {
        let missing = Reason::FieldMissing { field: "subnet", example: "a network such as 192.0.2.0/24" };
        let subnet = if text.is_empty() { Err(missing) } else { parse_subnet(text) };
        self.notes.accept(format!("{field}.subnet"), subnet)
    }

    /// The last checks, which need to know the range.
    fn complete(
        &mut self,
        field: String,
        text: &str,
        range: AddrRange,
        subnet: Option<IpNet>,
        aggregation: Option<&str>,
    ) -> Option<Entry> {
        let subnet =
            subnet.filter(|subnet| self.notes.accept(format!("{field}.pool"), range.within(*subnet)).is_some());
        let aggregation = self.aggregation(&field, aggregation, range.family());
        Some(Entry { field, text: text.to_owned(), range, subnet: subnet?, aggregation: aggregation? })
    }

    /// Reads `aggregation`; in automatic groups as leniently as 0.13, which stored any text.
    fn aggregation(&mut self, field: &str, text: Option<&str>, family: Family) -> Option<Aggregation> {
        let field = format!("{field}.aggregation");
        match text {
            None => Some(Aggregation::Subnet),
            Some("") if self.lenient => Some(Aggregation::Subnet),
            Some(digits) if self.lenient && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.notes.warning(&field, Reason::AggregationWithoutSlash { text: digits.to_owned() });
                self.notes.accept(field, Aggregation::parse(&format!("/{digits}"), family))
            }
            Some(text) => self.notes.accept(field, Aggregation::parse(text, family)),
        }
    }
}
