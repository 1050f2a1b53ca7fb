//! One neighbor, with what it takes from its peer group.

mod advertise;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::SecretKeySelector;
use purelb_core::addr::Family;
use purelb_core::bgp::{self, Distance, Password, PasswordSource};
use purelb_core::reason::Reason;

use super::parts;
use crate::bgp_configuration::{
    AfiSafi, BGPConfigurationSpec, GracefulRestart, Neighbor, PeerGroup, SecretText, TimersConfig, Transport,
};
use crate::read::agent::interface_name;
use crate::read::{Notes, selector};

/// The longest hold time, which has 16 bits on the wire.
const LONGEST_HOLD: i64 = 65_535;
/// The longest restart time, which has 12 bits on the wire (RFC 4724 §3).
const LONGEST_RESTART: i64 = 4095;
/// The restart time where it is not written and the hold time is for ever.
const USUAL_RESTART: Duration = Duration::from_secs(120);
/// The longest pause between two attempts to connect, or two announcements of one route.
const LONGEST_PAUSE: i64 = 86_400;

/// The neighbors without a mistake; each mistake of the others is noted.
pub fn all(spec: &BGPConfigurationSpec, notes: &mut Notes) -> Vec<bgp::Neighbor> {
    let mut neighbors = Vec::new();
    for (i, neighbor) in spec.neighbors.iter().enumerate() {
        let path = format!("spec.neighbors[{i}]");
        // A wrong name must not take a neighbor's password away: without its group the neighbor is not used.
        let group = match group_of(spec, neighbor, &path, notes) {
            Ok(group) => group,
            Err(()) => continue,
        };
        let mut draft = Draft { path, neighbor, group, spec, notes, sound: true };
        let read = draft.read();
        neighbors.extend(read.filter(|_| draft.sound));
    }
    neighbors
}

/// The group that a neighbor names, with its place in the list.
fn group_of<'a>(
    spec: &'a BGPConfigurationSpec,
    neighbor: &Neighbor,
    path: &str,
    notes: &mut Notes,
) -> Result<Option<(String, &'a PeerGroup)>, ()> {
    let Some(name) = neighbor.config.peer_group.as_ref().filter(|name| !name.is_empty()) else { return Ok(None) };
    let found = spec.peer_groups.iter().enumerate().find(|(_, group)| group.config.peer_group_name == *name);
    let found = found.map(|(i, group)| (format!("spec.peerGroups[{i}]"), group));
    let missing = || Reason::PeerGroupMissing { group: name.clone() };
    notes.accept(format!("{path}.config.peerGroup"), found.ok_or_else(missing)).map(Some).ok_or(())
}

/// A neighbor while it is read.
struct Draft<'a> {
    path: String,
    neighbor: &'a Neighbor,
    /// Its group, with the group's path.
    group: Option<(String, &'a PeerGroup)>,
    spec: &'a BGPConfigurationSpec,
    notes: &'a mut Notes,
    /// Whether no mistake was found.
    sound: bool,
}

/// Something, and where it is written.
type Written<'a, T> = Option<(String, &'a T)>;

impl<'a> Draft<'a> {
    fn read(&mut self) -> Option<bgp::Neighbor> {
        let config = &self.neighbor.config;
        let (address, zone) = self.address()?;
        let timers = self.timers();
        let interface = self.interface().or(zone);
        if interface.is_none() && is_link_local(address) {
            let why = "it is link-local, and no interface is named (write fe80::1%eth1)";
            self.wrong("config.neighborAddress", Reason::NeighborAddressUnusable { address, why });
        }
        Some(bgp::Neighbor {
            address,
            peer_as: self.peer_as()?,
            local_as: self.local_as(),
            description: config
                .description
                .clone()
                .or_else(|| self.group()?.config.description.clone())
                .unwrap_or_default(),
            password: self.password(),
            nodes: self.nodes(),
            families: self.families(address),
            timers,
            source: self.source(address),
            interface,
            passive: self.transport(|transport| transport.passive_mode.as_ref()).is_some_and(|(_, passive)| *passive),
            distance: self.distance(),
            graceful_restart: self.graceful_restart(timers.hold),
            admin_down: config.admin_down.unwrap_or(false),
            next_hop: self.next_hop(),
            advertise: self.advertise(),
            path: self.path.clone(),
        })
    }

    /// Notes a mistake, which costs the neighbor its session.
    fn wrong(&mut self, name: &str, reason: Reason) {
        self.wrong_at(format!("{}.{name}", self.path), reason);
    }

    fn wrong_at(&mut self, field: String, reason: Reason) {
        self.notes.problem(field, reason);
        self.sound = false;
    }

    /// The value of a result, or nothing and a mistake.
    fn accept<T>(&mut self, field: String, result: Result<T, Reason>) -> Option<T> {
        result.map_err(|reason| self.wrong_at(field, reason)).ok()
    }

    fn group(&self) -> Option<&'a PeerGroup> {
        self.group.as_ref().map(|(_, group)| *group)
    }

    /// What the neighbor says, or else its group.
    fn inherited<T>(
        &self,
        name: &str,
        own: impl FnOnce(&'a Neighbor) -> Option<&'a T>,
        group: impl FnOnce(&'a PeerGroup) -> Option<&'a T>,
    ) -> Written<'a, T> {
        let own = own(self.neighbor).map(|value| (format!("{}.{name}", self.path), value));
        own.or_else(|| {
            let (path, found) = self.group.as_ref()?;
            group(found).map(|value| (format!("{path}.{name}"), value))
        })
    }

    fn transport<T>(&self, pick: impl Fn(&'a Transport) -> Option<&'a T>) -> Written<'a, T> {
        let (own, group) = (
            |neighbor: &'a Neighbor| neighbor.transport.as_ref().and_then(&pick),
            |group: &'a PeerGroup| group.transport.as_ref().and_then(&pick),
        );
        self.inherited("transport", own, group)
    }

    fn timer(&self, name: &str, pick: impl Fn(&'a TimersConfig) -> Option<&'a i64>) -> (String, Option<i64>) {
        let found = self.inherited(
            &format!("timers.config.{name}"),
            |neighbor| neighbor.timers.as_ref()?.config.as_ref().and_then(&pick),
            |group| group.timers.as_ref()?.config.as_ref().and_then(&pick),
        );
        found.map_or_else(Default::default, |(field, value)| (field, Some(*value)))
    }

    /// The address and, of a link-local one such as `fe80::1%eth1`, the interface.
    fn address(&mut self) -> Option<(IpAddr, Option<String>)> {
        let config = &self.neighbor.config;
        let Some(text) = config.neighbor_address.as_deref().filter(|text| !text.is_empty()) else {
            // Accepted as it always was, so it is no mistake that would keep the rest of an edit out of force.
            if config.neighbor_interface.as_ref().is_some_and(|name| !name.is_empty()) {
                let field = format!("{}.config.neighborInterface", self.path);
                self.notes.warning(field, Reason::NeighborInterfaceUnsupported);
            } else {
                let missing = Reason::FieldMissing { field: "neighborAddress", example: "the router's address" };
                self.wrong("config.neighborAddress", missing);
            }
            return None;
        };
        let (addr, zone) = text.split_once('%').map_or((text, None), |(addr, zone)| (addr, Some(zone)));
        let field = format!("{}.config.neighborAddress", self.path);
        let zone = zone.and_then(|name| self.named_interface(field.clone(), name));
        let address = self.accept(field, parts::address(addr, "a router's address", "192.0.2.1"))?.to_canonical();
        let why = match address {
            _ if address.is_unspecified() => Some("it stands for no address"),
            _ if address.is_multicast() => Some("it is a multicast address"),
            IpAddr::V4(v4) if v4.is_broadcast() => Some("it is the broadcast address"),
            _ => None,
        };
        if let Some(why) = why {
            self.wrong("config.neighborAddress", Reason::NeighborAddressUnusable { address, why });
        }
        Some((address, zone))
    }

    fn peer_as(&mut self) -> Option<u32> {
        let own = self.neighbor.config.peer_asn;
        let inherited = self.group().and_then(|group| group.config.peer_asn).filter(|_| own == 0);
        self.accept(format!("{}.config.peerAsn", self.path), parts::asn(inherited.unwrap_or(own)))
    }

    fn local_as(&mut self) -> Option<u32> {
        let found = self.inherited(
            "config.localAsn",
            |neighbor| neighbor.config.local_asn.as_ref(),
            |group| group.config.local_asn.as_ref(),
        );
        let (field, value) = found?;
        self.accept(field, parts::optional_asn(Some(*value))).flatten()
    }

    /// A Secret comes before a password that is written down, and the neighbor's own before its group's.
    fn password(&mut self) -> PasswordSource {
        let own = &self.neighbor.config;
        if own.auth_password_secret_ref.is_some() || own.auth_password.is_some() {
            let path = self.path.clone();
            return self.password_of(&path, own.auth_password_secret_ref.as_ref(), own.auth_password.as_ref());
        }
        match self.group.clone() {
            Some((path, group)) => {
                let config = &group.config;
                self.password_of(&path, config.auth_password_secret_ref.as_ref(), config.auth_password.as_ref())
            }
            None => PasswordSource::None,
        }
    }

    fn password_of(
        &mut self,
        path: &str,
        secret: Option<&SecretKeySelector>,
        inline: Option<&SecretText>,
    ) -> PasswordSource {
        if let Some(secret) = secret {
            let missing = |field, example| Reason::FieldMissing { field, example };
            let field = format!("{path}.config.authPasswordSecretRef");
            if secret.name.is_empty() {
                self.wrong_at(format!("{field}.name"), missing("name", "the name of a Secret"));
            }
            if secret.key.is_empty() {
                self.wrong_at(format!("{field}.key"), missing("key", "the entry of the Secret, such as password"));
            }
            let optional = secret.optional.unwrap_or(false);
            return PasswordSource::Secret { name: secret.name.clone(), key: secret.key.clone(), optional };
        }
        let Some(SecretText(text)) = inline.filter(|text| !text.0.is_empty()) else { return PasswordSource::None };
        let (field, password) = (format!("{path}.config.authPassword"), Password::new(text.as_str()));
        if password.is_usable() {
            self.notes.warning(field, Reason::PasswordInline);
        } else {
            self.wrong_at(field, Reason::PasswordUnusable { octets: password.octets() });
        }
        PasswordSource::Inline(password)
    }

    /// The nodes that the neighbor and its group have in common.
    fn nodes(&mut self) -> bgp::Selector {
        let own = self.neighbor.node_selector.as_ref();
        let shared = self.group.clone().and_then(|(path, group)| Some((path, group.node_selector.as_ref()?)));
        let own_path = format!("{}.nodeSelector", self.path);
        let problems = own.into_iter().flat_map(|written| selector::check(&own_path, written));
        let shared_problems =
            shared.iter().flat_map(|(path, written)| selector::check(&format!("{path}.nodeSelector"), written));
        for problem in problems.chain(shared_problems).collect::<Vec<_>>() {
            self.wrong_at(problem.field, problem.reason);
        }
        parts::selector([own, shared.map(|(_, written)| written)])
    }

    fn families(&mut self, address: IpAddr) -> BTreeSet<Family> {
        let listed = |entries: &'a Vec<AfiSafi>| Some(entries).filter(|entries| !entries.is_empty());
        let found =
            self.inherited("afiSafis", |neighbor| listed(&neighbor.afi_safis), |group| listed(&group.afi_safis));
        let Some((field, written)) = found else { return BTreeSet::from([Family::of(address)]) };
        let enabled = written.iter().filter(|entry| entry.enabled != Some(false));
        let families: BTreeSet<_> = enabled.filter_map(|entry| family(&entry.family)).collect();
        if families.is_empty() {
            self.wrong_at(field, Reason::NoFamilies);
        }
        families
    }

    fn timers(&mut self) -> bgp::Timers {
        let mut timers = bgp::Timers::default();
        let (field, written) = self.timer("holdTime", |timers| timers.hold_time.as_ref());
        if let Some(value) = written {
            let legal = value == 0 || (3..=LONGEST_HOLD).contains(&value);
            let read = if legal { Ok(value.unsigned_abs()) } else { Err(Reason::HoldTimeInvalid { value }) };
            timers.hold = self.accept(field, read).map_or(timers.hold, Duration::from_secs);
        }
        let (field, written) = self.timer("keepaliveInterval", |timers| timers.keepalive_interval.as_ref());
        timers.keepalive = self.accept(field.clone(), parts::seconds(written, LONGEST_HOLD)).flatten();
        if let Some(keepalive) = timers.keepalive.filter(|keepalive| !timers.hold.is_zero() && *keepalive > timers.hold)
        {
            let (keepalive, hold) = (keepalive.as_secs(), timers.hold.as_secs());
            self.wrong_at(field, Reason::KeepaliveTooLong { keepalive, hold });
        }
        let (field, written) = self.timer("connectRetry", |timers| timers.connect_retry.as_ref());
        timers.connect_retry = self.accept(field, parts::seconds(written, LONGEST_PAUSE)).flatten();
        let interval = |timers: &'a TimersConfig| timers.minimum_advertisement_interval.as_ref();
        let (field, written) = self.timer("minimumAdvertisementInterval", interval);
        timers.advertisement_interval =
            self.accept(field, parts::seconds(written, LONGEST_PAUSE)).flatten().unwrap_or_default();
        timers
    }

    fn source(&mut self, address: IpAddr) -> Option<IpAddr> {
        let (path, text) =
            self.transport(|transport| transport.local_address.as_ref().filter(|text| !text.is_empty()))?;
        let field = format!("{path}.localAddress");
        let source = self.accept(field.clone(), parts::address(text, "an address of the node", "192.0.2.10"))?;
        let source = source.to_canonical();
        if Family::of(source) != Family::of(address) {
            self.wrong_at(field, Reason::SourceWrongFamily { source_address: source, address });
        }
        // The wildcard is what the kernel chooses by itself.
        Some(source).filter(|source| !source.is_unspecified())
    }

    fn interface(&mut self) -> Option<String> {
        let (path, name) =
            self.transport(|transport| transport.bind_interface.as_ref().filter(|name| !name.is_empty()))?;
        self.named_interface(format!("{path}.bindInterface"), name)
    }

    fn named_interface(&mut self, field: String, name: &str) -> Option<String> {
        let name = interface_name(field, name.to_owned(), self.notes);
        self.sound &= name.is_some();
        name
    }

    fn distance(&mut self) -> Distance {
        let neighbor = self.neighbor;
        let multihop = neighbor.ebgp_multihop.as_ref().filter(|multihop| multihop.enabled);
        let security = neighbor.ttl_security.as_ref().filter(|security| security.enabled);
        let hops = |value: i64| u8::try_from(value).unwrap_or(u8::MAX);
        if let Some(multihop) = multihop {
            if security.is_some() {
                self.notes.warning(format!("{}.ttlSecurity", self.path), Reason::TtlSecurityAndMultihop);
            }
            let written = multihop.multihop_ttl.filter(|ttl| *ttl != 0).unwrap_or(255);
            let ttl = self.accept(format!("{}.ebgpMultihop.multihopTtl", self.path), parts::within(written, 0, 255));
            return ttl.map_or(Distance::Usual, |ttl| Distance::Multihop(hops(ttl)));
        }
        let Some(security) = security else { return Distance::Usual };
        let written = security.hops.unwrap_or(1);
        let read = self.accept(format!("{}.ttlSecurity.hops", self.path), parts::within(written, 1, 254));
        read.map_or(Distance::Usual, |value| Distance::Security(hops(value)))
    }

    /// The neighbor's own word counts, else that of all.
    fn graceful_restart(&mut self, hold: Duration) -> Option<Duration> {
        let own = self.neighbor.graceful_restart.as_ref().map(|restart| (self.path.clone(), restart));
        let everybodys = || self.spec.global.graceful_restart.as_ref().map(|all| ("spec.global".to_owned(), all));
        let in_use = |(_, restart): &(String, &GracefulRestart)| restart.enabled && restart.helper_only != Some(true);
        let (path, restart) = own.or_else(everybodys).filter(in_use)?;
        let field = format!("{path}.gracefulRestart.restartTime");
        let written = self.accept(field, parts::seconds(restart.restart_time, LONGEST_RESTART))?;
        let usual = if hold.is_zero() { USUAL_RESTART } else { hold };
        Some(written.unwrap_or(usual).min(Duration::from_secs(LONGEST_RESTART.unsigned_abs())))
    }
}

/// The family that a word stands for; `None` for those that are only accepted.
pub fn family(word: &str) -> Option<Family> {
    match word.to_ascii_lowercase().as_str() {
        "ipv4-unicast" => Some(Family::V4),
        "ipv6-unicast" => Some(Family::V6),
        _ => None,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
