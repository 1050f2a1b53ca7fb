//! From the Lease of a node agent to what its peers need of it to elect.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use purelb_core::members::LeaseView;

use super::lease::subnets;
use crate::annotations::{LEASE_CLAIMS, LEASE_HOST, LEASE_INSTANCE, LEASE_PREFIX, LEASE_SAW, LEASE_SETTLED};

/// The Lease of a node agent, as its peers see it; `None` if it is no agent's.
///
/// The node is the one in the name: who holds the Lease is not asked. `now` is by the reader's wall clock.
pub fn lease_view(lease: &Lease, now: Timestamp) -> Option<LeaseView> {
    let node = lease.metadata.name.as_deref()?.strip_prefix(LEASE_PREFIX).filter(|node| !node.is_empty())?;
    let spec = lease.spec.as_ref();
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let annotation = |key: &str| lease.annotations().get(key).map(String::as_str);
    Some(LeaseView {
        node: node.to_owned(),
        renewed: renewed.map(renew_text),
        age: renewed.and_then(|renewed| now.duration_since(renewed).try_into().ok()).unwrap_or_default(),
        duration: seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs),
        subnets: subnets(lease),
        claims: annotation(LEASE_CLAIMS).into_iter().flat_map(addresses).collect(),
        instance: annotation(LEASE_INSTANCE).unwrap_or_default().to_owned(),
        version: lease.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()),
        saw: annotation(LEASE_SAW).and_then(|saw| saw.parse().ok()),
        settled: annotation(LEASE_SETTLED) == Some("true"),
        host: annotation(LEASE_HOST).unwrap_or_default().to_owned(),
    })
}

/// The addresses in a list; what is none is passed over.
fn addresses(text: &str) -> impl Iterator<Item = IpAddr> {
    text.split(',').filter_map(|part| part.trim().parse::<IpAddr>().ok()).map(|addr| addr.to_canonical())
}

/// A time of renewal as the text by which renewals are told apart: microseconds are all that a Lease keeps of it.
pub fn renew_text(time: Timestamp) -> String {
    time.as_microsecond().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ipnet::IpNet;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::read::lease::tests::{lease, renewed};

    fn view(lease: &Lease) -> Option<LeaseView> {
        lease_view(lease, "2026-01-01T00:00:10Z".parse().unwrap())
    }

    #[test]
    fn peers_see_the_node_its_subnets_and_when_it_was_renewed() {
        let mut object = lease("purelb-node-a.b", "10.0.0.0/24,2001:db8::/64", renewed("2026-01-01T00:00:08.123456Z"));
        object.metadata.resource_version = Some("4711".to_owned());
        let annotations = object.metadata.annotations.as_mut().unwrap();
        annotations.insert("purelb.io/instance".to_owned(), "uid-1".to_owned());
        annotations.insert("purelb.io/saw".to_owned(), "4700".to_owned());
        annotations.insert("purelb.io/settled".to_owned(), "true".to_owned());
        annotations.insert("purelb.io/host".to_owned(), "kernel-1".to_owned());
        annotations.insert("purelb.io/claims".to_owned(), "::ffff:10.0.0.7,,nobody".to_owned());
        let expected = LeaseView {
            node: "a.b".to_owned(),
            renewed: Some(renew_text("2026-01-01T00:00:08.123456789Z".parse().unwrap())),
            age: Duration::from_micros(1_876_544),
            duration: Some(Duration::from_secs(10)),
            subnets: BTreeSet::from(["10.0.0.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()]),
            claims: BTreeSet::from(["10.0.0.7".parse().unwrap()]),
            instance: "uid-1".to_owned(),
            version: Some(4711),
            saw: Some(4700),
            settled: true,
            host: "kernel-1".to_owned(),
        };
        assert_eq!(view(&object), Some(expected));
    }

    #[rstest]
    #[case::somebody_elses("kube-scheduler")]
    #[case::of_no_node("purelb-node-")]
    fn other_leases_are_no_members(#[case] name: &str) {
        assert_eq!(view(&lease(name, "10.0.0.0/24", renewed("2026-01-01T00:00:08Z"))), None);
    }

    #[rstest]
    #[case::never_renewed(json!({"leaseDurationSeconds": 10}))]
    #[case::for_no_time(json!({"renewTime": "2026-01-01T00:00:10Z"}))]
    #[case::negative(json!({"renewTime": "2026-01-01T00:00:10Z", "leaseDurationSeconds": -1}))]
    #[case::empty(json!({}))]
    fn e08_a_lease_without_its_times_is_read_without_them(#[case] spec: Value) {
        let view = view(&lease("purelb-node-a", "", spec)).unwrap();
        assert!(view.renewed.is_none() || view.duration.is_none());
    }

    #[test]
    fn a_renewal_in_the_readers_future_has_no_age() {
        let object = lease("purelb-node-a", "", renewed("2026-01-01T01:00:10Z"));
        assert_eq!(view(&object).unwrap().age, Duration::ZERO);
    }

    #[test]
    fn s02_s03_only_whole_subnets_take_part_in_elections() {
        let text = "192.168.1.0/24,not-a-cidr,fd53:9ef0:8683::/64,,300.1.1.0/24, 10.0.0.0/8,010.0.0.0/8,10.1.0.0";
        let object = lease("purelb-node-a", text, renewed("2026-01-01T00:00:08Z"));
        let subnets: Vec<_> = view(&object).unwrap().subnets.iter().map(IpNet::to_string).collect();
        assert_eq!(subnets, ["192.168.1.0/24", "fd53:9ef0:8683::/64"]);
    }

    #[test]
    fn s04_the_first_256_subnets_count() {
        let many: Vec<_> = (0..266).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
        let object = lease("purelb-node-a", &many.join(","), renewed("2026-01-01T00:00:08Z"));
        let subnets = view(&object).unwrap().subnets;
        assert_eq!(subnets.len(), 256);
        assert!(!subnets.contains(&"10.1.0.0/24".parse().unwrap()));
    }
}
