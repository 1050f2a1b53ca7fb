//! The subnets in which some live node can announce local addresses, as the node agents' Leases say.

use std::collections::BTreeSet;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use purelb_core::addr::parse_subnet;

use crate::annotations::{LEASE_PREFIX, LEASE_SUBNETS};

/// How many subnets of one Lease count: an annotation is longer than any node has networks.
const MOST_SUBNETS: usize = 256;

/// The subnets in the Leases of live node agents, in canonical form; what is no subnet is passed over.
pub fn active_subnets<'a>(leases: impl IntoIterator<Item = &'a Lease>, now: Timestamp) -> BTreeSet<IpNet> {
    leases.into_iter().filter(|lease| is_agents(lease) && is_live(lease, now)).flat_map(subnets).collect()
}

fn is_agents(lease: &Lease) -> bool {
    lease.metadata.name.as_deref().is_some_and(|name| name.starts_with(LEASE_PREFIX))
}

/// A Lease that does not say when it was renewed, or for how long, is nobody's.
fn is_live(lease: &Lease, now: Timestamp) -> bool {
    let expiry = lease.spec.as_ref().and_then(|spec| {
        let length = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
        // A time beyond the end of the calendar is as good as none.
        Some(spec.renew_time.as_ref()?.0.checked_add(length).unwrap_or(Timestamp::MIN))
    });
    expiry.is_some_and(|expiry| now <= expiry)
}

fn subnets(lease: &Lease) -> impl Iterator<Item = IpNet> + use<'_> {
    let text = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(LEASE_SUBNETS));
    let parts = text.into_iter().flat_map(|text| text.split(','));
    parts.filter_map(|part| parse_subnet(part).ok()).take(MOST_SUBNETS)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn lease(name: &str, subnets: &str, spec: Value) -> Lease {
        let metadata = json!({"name": name, "namespace": "purelb", "annotations": {"purelb.io/subnets": subnets}});
        let object =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn renewed(at: &str) -> Value {
        json!({"renewTime": at, "leaseDurationSeconds": 10})
    }

    fn active(leases: &[Lease]) -> Vec<String> {
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        active_subnets(leases, now).iter().map(IpNet::to_string).collect()
    }

    #[test]
    fn b24_subnets_are_compared_by_meaning_not_by_text() {
        let text =
            "192.168.1.5/24, 192.168.1.0/24,2001:DB8::1/64,::ffff:10.0.0.0/104,not a subnet,10.0.0.0/33,,10.9.9.9";
        let lease = lease("purelb-node-a", text, renewed("2026-01-01T00:00:09.5Z"));
        assert_eq!(active(&[lease]), ["10.0.0.0/8", "192.168.1.0/24", "2001:db8::/64"]);
    }

    #[test]
    fn the_subnets_of_all_live_nodes_come_together() {
        let a = lease("purelb-node-a", "10.1.0.0/24", renewed("2026-01-01T00:00:09Z"));
        let b = lease("purelb-node-b", "10.2.0.0/24,10.1.0.0/24", renewed("2026-01-01T00:00:08Z"));
        let other = lease("kube-node-lease", "10.3.0.0/24", renewed("2026-01-01T00:00:09Z"));
        assert_eq!(active(&[a, b, other]), ["10.1.0.0/24", "10.2.0.0/24"]);
    }

    #[rstest]
    #[case::to_the_last_moment(renewed("2026-01-01T00:00:00Z"), true)]
    #[case::expired(renewed("2025-12-31T23:59:59.999999Z"), false)]
    #[case::never_renewed(json!({"leaseDurationSeconds": 10}), false)]
    #[case::for_no_time(json!({"renewTime": "2026-01-01T00:00:10Z"}), false)]
    #[case::negative(json!({"renewTime": "2026-01-01T00:00:10Z", "leaseDurationSeconds": -1}), false)]
    #[case::end_of_time(json!({"renewTime": "9999-12-30T00:00:00Z", "leaseDurationSeconds": i32::MAX}), false)]
    #[case::empty(json!({}), false)]
    fn only_a_lease_that_still_runs_counts(#[case] spec: Value, #[case] counts: bool) {
        assert_eq!(!active(&[lease("purelb-node-a", "10.1.0.0/24", spec)]).is_empty(), counts);
    }

    #[test]
    fn one_lease_cannot_flood_the_allocator() {
        let many: Vec<_> = (0..300).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
        let lease = lease("purelb-node-a", &many.join(","), renewed("2026-01-01T00:00:09Z"));
        assert_eq!(active(&[lease]).len(), 256);
    }
}
