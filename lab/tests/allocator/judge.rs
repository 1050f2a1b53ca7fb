//! The two laws of addresses, judged from what the API server shows of Services and from nothing else.
//!
//! A user may break sharing with an edit: two Services share an address, then one of them is given another key, or a
//! port the other has. Neither moves, because nobody asked for that. So two holders are related if they were ever seen
//! to be, and what counts as seen begins anew with every object.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::cluster::ips;

/// What allows a Service to share: a key, and ports that nobody else has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub key: String,
    pub ports: BTreeSet<(String, u64)>,
}

impl Claim {
    pub fn of(service: &Value) -> Self {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let port = |port: &Value| {
            (port["protocol"].as_str().unwrap_or("TCP").to_owned(), port["port"].as_u64().unwrap_or_default())
        };
        Self { key: annotation(service, "purelb.io/allow-shared-ip").to_owned(), ports: ports.map(port).collect() }
    }

    fn is_related_to(&self, other: &Self) -> bool {
        !self.key.is_empty() && self.key == other.key && self.ports.is_disjoint(&other.ports)
    }
}

/// One Service as it was last seen.
struct Seen {
    object: Value,
    addresses: Vec<IpAddr>,
    /// Every claim this object has made.
    claims: Vec<Claim>,
}

/// Everything seen so far.
#[derive(Default)]
pub struct Judge {
    services: BTreeMap<String, Seen>,
    holders: BTreeMap<IpAddr, BTreeSet<String>>,
    /// How many addresses were given out, to know that a run was not an idle one.
    pub given: usize,
    /// How many were found to be shared.
    pub shared: usize,
}

impl Judge {
    /// Takes note of one event of a watch and judges it.
    pub fn see(&mut self, kind: &str, service: &Value) -> Result<()> {
        let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut before = self.services.remove(&name);
        for address in before.iter().flat_map(|before| &before.addresses) {
            self.holders.entry(*address).or_default().remove(&name);
        }
        if kind == "DELETED" {
            return Ok(());
        }
        before = before.filter(|before| before.object["metadata"]["uid"] == service["metadata"]["uid"]);
        let had: Vec<IpAddr> = before.iter().flat_map(|before| before.addresses.clone()).collect();
        let seen = Seen::after(before.as_ref(), service);
        if let Some(before) = &before {
            stayed(before, &seen)?;
        }
        for address in seen.addresses.iter().filter(|address| !had.contains(address)) {
            self.gained(*address, &seen)?;
        }
        for address in &seen.addresses {
            self.holders.entry(*address).or_default().insert(name.clone());
        }
        self.services.insert(name, seen);
        Ok(())
    }

    /// No address has two unrelated holders.
    fn gained(&mut self, address: IpAddr, seen: &Seen) -> Result<()> {
        self.given += 1;
        for holder in self.holders.get(&address).into_iter().flatten() {
            let other = &self.services[holder];
            self.shared += 1;
            ensure!(
                other.is_related_to(seen),
                "{address} has two unrelated holders:\n{}\nand\n{}",
                brief(&other.object),
                brief(&seen.object)
            );
        }
        Ok(())
    }
}

impl Seen {
    fn after(before: Option<&Self>, service: &Value) -> Self {
        let mut claims: Vec<Claim> = before.map_or_else(Vec::new, |before| before.claims.clone());
        let claim = Claim::of(service);
        if !claims.contains(&claim) {
            claims.push(claim);
        }
        Self { object: service.clone(), addresses: addresses(service), claims }
    }

    fn is_related_to(&self, other: &Self) -> bool {
        self.claims.iter().any(|claim| other.claims.iter().any(|theirs| claim.is_related_to(theirs)))
    }
}

/// No address leaves a Service unless somebody asked for it. A write names the version it was decided on, so what was
/// asked stands in the version right before it.
fn stayed(before: &Seen, after: &Seen) -> Result<()> {
    let families = after.object["spec"]["ipFamilies"].to_string();
    let asked = annotation(&before.object, "purelb.io/re-evaluate") == "true"
        || after.object["spec"]["type"] != "LoadBalancer"
        || before.object["spec"]["type"] != "LoadBalancer";
    for address in before.addresses.iter().filter(|address| !after.addresses.contains(address)) {
        let unwanted = !families.contains(if address.is_ipv4() { "IPv4" } else { "IPv6" });
        ensure!(
            asked || unwanted,
            "{address} was taken away unasked:\n{}\nbecame\n{}",
            brief(&before.object),
            brief(&after.object)
        );
    }
    Ok(())
}

pub fn addresses(service: &Value) -> Vec<IpAddr> {
    ips(service).into_iter().filter_map(|ip| ip.parse().ok()).collect()
}

pub fn annotation<'a>(service: &'a Value, name: &str) -> &'a str {
    service["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

/// What matters of a Service, in a few lines.
pub fn brief(service: &Value) -> String {
    let (metadata, spec, status) = (&service["metadata"], &service["spec"], &service["status"]);
    format!(
        "{} uid={} version={} {}\n  asks {} families={} ports={}\n  has {:?} conditions={}",
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        spec["type"],
        metadata["annotations"],
        spec["ipFamilies"],
        spec["ports"],
        ips(service),
        status["conditions"],
    )
}

mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, uid: u64, key: &str, port: u64, ips: &[&str]) -> Value {
        let ingress: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "metadata": {"name": name, "uid": uid.to_string(), "annotations": {"purelb.io/allow-shared-ip": key}},
            "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": port}]},
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    fn verdict(events: &[(&str, Value)]) -> Result<()> {
        let mut judge = Judge::default();
        events.iter().try_for_each(|(kind, service)| judge.see(kind, service))
    }

    #[test]
    fn the_judge_finds_two_unrelated_holders() {
        let with = |key: [&str; 2], port: [u64; 2]| {
            let [a, b] = [("a", 0), ("b", 1)].map(|(name, n)| service(name, 1, key[n], port[n], &["10.0.0.1"]));
            verdict(&[("ADDED", a), ("ADDED", b)])
        };
        assert!(with(["k", "k"], [80, 443]).is_ok(), "they share");
        assert!(with(["k", "k"], [80, 80]).is_err(), "one port, twice");
        assert!(with(["k", "l"], [80, 443]).is_err(), "two keys");
        assert!(with(["", ""], [80, 443]).is_err(), "no key is not a key");
    }

    #[test]
    fn the_judge_finds_an_address_that_changed_unasked() {
        let has = |ips: &[&str]| service("a", 1, "", 80, ips);
        assert!(verdict(&[("ADDED", has(&["10.0.0.1"])), ("MODIFIED", has(&[]))]).is_err());
        assert!(verdict(&[("ADDED", has(&["10.0.0.1"])), ("MODIFIED", has(&["10.0.0.2"]))]).is_err());
        assert!(verdict(&[("ADDED", has(&["10.0.0.1", "fc00::1"])), ("MODIFIED", has(&["10.0.0.1"]))]).is_ok());
        let mut asks = has(&["10.0.0.1"]);
        asks["metadata"]["annotations"]["purelb.io/re-evaluate"] = json!("true");
        assert!(verdict(&[("ADDED", asks), ("MODIFIED", has(&["10.0.0.2"]))]).is_ok());
    }

    #[test]
    fn the_judge_lets_an_address_go_with_its_object() {
        let (old, new) = (service("a", 1, "", 80, &["10.0.0.1"]), service("a", 2, "", 80, &[]));
        let other = service("b", 3, "", 80, &["10.0.0.1"]);
        assert!(verdict(&[("ADDED", old.clone()), ("DELETED", old), ("ADDED", new), ("ADDED", other)]).is_ok());
    }
}
