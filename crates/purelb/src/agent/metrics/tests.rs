//! What a Prometheus server sees of an agent, compared with the names, types and labels that users' dashboards rely on.

use super::*;
use crate::exposition::{promised, series, text};

/// Section 9.1 of the agent's specification.
const PROMISED: &[(&str, &str, &str)] = &[
    ("purelb_lbnodeagent_announced", "gauge", "service,node,ip"),
    ("purelb_lbnodeagent_selector_state", "gauge", "state"),
    ("purelb_lbnodeagent_garp_sent_total", "counter", ""),
    ("purelb_lbnodeagent_garp_errors_total", "counter", ""),
    ("purelb_lbnodeagent_na_sent_total", "counter", ""),
    ("purelb_lbnodeagent_na_errors_total", "counter", ""),
    ("purelb_lbnodeagent_address_additions_total", "counter", ""),
    ("purelb_lbnodeagent_address_withdrawals_total", "counter", ""),
    ("purelb_lbnodeagent_address_renewals_total", "counter", ""),
    ("purelb_lbnodeagent_address_renewal_errors_total", "counter", ""),
    ("purelb_lbnodeagent_election_wins_total", "counter", ""),
    ("purelb_lbnodeagent_election_losses_total", "counter", ""),
    ("purelb_lbnodeagent_announce_slot_steal_total", "counter", "from,to"),
    ("purelb_election_lease_healthy", "gauge", ""),
    ("purelb_election_lease_renewals_total", "counter", ""),
    ("purelb_election_lease_renewal_failures_total", "counter", ""),
    ("purelb_election_winner_changes_total", "counter", "service"),
    ("purelb_election_member_count", "gauge", ""),
    ("purelb_election_subnet_count", "gauge", ""),
    ("purelb_election_local_subnet_count", "gauge", ""),
    ("purelb_election_affinity_fallback_total", "counter", "service"),
    ("purelb_k8s_client_updates_total", "counter", ""),
    ("purelb_k8s_client_update_errors_total", "counter", ""),
    ("purelb_k8s_client_config_loaded_bool", "gauge", ""),
];

/// What is ours.
const OURS: &[(&str, &str, &str)] = &[
    ("purelb_lbnodeagent_kernel_errors_total", "counter", ""),
    ("purelb_lbnodeagent_addresses_taken_total", "counter", "kind"),
    ("purelb_lbnodeagent_addresses_lost_total", "counter", "kind,reason"),
    ("purelb_lbnodeagent_virtual_interface_is_ifb", "gauge", ""),
    ("purelb_lbnodeagent_lifetime_beyond_lease", "gauge", ""),
    ("purelb_lbnodeagent_events_lost_total", "counter", ""),
    ("purelb_election_lease_renewed_timestamp_seconds", "gauge", ""),
];

const ADDR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// Every series that has labels, once; the others are there from the start.
fn eventful() -> (Registry, Metrics) {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    metrics.announced("shop/web", "node1", ADDR, true);
    metrics.selector_state("configured");
    metrics.slot_stolen("node2", "node1");
    metrics.taken(true);
    metrics.lost(true, Some(Why::Fenced));
    metrics.winner_changed("shop/web");
    metrics.affinity_fell_back(ADDR);
    (registry, metrics)
}

#[test]
fn names_types_and_labels_are_those_of_section_9_1() {
    let (registry, _) = eventful();
    // BGP's are tested where they are.
    let of_bgp = |line: &str| ["k8gobgp_", "purelb_bgp_"].iter().any(|other| line.starts_with(other));
    assert_eq!(series(&text(&registry), of_bgp), promised(PROMISED.iter().chain(OURS)));
}

#[test]
fn an_address_is_announced_or_has_no_sample_at_all() {
    let (registry, metrics) = eventful();
    let line = "purelb_lbnodeagent_announced{service=\"shop/web\",node=\"node1\",ip=\"192.0.2.1\"} 1\n";
    assert!(text(&registry).contains(line));
    metrics.announced("shop/web", "node1", ADDR, false);
    assert!(!text(&registry).contains("purelb_lbnodeagent_announced{"));
}

#[test]
fn no_state_of_the_selector_is_shown_before_there_is_one_and_then_exactly_one_holds() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    assert!(!text(&registry).contains("purelb_lbnodeagent_selector_state{"));
    for is in SELECTOR_STATES {
        metrics.selector_state(is);
        let text = text(&registry);
        for state in SELECTOR_STATES {
            let line = format!("purelb_lbnodeagent_selector_state{{state=\"{state}\"}} {}\n", i32::from(state == is));
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}

#[test]
fn a_fallback_of_the_affinity_is_labelled_with_the_address() {
    let (registry, _) = eventful();
    assert!(text(&registry).contains("purelb_election_affinity_fallback_total{service=\"192.0.2.1\"} 1\n"));
}
