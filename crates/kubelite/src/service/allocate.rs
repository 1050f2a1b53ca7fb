//! Gives a Service its families, cluster addresses, node ports and health check port.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};

use super::allocations::{Allocations, Unavailable, family};
use super::{is_headless, is_type, needs_health_port, needs_node_ports, node_ports, validate};
use crate::status::Cause;

const POLICY: &str = "spec.ipFamilyPolicy";
const TAKEN: &str = "provided port is already allocated";

/// One part of the completion.
type Step = fn(&Allocations, Option<&ServiceSpec>, &mut ServiceSpec) -> Vec<Cause>;

/// Completes a new spec, or a changed one in the light of the old; says what cannot be had.
pub(super) fn settle(all: &Allocations, old: Option<&ServiceSpec>, new: &mut ServiceSpec) -> Vec<Cause> {
    if let Some(old) = old {
        keep_what_was_given(old, new);
    }
    pair_cluster_ips(old, new);
    let steps: [Step; 4] = [settle_families, settle_addresses, settle_node_ports, settle_health_port];
    for step in steps {
        let causes = step(all, old, new);
        if !causes.is_empty() {
            return causes;
        }
    }
    Vec::new()
}

/// Whoever sends a Service again without the values that were assigned to it keeps them.
fn keep_what_was_given(old: &ServiceSpec, new: &mut ServiceSpec) {
    if !is_type(old, "ExternalName") && !is_type(new, "ExternalName") {
        new.cluster_ip = new.cluster_ip.take().or_else(|| old.cluster_ip.clone());
        new.cluster_ips = new.cluster_ips.take().or_else(|| old.cluster_ips.clone());
    }
    if wants_node_ports(old) && wants_node_ports(new) {
        let (before, after) = (node_ports(old), node_ports(new));
        let used: Vec<i32> = before.into_iter().filter(|port| after.contains(port)).collect();
        for port in new.ports.iter_mut().flatten().filter(|port| port.node_port.is_none()) {
            let same = old.ports.iter().flatten().rfind(|before| before.name == port.name);
            port.node_port = same.and_then(|before| before.node_port).filter(|number| !used.contains(number));
        }
    }
    if needs_health_port(old) && needs_health_port(new) {
        new.health_check_node_port = new.health_check_node_port.or(old.health_check_node_port);
    }
}

fn wants_node_ports(spec: &ServiceSpec) -> bool {
    is_type(spec, "NodePort")
        || (is_type(spec, "LoadBalancer") && spec.allocate_load_balancer_node_ports.unwrap_or(true))
}

/// `clusterIP` is the older form of `clusterIPs[0]`; a client may know only one of the two.
fn pair_cluster_ips(old: Option<&ServiceSpec>, new: &mut ServiceSpec) {
    let alone = |new: &ServiceSpec| new.cluster_ip.clone().map(|ip| vec![ip]);
    let Some(old) = old else {
        if new.cluster_ips.is_none() {
            new.cluster_ips = alone(new);
        }
        return;
    };
    if new.cluster_ips.is_none() && old.cluster_ip == new.cluster_ip {
        new.cluster_ips.clone_from(&old.cluster_ips);
    }
    if old.cluster_ip != new.cluster_ip && old.cluster_ips == new.cluster_ips {
        new.cluster_ips = alone(new);
    }
}

/// A `PreferDualStack` Service is not upgraded or downgraded by an update that does not ask for it.
fn is_settled(old: Option<&ServiceSpec>, new: &ServiceSpec) -> bool {
    let prefers = |spec: &ServiceSpec| spec.ip_family_policy.as_deref() == Some("PreferDualStack");
    old.is_some_and(|old| {
        prefers(old)
            && prefers(new)
            && old.type_ == new.type_
            && old.cluster_ips == new.cluster_ips
            && old.ip_families == new.ip_families
    })
}

fn settle_families(all: &Allocations, old: Option<&ServiceSpec>, new: &mut ServiceSpec) -> Vec<Cause> {
    if is_type(new, "ExternalName") || is_settled(old, new) {
        return Vec::new();
    }
    let bare_headless = new.cluster_ip.as_deref() == Some("None") && new.selector.is_none();
    let inherited = old.and_then(|old| old.ip_family_policy.clone());
    let default = || if bare_headless { "RequireDualStack".to_owned() } else { "SingleStack".to_owned() };
    new.ip_family_policy = new.ip_family_policy.take().or(inherited).or_else(|| Some(default()));
    let mut causes = validate::cluster_ips(new);
    if !causes.is_empty() {
        return causes;
    }
    if let Some(old) = old {
        causes.extend(shrink(old, new));
    }
    causes.extend(single_stack_faults(new));
    let named: Vec<IpAddr> = new.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect();
    let known = new.ip_families.as_ref().map_or(0, Vec::len);
    for (i, ip) in named.into_iter().enumerate().skip(known) {
        if all.families().contains(&family(ip)) {
            new.ip_families.get_or_insert_default().push(family(ip).into());
        } else {
            let rule = format!("{} is not configured on this cluster", family(ip));
            causes.push(Cause::invalid(format!("spec.clusterIPs[{i}]"), &new.cluster_ips, rule));
        }
    }
    if causes.is_empty() && !bare_headless {
        causes = cluster_faults(all, new);
    }
    if causes.is_empty() {
        complete_families(all, bare_headless, new);
    }
    causes
}

/// Going back to one family needs the word SingleStack, and with it happens by itself.
fn shrink(old: &ServiceSpec, new: &mut ServiceSpec) -> Vec<Cause> {
    let count = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    if new.ip_family_policy.as_deref() == Some("SingleStack") {
        for (before, after) in [(&old.cluster_ips, &mut new.cluster_ips), (&old.ip_families, &mut new.ip_families)] {
            if before == after {
                after.iter_mut().for_each(|list| list.truncate(1));
            }
        }
        return Vec::new();
    }
    let mut causes = Vec::new();
    for (before, after, what) in [
        (&old.cluster_ips, &new.cluster_ips, "secondary cluster IP"),
        (&old.ip_families, &new.ip_families, "secondary IP family"),
    ] {
        if (1..count(before)).contains(&count(after)) {
            let rule = format!("must be 'SingleStack' to release the {what}");
            causes.push(Cause::invalid(POLICY, &new.ip_family_policy, rule));
        }
    }
    causes
}

fn single_stack_faults(new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (list, what) in [(&new.cluster_ips, "cluster IPs"), (&new.ip_families, "IP families")] {
        if new.ip_family_policy.as_deref() == Some("SingleStack") && list.as_ref().is_some_and(|it| it.len() == 2) {
            let rule = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            causes.push(Cause::invalid(POLICY, "SingleStack", rule));
        }
    }
    causes
}

/// What this cluster's ranges cannot serve.
fn cluster_faults(all: &Allocations, new: &ServiceSpec) -> Vec<Cause> {
    let configured = all.families();
    let mut causes = Vec::new();
    if new.ip_family_policy.as_deref() == Some("RequireDualStack") && configured.len() < 2 {
        let rule = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid(POLICY, "RequireDualStack", rule));
    }
    for (i, wanted) in new.ip_families.iter().flatten().enumerate() {
        if !configured.contains(&wanted.as_str()) {
            causes.push(Cause::invalid(format!("spec.ipFamilies[{i}]"), wanted, "not configured on this cluster"));
        }
    }
    causes
}

fn complete_families(all: &Allocations, bare_headless: bool, new: &mut ServiceSpec) {
    let families = new.ip_families.get_or_insert_default();
    if families.is_empty() {
        families.extend(all.families().first().map(|it| (*it).to_owned()));
    }
    let dual = new.ip_family_policy.as_deref() != Some("SingleStack") && (bare_headless || all.families().len() == 2);
    if dual && families.len() == 1 {
        families.push(if families[0] == "IPv4" { "IPv6".into() } else { "IPv4".into() });
    }
}

fn settle_addresses(all: &Allocations, old: Option<&ServiceSpec>, new: &mut ServiceSpec) -> Vec<Cause> {
    if is_type(new, "ExternalName") || is_headless(new) || is_settled(old, new) {
        return Vec::new();
    }
    let kept = match old {
        Some(old) if is_headless(old) => return Vec::new(),
        Some(old) => old.cluster_ips.clone().unwrap_or_default(),
        None => Vec::new(),
    };
    let families = new.ip_families.clone().unwrap_or_default();
    let mut ips = new.cluster_ips.take().unwrap_or_default();
    let mut causes = Vec::new();
    for (i, wanted) in families.iter().enumerate() {
        match ips.get(i) {
            Some(ip) if kept.contains(ip) => {}
            // Changing an address is refused by validation, not here.
            Some(_) if i < kept.len() => {}
            Some(ip) => causes.extend(requested_fault(all, ip, &ips)),
            None => match all.next_address(wanted) {
                Some(ip) => ips.push(ip.to_string()),
                None => causes.push(Cause::invalid("spec.clusterIPs", &ips, "failed to allocate IP: range is full")),
            },
        }
    }
    new.cluster_ip = ips.first().cloned();
    new.cluster_ips = Some(ips);
    causes
}

fn requested_fault(all: &Allocations, ip: &str, ips: &[String]) -> Option<Cause> {
    let why = match all.check_address(ip.parse().ok()?).err()? {
        Unavailable::Taken => "provided IP is already allocated",
        Unavailable::OutOfRange => "the provided network does not match the current range",
    };
    Some(Cause::invalid("spec.clusterIPs", ips, format!("failed to allocate IP {ip}: {why}")))
}

fn port_fault(all: &Allocations, field: &str, port: i32) -> Option<Cause> {
    let why = match all.check_port(port).err()? {
        Unavailable::Taken => TAKEN,
        Unavailable::OutOfRange => "provided port is not in the valid range. The range of valid ports is 30000-32767",
    };
    Some(Cause::invalid(field, port, why))
}

fn settle_node_ports(all: &Allocations, old: Option<&ServiceSpec>, new: &mut ServiceSpec) -> Vec<Cause> {
    if !needs_node_ports(new) {
        return Vec::new();
    }
    let requested = new.ports.iter().flatten().filter_map(|port| Some((port.port, port.node_port?)));
    let mut picker = PortPicker {
        all,
        kept: old.map(node_ports).unwrap_or_default(),
        requested: requested.collect(),
        mine: Vec::new(),
        automatic: wants_node_ports(new),
        first_time: old.is_none(),
    };
    let ports = new.ports.iter_mut().flatten().enumerate();
    ports.filter_map(|(i, port)| picker.pick(&format!("spec.ports[{i}].nodePort"), port)).collect()
}

/// Gives the ports of one Service their node ports, one after the other. Pairs are (port, node port).
struct PortPicker<'a> {
    all: &'a Allocations,
    /// Node ports the Service has already.
    kept: Vec<i32>,
    requested: Vec<(i32, i32)>,
    mine: Vec<(i32, i32)>,
    automatic: bool,
    first_time: bool,
}

impl PortPicker<'_> {
    fn pick(&mut self, field: &str, port: &mut ServicePort) -> Option<Cause> {
        if let Some(node) = port.node_port {
            return self.request(field, port.port, node);
        }
        if !self.automatic {
            return None;
        }
        let pairs = || self.mine.iter().chain(&self.requested);
        // Two protocols of one port share a node port, but only when both are new.
        let sibling = pairs().find(|(number, _)| *number == port.port && self.first_time).map(|(_, node)| *node);
        let taken: Vec<i32> = pairs().map(|(_, node)| *node).collect();
        port.node_port = sibling.or_else(|| self.all.next_port(&taken));
        match port.node_port {
            Some(node) => {
                self.mine.push((port.port, node));
                None
            }
            None => Some(Cause::invalid(field, 0, "failed to allocate a nodePort: range is full")),
        }
    }

    fn request(&mut self, field: &str, port: i32, node: i32) -> Option<Cause> {
        let holder = self.mine.iter().find(|(_, held)| *held == node).map(|(number, _)| *number);
        self.mine.push((port, node));
        match holder {
            _ if self.kept.contains(&node) => None,
            Some(same) if same == port => None,
            Some(_) => Some(Cause::invalid(field, node, TAKEN)),
            None => port_fault(self.all, field, node),
        }
    }
}

fn settle_health_port(all: &Allocations, old: Option<&ServiceSpec>, new: &mut ServiceSpec) -> Vec<Cause> {
    let had_one = old.is_some_and(needs_health_port);
    if !needs_health_port(new) || had_one {
        return Vec::new();
    }
    let field = "spec.healthCheckNodePort";
    match new.health_check_node_port {
        Some(port) if node_ports(new).contains(&port) => vec![Cause::invalid(field, port, TAKEN)],
        Some(port) => port_fault(all, field, port).into_iter().collect(),
        None => {
            new.health_check_node_port = all.next_port(&node_ports(new));
            let full = new.health_check_node_port.is_none();
            full.then(|| Cause::invalid(field, 0, "failed to allocate a HealthCheck NodePort: range is full"))
                .into_iter()
                .collect()
        }
    }
}
