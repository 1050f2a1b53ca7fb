//! The two laws of addresses, judged from what the API server shows of Services and from nothing else.
//!
//! A user may break sharing with an edit: two Services share an address, then one of them is given another key, or a
//! port the other has. From then on they are in conflict, until one of them has lost the address. Nobody is excused: in the
//! end there is no conflict left, and none begins with an allocator's write, unless an edit crossed it. Such an edit is not
//! long ago, and neither is a conflict over which a Service loses its address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

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

    pub fn is_related_to(&self, other: &Self) -> bool {
        !self.key.is_empty() && self.key == other.key && self.ports.is_disjoint(&other.ports)
    }
}

/// How far behind the latest edit an allocator's write may be: no leader writes for longer without a renewal of its lease,
/// and the rest is for a busy machine.
const CROSSING: Duration = Duration::from_secs(30);

/// One Service as it was last seen.
struct Seen {
    object: Value,
    addresses: Vec<IpAddr>,
    claim: Claim,
    /// What this object claimed before, and until when.
    past: Vec<(Claim, Instant)>,
}

/// Everything seen so far.
#[derive(Default)]
pub struct Judge {
    services: BTreeMap<String, Seen>,
    holders: BTreeMap<IpAddr, BTreeSet<String>>,
    /// When two holders of an address were last in conflict; each is named.
    conflicts: BTreeMap<(IpAddr, String), Instant>,
    /// How many addresses were given out, to know that a run was not an idle one.
    pub given: usize,
    /// How many were found to be shared.
    pub shared: usize,
    /// How many were lost to somebody who had them for longer.
    pub lost: usize,
}

impl Judge {
    /// Takes note of one event of a watch and judges it.
    pub fn see(&mut self, kind: &str, service: &Value, at: Instant) -> Result<()> {
        let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let held = self.services.get(&name).map(|before| before.addresses.clone()).unwrap_or_default();
        held.iter().for_each(|address| self.note_conflicts(*address, at));
        let mut before = self.services.remove(&name);
        for address in held {
            self.holders.entry(address).or_default().remove(&name);
        }
        if kind == "DELETED" {
            return Ok(());
        }
        before = before.filter(|before| before.object["metadata"]["uid"] == service["metadata"]["uid"]);
        let had: Vec<IpAddr> = before.iter().flat_map(|before| before.addresses.clone()).collect();
        let seen = Seen::after(before.as_ref(), service, at);
        if let Some(before) = &before {
            self.stayed(&name, before, &seen, at)?;
        }
        for address in seen.addresses.iter().filter(|address| !had.contains(address)) {
            self.gained(*address, &seen, at)?;
        }
        let addresses = seen.addresses.clone();
        self.services.insert(name.clone(), seen);
        for address in addresses {
            self.holders.entry(address).or_default().insert(name.clone());
            self.note_conflicts(address, at);
        }
        Ok(())
    }

    /// The conflicts that are left.
    pub fn unsettled(&self) -> Vec<String> {
        let pairs = self.holders.keys().flat_map(|address| self.in_conflict(*address).map(move |pair| (address, pair)));
        pairs.map(|(address, (a, b))| format!("{address}:\n{}\nand\n{}", brief(&a.object), brief(&b.object))).collect()
    }

    fn in_conflict(&self, address: IpAddr) -> impl Iterator<Item = (&Seen, &Seen)> {
        let holders: Vec<_> =
            self.holders.get(&address).into_iter().flatten().filter_map(|name| self.services.get(name)).collect();
        let pairs = holders.clone().into_iter().enumerate();
        let pairs = pairs.flat_map(move |(n, a)| holders.clone().into_iter().skip(n + 1).map(move |b| (a, b)));
        pairs.filter(|(a, b)| !a.claim.is_related_to(&b.claim))
    }

    fn note_conflicts(&mut self, address: IpAddr, at: Instant) {
        let name = |seen: &Seen| seen.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names: Vec<_> = self.in_conflict(address).flat_map(|(a, b)| [name(a), name(b)]).collect();
        self.conflicts.extend(names.into_iter().map(|name| ((address, name), at)));
    }

    /// No address has two unrelated holders, unless the other was edited while the write was on its way.
    fn gained(&mut self, address: IpAddr, seen: &Seen, at: Instant) -> Result<()> {
        self.given += 1;
        for holder in self.holders.get(&address).into_iter().flatten() {
            let other = &self.services[holder];
            self.shared += 1;
            ensure!(
                other.claims_at(at).any(|claim| claim.is_related_to(&seen.claim)),
                "{address} has two unrelated holders:\n{}\nand\n{}",
                brief(&other.object),
                brief(&seen.object)
            );
        }
        Ok(())
    }

    /// No address leaves a Service unless somebody asked for it, or it is in conflict. A write names the version it was
    /// decided on, so what was asked stands in the version right before it.
    fn stayed(&mut self, name: &str, before: &Seen, after: &Seen, at: Instant) -> Result<()> {
        let families = after.object["spec"]["ipFamilies"].to_string();
        let asked = annotation(&before.object, "purelb.io/re-evaluate") == "true"
            || after.object["spec"]["type"] != "LoadBalancer"
            || before.object["spec"]["type"] != "LoadBalancer";
        for address in before.addresses.iter().filter(|address| !after.addresses.contains(address)) {
            let unwanted = !families.contains(if address.is_ipv4() { "IPv4" } else { "IPv6" });
            let conflict = self.conflicts.get(&(*address, name.to_owned())).is_some_and(|last| *last + CROSSING > at);
            self.lost += usize::from(conflict && !asked && !unwanted);
            ensure!(
                asked || unwanted || conflict,
                "{address} was taken away unasked:\n{}\nbecame\n{}",
                brief(&before.object),
                brief(&after.object)
            );
        }
        Ok(())
    }
}

impl Seen {
    fn after(before: Option<&Self>, service: &Value, at: Instant) -> Self {
        let mut past: Vec<_> = before.map_or_else(Vec::new, |before| before.past.clone());
        past.retain(|(_, until)| *until + CROSSING > at);
        let claim = Claim::of(service);
        past.extend(before.filter(|before| before.claim != claim).map(|before| (before.claim.clone(), at)));
        Self { object: service.clone(), addresses: addresses(service), claim, past }
    }

    /// What the object claims, and what it claimed until not long ago.
    fn claims_at(&self, at: Instant) -> impl Iterator<Item = &Claim> {
        let past = self.past.iter().filter(move |(_, until)| *until + CROSSING > at).map(|(claim, _)| claim);
        past.chain([&self.claim])
    }
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
        let (mut judge, at) = (Judge::default(), Instant::now());
        events.iter().try_for_each(|(kind, service)| judge.see(kind, service, at))?;
        ensure!(judge.unsettled().is_empty(), "in conflict: {}", judge.unsettled().join("\n"));
        Ok(())
    }

    #[test]
    fn the_judge_excuses_nobody_whose_edit_broke_sharing() {
        let with = |name: &str, port, ips: &[&str]| service(name, 1, "k", port, ips);
        let (a, b) = (with("a", 80, &["10.0.0.1"]), with("b", 443, &["10.0.0.1"]));
        let edited = ("MODIFIED", with("b", 80, &["10.0.0.1"]));
        let story = |more: &[(&str, Value)]| {
            let start = [("ADDED", a.clone()), ("ADDED", b.clone()), edited.clone()];
            verdict(&start.into_iter().chain(more.iter().cloned()).collect::<Vec<_>>())
        };
        assert!(story(&[]).is_err(), "one of them has to lose");
        assert!(story(&[("MODIFIED", with("b", 80, &[]))]).is_ok());
        assert!(story(&[("MODIFIED", with("a", 80, &[]))]).is_ok(), "whoever it is");
        assert!(story(&[("MODIFIED", with("b", 80, &[])), edited.clone()]).is_err(), "and does not get it back");
    }

    #[test]
    fn the_judge_knows_that_an_edit_may_cross_a_write_but_not_for_long() {
        let (a, edited) = (service("a", 1, "k", 80, &["10.0.0.1"]), service("a", 1, "k", 443, &["10.0.0.1"]));
        let late = service("b", 1, "k", 443, &["10.0.0.1"]);
        for (after, fine) in [(Duration::from_secs(1), true), (CROSSING, false)] {
            let (mut judge, at) = (Judge::default(), Instant::now());
            judge.see("ADDED", &a, at).unwrap();
            judge.see("MODIFIED", &edited, at).unwrap();
            assert_eq!(judge.see("ADDED", &late, at + after).is_ok(), fine);
        }
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
