//! Who announces a local address: the same rule in both releases, among those that each believes to be alive.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

/// What names of leases begin with.
pub const PREFIX: &str = "purelb-node-";

/// A node that is believed to be alive.
pub struct Member {
    pub node: String,
    /// Where it can announce. Members that gossip do not say, and count everywhere.
    pub subnets: Option<Vec<IpNet>>,
}

impl Member {
    /// The node of a lease, if the writer's clock says that it has not expired.
    pub fn of(lease: &Lease, now: Timestamp) -> Option<Self> {
        let name = lease.name_any();
        let node = name.strip_prefix(PREFIX).filter(|node| !node.is_empty())?;
        let spec = lease.spec.as_ref()?;
        let (renewed, seconds) = (spec.renew_time.as_ref()?.0, spec.lease_duration_seconds?);
        let life = Duration::from_secs(seconds.try_into().ok()?);
        let subnets = lease.annotations().get("purelb.io/subnets").map(String::as_str).unwrap_or_default();
        let subnets = subnets.split(',').filter_map(|text| text.parse().ok()).collect();
        (now < renewed + life).then(|| Self { node: node.to_owned(), subnets: Some(subnets) })
    }

    fn serves(&self, address: IpAddr) -> bool {
        self.subnets.as_ref().is_none_or(|subnets| subnets.iter().any(|subnet| subnet.contains(&address)))
    }
}

/// The member whose name and the address together have the smallest digest.
pub fn winner(members: &[Member], address: IpAddr) -> Option<&str> {
    let candidates = members.iter().filter(|member| member.serves(address)).map(|member| member.node.as_str());
    candidates.min_by_key(|node| Sha256::digest(format!("{node}#{address}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the compatibility specification.
    #[test]
    fn winners_are_those_of_the_specification() {
        let members = |names: [&str; 3]| names.map(|node| Member { node: node.to_owned(), subnets: None });
        for (address, expected) in [
            ("192.168.1.100", "node-c"),
            ("192.0.2.11", "node-a"),
            ("2001:db8::1", "node-b"),
            ("172.32.100.225", "node-c"),
        ] {
            let members = members(["node-a", "node-b", "node-c"]);
            assert_eq!(winner(&members, address.parse().unwrap()), Some(expected), "{address}");
        }
        assert_eq!(winner(&members(["node1", "node2", "node3"]), "192.168.1.100".parse().unwrap()), Some("node1"));
    }
}
