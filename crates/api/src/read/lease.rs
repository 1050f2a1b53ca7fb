//! The Leases of node agents: who says to be alive, since when, and in which subnets it can announce local addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use purelb_core::addr::parse_subnet;
use purelb_core::reserved::Guard;

use crate::annotations::{LEASE_ADDRESSES, LEASE_API_SERVERS, LEASE_GATEWAYS, LEASE_PREFIX, LEASE_SUBNETS};

/// How many subnets of one Lease count: an annotation is longer than any node has networks.
const MOST_SUBNETS: usize = 256;
/// And how many addresses of one list.
const MOST_ADDRESSES: usize = 256;

/// The Lease of a node agent, reduced to what the allocator needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentLease {
    /// The node.
    pub node: String,
    /// The subnets it can announce in, in canonical form; what is no subnet is passed over.
    pub subnets: BTreeSet<IpNet>,
    /// The addresses that it says nobody may announce.
    pub guarded: BTreeMap<IpAddr, Guard>,
    /// When it was renewed and for how long; a Lease that does not say both is nobody's.
    pub renewed: Option<(Timestamp, Duration)>,
}

/// Reads a Lease; `None` if it is not a node agent's.
pub fn agent_lease(lease: &Lease) -> Option<AgentLease> {
    let node = lease.metadata.name.as_deref()?.strip_prefix(LEASE_PREFIX)?.to_owned();
    let renewed = lease.spec.as_ref().and_then(|spec| {
        let length = u64::try_from(spec.lease_duration_seconds?).ok()?;
        Some((spec.renew_time.as_ref()?.0, Duration::from_secs(length)))
    });
    Some(AgentLease { node, subnets: subnets(lease), guarded: lease_guards(lease), renewed })
}

/// The addresses that a Lease says nobody may announce: those of its Node, its gateways and its API servers.
pub fn lease_guards(lease: &Lease) -> BTreeMap<IpAddr, Guard> {
    let lists =
        [(LEASE_GATEWAYS, Guard::Gateway), (LEASE_API_SERVERS, Guard::ApiServer), (LEASE_ADDRESSES, Guard::Node)];
    let listed = |key: &str| lease.annotations().get(key).cloned().unwrap_or_default();
    let read = |(key, guard)| {
        let addrs: Vec<IpAddr> = listed(key).split(',').filter_map(|text| text.parse().ok()).collect();
        addrs.into_iter().take(MOST_ADDRESSES).map(move |addr| (addr.to_canonical(), guard))
    };
    lists.into_iter().flat_map(read).collect()
}

/// The subnets as agents of every release read them, so that all elect alike: an entry with blanks is none.
pub(super) fn subnets(lease: &Lease) -> BTreeSet<IpNet> {
    let text = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(LEASE_SUBNETS));
    let parts = text.into_iter().flat_map(|text| text.split(','));
    let plain = parts.filter(|part| !part.contains(char::is_whitespace));
    plain.filter_map(|part| parse_subnet(part).ok()).take(MOST_SUBNETS).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    pub(in crate::read) fn lease(name: &str, subnets: &str, spec: Value) -> Lease {
        let metadata = json!({"name": name, "namespace": "purelb", "annotations": {"purelb.io/subnets": subnets}});
        let object =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    pub(in crate::read) fn renewed(at: &str) -> Value {
        json!({"renewTime": at, "leaseDurationSeconds": 10})
    }

    #[test]
    fn b24_subnets_are_compared_by_meaning_not_by_text() {
        let text =
            "192.168.1.5/24, 192.168.1.0/24,2001:DB8::1/64,::ffff:10.0.0.0/104,not a subnet,10.0.0.0/33,,10.9.9.9";
        let read = agent_lease(&lease("purelb-node-a", text, renewed("2026-01-01T00:00:09.5Z"))).unwrap();
        let subnets: Vec<_> = read.subnets.iter().map(IpNet::to_string).collect();
        assert_eq!((read.node.as_str(), subnets.join(" ")), ("a", "10.0.0.0/8 192.168.1.0/24 2001:db8::/64".into()));
        let renewed = ("2026-01-01T00:00:09.5Z".parse().unwrap(), Duration::from_secs(10));
        assert_eq!(read.renewed, Some(renewed));
    }

    #[test]
    fn a_lease_names_what_nobody_may_announce() {
        let mut object = lease("purelb-node-a", "10.0.0.0/24", renewed("2026-01-01T00:00:09Z"));
        let annotations = object.metadata.annotations.as_mut().unwrap();
        for (key, text) in [
            ("purelb.io/gateways", "10.0.0.1,fe80::1,,nobody"),
            ("purelb.io/api-servers", "10.0.0.5,10.0.0.11"),
            ("purelb.io/node-addresses", "10.0.0.11"),
        ] {
            annotations.insert(key.to_owned(), text.to_owned());
        }
        let expected = [
            ("10.0.0.1", Guard::Gateway),
            ("10.0.0.5", Guard::ApiServer),
            ("10.0.0.11", Guard::Node),
            ("fe80::1", Guard::Gateway),
        ];
        let expected = expected.map(|(text, guard)| (text.parse().unwrap(), guard)).into();
        assert_eq!(agent_lease(&object).unwrap().guarded, expected);
    }

    #[test]
    fn other_leases_are_not_agents() {
        assert_eq!(agent_lease(&lease("kube-node-lease", "10.3.0.0/24", renewed("2026-01-01T00:00:09Z"))), None);
        assert_eq!(agent_lease(&Lease::default()), None);
    }

    #[rstest]
    #[case::never_renewed(json!({"leaseDurationSeconds": 10}))]
    #[case::for_no_time(json!({"renewTime": "2026-01-01T00:00:10Z"}))]
    #[case::negative(json!({"renewTime": "2026-01-01T00:00:10Z", "leaseDurationSeconds": -1}))]
    #[case::empty(json!({}))]
    fn a_lease_that_does_not_say_until_when_is_nobodys(#[case] spec: Value) {
        assert_eq!(agent_lease(&lease("purelb-node-a", "10.1.0.0/24", spec)).unwrap().renewed, None);
    }

    #[test]
    fn one_lease_cannot_flood_the_allocator() {
        let many: Vec<_> = (0..300).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
        let lease = lease("purelb-node-a", &many.join(","), renewed("2026-01-01T00:00:09Z"));
        assert_eq!(agent_lease(&lease).unwrap().subnets.len(), 256);
    }
}
