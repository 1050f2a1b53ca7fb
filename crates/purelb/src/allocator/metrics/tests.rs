//! What a Prometheus server sees, compared with the names, types and labels that users' dashboards rely on.

use std::net::IpAddr;

use super::*;
use crate::exposition::{promised, series, text};

/// Appendix C of the allocator's specification, and what is ours: who leads, and Events that were lost.
const PROMISED: &[(&str, &str, &str)] = &[
    ("purelb_address_pool_size", "gauge", "pool"),
    ("purelb_address_pool_addresses_in_use", "gauge", "pool"),
    ("purelb_address_pool_allocation_rejected_total", "counter", "pool,reason"),
    ("purelb_address_pool_multipool_allocations_total", "counter", "pool"),
    ("purelb_address_pool_multipool_partial_total", "counter", "pool"),
    ("purelb_address_pool_balance_pools_allocations_total", "counter", "pool"),
    ("purelb_servicegroups_out_of_scope", "gauge", "namespace,name,type"),
    ("purelb_allocator_sg_status_writes_total", "counter", "outcome"),
    ("purelb_allocator_sidecar_rpc_total", "counter", "socket,method,code"),
    ("purelb_allocator_sidecar_rpc_duration_seconds_count", "histogram", "socket,method"),
    ("purelb_k8s_client_updates_total", "counter", ""),
    ("purelb_k8s_client_update_errors_total", "counter", ""),
    ("purelb_k8s_client_config_loaded_bool", "gauge", ""),
    ("purelb_allocator_leader", "gauge", ""),
    ("purelb_allocator_events_lost_total", "counter", ""),
];

/// Everything that can happen, once.
fn eventful() -> (Registry, Metrics) {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    metrics.pool_size("default", 16);
    metrics.pool_in_use("default", 3);
    metrics.rejected(NO_POOL, &Reason::NoGroups { group: "default".to_owned() });
    metrics.multipool_allocated("default", true);
    metrics.balance_pools_allocated("default");
    metrics.out_of_scope([("shop", "pool", "local")]);
    metrics.sidecar_rpc("/run/ipam.sock", "Allocate", "OK", Duration::from_millis(3));
    (registry, metrics)
}

#[test]
fn names_types_and_labels_are_those_of_appendix_c() {
    let (registry, _) = eventful();
    // A histogram's count stands for it.
    let of_histogram = |line: &str| line.contains("_bucket{") || line.contains("_sum{");
    assert_eq!(series(&text(&registry), of_histogram), promised(PROMISED));
}

#[test]
fn a_pool_that_is_gone_takes_its_gauges_along_but_not_its_counters() {
    let (registry, metrics) = eventful();
    assert!(text(&registry).contains("purelb_address_pool_size{pool=\"default\"} 16\n"));
    metrics.pool_gone("default");
    let text = text(&registry);
    assert!(!text.contains("purelb_address_pool_size{") && !text.contains("purelb_address_pool_addresses_in_use{"));
    assert!(text.contains("purelb_address_pool_multipool_allocations_total{pool=\"default\"} 1\n"));
}

#[test]
fn an_allocator_that_no_longer_leads_says_nothing_of_pools() {
    let (registry, metrics) = eventful();
    metrics.leader(true);
    metrics.pools([("default", 16, 3), ("other", 8, 0)]);
    metrics.pools([("default", 16, 4)]);
    let leading = text(&registry);
    assert!(leading.contains("purelb_address_pool_addresses_in_use{pool=\"default\"} 4\n"));
    assert!(!leading.contains("pool=\"other\""), "{leading}");
    metrics.leader(false);
    let standby = text(&registry);
    assert!(!standby.contains("_size{") && !standby.contains("_in_use{") && !standby.contains("_out_of_scope{"));
    assert!(standby.contains("purelb_allocator_leader 0\n"), "{standby}");
}

#[test]
fn a_pool_larger_than_a_number_is_shown_as_the_largest_one() {
    let (registry, metrics) = eventful();
    metrics.pool_size("huge", 1 << 80);
    assert!(text(&registry).contains("purelb_address_pool_size{pool=\"huge\"} 18446744073709551615\n"));
}

#[test]
fn a_group_moved_into_scope_disappears() {
    let (registry, metrics) = eventful();
    metrics.out_of_scope([("shop", "other", "remote")]);
    let text = text(&registry);
    assert!(text.contains("{namespace=\"shop\",name=\"other\",type=\"remote\"} 1\n"));
    assert!(!text.contains("name=\"pool\""));
}

#[test]
fn every_outcome_of_a_status_write_counts_from_zero() {
    let (registry, metrics) = eventful();
    metrics.status_write("other");
    let text = text(&registry);
    for (outcome, count) in [("success", 0), ("conflict", 0), ("forbidden", 0), ("other", 1)] {
        let line = format!("purelb_allocator_sg_status_writes_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn ns_11_reasons_have_the_words_that_alerts_know() {
    let addr: IpAddr = "192.0.2.1".parse().unwrap();
    let (pool, service, group) = (String::new, String::new, String::new);
    let cases = [
        (Reason::Exhausted { pool: pool(), service: service(), family: Family::V4, size: 1 }, "exhausted"),
        (Reason::FamilyNotServed { pool: pool(), service: service(), family: Family::V6 }, "exhausted"),
        (Reason::SharingKeyBound { key: String::new(), bound: addr, addr }, "sharing_key_conflict"),
        (Reason::MultiPoolShared, "multipool_refused"),
        (Reason::MultiPoolSpans { first: pool(), second: pool() }, "multipool_pool_mismatch"),
        (Reason::GroupConfined { group: group(), namespace: String::new() }, "namespace_denied"),
        (Reason::AmbiguousNamespaceDefault { why: String::new() }, "ambiguous_namespace_default"),
        (Reason::GroupUnusable { group: group(), why: String::new() }, "no_usable_pool"),
        (Reason::UnknownPool { group: group() }, "unknown_pool"),
        (Reason::PinOutsideGroups { addr }, "other"),
    ];
    for (reason, label) in cases {
        assert_eq!(reason_label(&reason), label, "{reason}");
    }
}

#[test]
fn the_names_that_users_ask_for_become_labels_and_there_is_an_end_to_them() {
    let metrics = Metrics::new(&mut Registry::default());
    let names: Vec<String> = (0..60).map(|n| format!("typo-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        assert_eq!(metrics.stranger(name), if n < 50 { name } else { OTHER_POOL });
    }
    assert_eq!(metrics.stranger("typo-7"), "typo-7", "a name that is a label stays one");
    let metrics = Metrics::new(&mut Registry::default());
    let (longest, too_long) = ("x".repeat(63), "x".repeat(64));
    assert_eq!((metrics.stranger(&longest), metrics.stranger(&too_long)), (longest.as_str(), OTHER_POOL));
}
