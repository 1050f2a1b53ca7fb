//! What may be written into a Service, and what of it may change.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::{is_exposed, is_headless, is_type, needs_health_port};
use crate::names::{label_name_faults, label_value_faults, qualified_name_faults, subdomain_faults};
use crate::status::Cause;

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
const IP_EXAMPLE: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

/// Everything wrong with a settled spec; `old` is there when it replaces another.
pub(super) fn spec(old: Option<&ServiceSpec>, new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = old.map(|old| changes(old, new)).unwrap_or_default();
    causes.extend(type_faults(new));
    causes.extend(ports(new));
    causes.extend(words(new));
    causes.extend(cluster_ips(new));
    causes.extend(class_and_nodeports(new));
    causes.extend(traffic(new));
    causes.extend(addresses(new));
    causes
}

/// What may not change once it is set.
fn changes(old: &ServiceSpec, new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    let both = |check: fn(&ServiceSpec) -> bool| check(old) && check(new);
    let addressed = both(|spec| !is_type(spec, "ExternalName"));
    if addressed && !both(is_headless) {
        let lists =
            [("clusterIPs", &old.cluster_ips, &new.cluster_ips), ("ipFamilies", &old.ip_families, &new.ip_families)];
        for (field, before, after) in lists {
            let pairs = before.iter().flatten().zip(after.iter().flatten()).enumerate();
            let same_shape = is_headless(old) == is_headless(new);
            for (i, _) in pairs.filter(|(_, (a, b))| a != b && (same_shape || field == "clusterIPs")) {
                causes.push(Cause::invalid(format!("spec.{field}[{i}]"), after, "may not change once set"));
            }
        }
    }
    if both(|spec| is_type(spec, "LoadBalancer")) && old.load_balancer_class != new.load_balancer_class {
        causes.push(Cause::invalid("spec.loadBalancerClass", &new.load_balancer_class, "may not change once set"));
    }
    if both(needs_health_port) && old.health_check_node_port != new.health_check_node_port {
        causes.push(Cause::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
    causes
}

fn type_faults(new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = new.type_.as_deref().unwrap_or_default();
    if new.ports.as_ref().is_none_or(Vec::is_empty) && !is_headless(new) && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(new) => {
            let rule = format!("may not be set to 'None' for {kind} services");
            causes.push(Cause::invalid("spec.clusterIPs[0]", "None", rule));
        }
        "ExternalName" => causes.extend(external_name(new)),
        "ClusterIP" | "LoadBalancer" | "NodePort" => {}
        other => {
            let known = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
            causes.push(Cause::unsupported("spec.type", other, &known));
        }
    }
    causes
}

fn external_name(new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (field, set) in [
        ("clusterIPs", new.cluster_ips.is_some()),
        ("ipFamilies", new.ip_families.is_some()),
        ("ipFamilyPolicy", new.ip_family_policy.is_some()),
    ] {
        if set {
            causes.push(Cause::forbidden(format!("spec.{field}"), "may not be set for ExternalName services"));
        }
    }
    let name = new.external_name.as_deref().unwrap_or_default();
    match name.trim_end_matches('.') {
        "" => causes.push(Cause::required("spec.externalName", "")),
        name => {
            let faults = subdomain_faults(name);
            causes.extend(faults.into_iter().map(|fault| Cause::invalid("spec.externalName", name, fault)));
        }
    }
    causes
}

fn ports(new: &ServiceSpec) -> Vec<Cause> {
    let all: Vec<&ServicePort> = new.ports.iter().flatten().collect();
    let mut causes = Vec::new();
    for (i, port) in all.iter().enumerate() {
        causes.extend(port_faults(&format!("spec.ports[{i}]"), port, &all[..i], all.len() > 1));
    }
    for (i, port) in all.iter().enumerate() {
        let field = format!("spec.ports[{i}]");
        let twin = |other: &&&ServicePort| other.protocol == port.protocol && other.node_port == port.node_port;
        if let Some(node) = port.node_port {
            if is_type(new, "ClusterIP") {
                let rule = "may not be used when `type` is 'ClusterIP'";
                causes.push(Cause::forbidden(format!("{field}.nodePort"), rule));
            } else if all[..i].iter().any(|other| twin(&other)) {
                causes.push(Cause::duplicate(format!("{field}.nodePort"), node));
            }
        }
        if all[..i].iter().any(|other| other.protocol == port.protocol && other.port == port.port) {
            causes.push(Cause::duplicate(field, json!({"protocol": port.protocol, "port": port.port})));
        }
    }
    causes
}

fn port_faults(field: &str, port: &ServicePort, before: &[&ServicePort], name_required: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    match port.name.as_deref() {
        None if name_required => causes.push(Cause::required(format!("{field}.name"), "")),
        None => {}
        Some(name) => {
            let faults = label_name_faults(name);
            causes.extend(faults.into_iter().map(|fault| Cause::invalid(format!("{field}.name"), name, fault)));
            if before.iter().any(|other| other.name.as_deref() == Some(name)) {
                causes.push(Cause::duplicate(format!("{field}.name"), name));
            }
        }
    }
    if !(1..=65_535).contains(&port.port) {
        causes.push(Cause::invalid(format!("{field}.port"), port.port, PORT_RANGE));
    }
    let protocol = port.protocol.as_deref().unwrap_or_default();
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        causes.push(Cause::unsupported(format!("{field}.protocol"), protocol, &["SCTP", "TCP", "UDP"]));
    }
    let target = format!("{field}.targetPort");
    match &port.target_port {
        Some(IntOrString::Int(number)) if !(1..=65_535).contains(number) => {
            causes.push(Cause::invalid(target, number, PORT_RANGE));
        }
        Some(IntOrString::String(name)) => {
            causes.extend(port_name_faults(name).into_iter().map(|fault| Cause::invalid(&target, name, fault)));
        }
        _ => {}
    }
    let app = port.app_protocol.as_deref();
    let faults = app.map(qualified_name_faults).unwrap_or_default();
    causes.extend(faults.into_iter().map(|fault| Cause::invalid(format!("{field}.appProtocol"), app, fault)));
    causes
}

/// A port by name, as a container declares it.
fn port_name_faults(name: &str) -> Vec<&'static str> {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push("must be no more than 15 characters");
    }
    if !name.bytes().all(inner) {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|c| c.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen");
    }
    faults
}

fn words(new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in new.selector.iter().flatten() {
        let faults = qualified_name_faults(key).into_iter().chain(label_value_faults(value));
        causes.extend(faults.map(|fault| Cause::invalid("spec.selector", key, fault)));
    }
    for (field, word, known) in [
        ("spec.sessionAffinity", &new.session_affinity, &["ClientIP", "None"][..]),
        ("spec.internalTrafficPolicy", &new.internal_traffic_policy, &["Cluster", "Local"]),
        ("spec.trafficDistribution", &new.traffic_distribution, &["PreferClose", "PreferSameZone", "PreferSameNode"]),
    ] {
        if let Some(word) = word.as_deref()
            && !known.contains(&word)
        {
            causes.push(Cause::unsupported(field, word, known));
        }
    }
    let timeout = new.session_affinity_config.as_ref().and_then(|it| it.client_ip.as_ref()?.timeout_seconds);
    if let Some(seconds) = timeout
        && !(1..=86_400).contains(&seconds)
    {
        let rule = "must be greater than 0 and less than or equal to 86400";
        causes.push(Cause::invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, rule));
    }
    causes
}

/// Cluster addresses and families in themselves and against each other.
pub(super) fn cluster_ips(new: &ServiceSpec) -> Vec<Cause> {
    if is_type(new, "ExternalName") {
        return Vec::new();
    }
    let field = "spec.clusterIPs";
    let ips: Vec<&str> = new.cluster_ips.iter().flatten().map(String::as_str).collect();
    let mut causes = Vec::new();
    match (new.cluster_ip.as_deref(), ips.first()) {
        (None, Some(_)) => causes.push(Cause::invalid(field, &ips, "must be empty when `clusterIP` is not specified")),
        (Some(_), None) => causes.push(Cause::required(field, "")),
        (Some(one), Some(first)) if one != *first => {
            causes.push(Cause::invalid(field, &ips, "first value must match `clusterIP`"));
        }
        _ => {}
    }
    causes.extend(family_faults(new));
    if ips.first() == Some(&"None") {
        if ips.len() > 1 {
            causes.push(Cause::invalid(field, &ips, "'None' must be the first and only value"));
        }
        return causes;
    }
    let bad = ips.iter().enumerate().filter(|(_, ip)| ip.parse::<IpAddr>().is_err());
    let bad: Vec<Cause> = bad.map(|(i, ip)| Cause::invalid(format!("{field}[{i}]"), ip, IP_EXAMPLE)).collect();
    if !bad.is_empty() {
        causes.extend(bad);
        return causes;
    }
    let is_v6 = |ip: &&str| ip.contains(':');
    match ips.as_slice() {
        [_, _, _, ..] => causes.push(Cause::invalid(field, &ips, "may only hold up to 2 values")),
        [a, b] if is_v6(a) == is_v6(b) => {
            causes.push(Cause::invalid(field, &ips, "may specify no more than one IP for each IP family"));
        }
        _ => {}
    }
    for (i, (ip, family)) in ips.iter().zip(new.ip_families.iter().flatten()).enumerate() {
        if matches!(family.as_str(), "IPv4" | "IPv6") && is_v6(ip) != (family == "IPv6") {
            let rule = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            causes.push(Cause::invalid(format!("{field}[{i}]"), ip, rule));
        }
    }
    causes
}

fn family_faults(new: &ServiceSpec) -> Vec<Cause> {
    let families: Vec<&String> = new.ip_families.iter().flatten().collect();
    let mut causes = Vec::new();
    for (i, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{i}]");
        if !matches!(family.as_str(), "IPv4" | "IPv6") {
            causes.push(Cause::unsupported(&field, family, &["IPv4", "IPv6"]));
        }
        if families[..i].contains(family) {
            causes.push(Cause::duplicate(&field, family));
        }
    }
    let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = new.ip_family_policy.as_deref()
        && !known.contains(&policy)
    {
        causes.push(Cause::unsupported("spec.ipFamilyPolicy", policy, &known));
    }
    causes
}

fn class_and_nodeports(new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !is_type(new, "LoadBalancer") {
        for (field, set) in [
            ("allocateLoadBalancerNodePorts", new.allocate_load_balancer_node_ports.is_some()),
            ("loadBalancerClass", new.load_balancer_class.is_some()),
            ("LoadBalancerSourceRanges", new.load_balancer_source_ranges.as_ref().is_some_and(|it| !it.is_empty())),
        ] {
            if set {
                causes.push(Cause::forbidden(format!("spec.{field}"), ONLY_BALANCED));
            }
        }
    } else if let Some(class) = new.load_balancer_class.as_deref() {
        let faults = qualified_name_faults(class);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid("spec.loadBalancerClass", class, fault)));
    }
    causes
}

fn traffic(new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    let field = "spec.externalTrafficPolicy";
    match new.external_traffic_policy.as_deref() {
        Some(policy) if !is_exposed(new) => {
            causes.push(Cause::invalid(field, policy, "may only be set for externally-accessible services"));
        }
        Some("Cluster" | "Local") | None => {}
        Some(other) => causes.push(Cause::unsupported(field, other, &["Cluster", "Local"])),
    }
    if let Some(port) = new.health_check_node_port
        && !needs_health_port(new)
    {
        let rule = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid("spec.healthCheckNodePort", port, rule));
    }
    causes
}

fn addresses(new: &ServiceSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, ip) in new.external_ips.iter().flatten().enumerate() {
        if ip.parse::<IpAddr>().is_err() {
            causes.push(Cause::invalid(format!("spec.externalIPs[{i}]"), ip, IP_EXAMPLE));
        }
    }
    for (i, range) in new.load_balancer_source_ranges.iter().flatten().enumerate() {
        if range.trim().parse::<IpNet>().is_err() {
            let rule = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            causes.push(Cause::invalid(format!("spec.LoadBalancerSourceRanges[{i}]"), range, rule));
        }
    }
    causes
}

/// The `status.loadBalancer` of a Service.
pub(super) fn load_balancer(balanced: bool, status: &Value) -> Vec<Cause> {
    let entries = status["ingress"].as_array().map_or(&[][..], Vec::as_slice);
    if !balanced && !entries.is_empty() {
        let rule = "may only be used when `spec.type` is 'LoadBalancer'";
        return vec![Cause::forbidden("status.loadBalancer.ingress", rule)];
    }
    let check = |(i, entry): (usize, &Value)| ingress_faults(&format!("status.loadBalancer.ingress[{i}]"), entry);
    entries.iter().enumerate().flat_map(check).collect()
}

fn ingress_faults(field: &str, entry: &Value) -> Vec<Cause> {
    let text = |key: &str| entry[key].as_str().filter(|text| !text.is_empty());
    let mut causes = Vec::new();
    if let Some(ip) = text("ip").filter(|ip| ip.parse::<IpAddr>().is_err()) {
        causes.push(Cause::invalid(format!("{field}.ip"), ip, IP_EXAMPLE));
    }
    let mode = format!("{field}.ipMode");
    match (text("ip"), entry["ipMode"].as_str()) {
        (Some(_), None) => causes.push(Cause::required(mode, "must be specified when `ip` is set")),
        (None, Some(_)) => causes.push(Cause::forbidden(mode, "may not be specified when `ip` is not set")),
        (Some(_), Some(word)) if !matches!(word, "VIP" | "Proxy") => {
            causes.push(Cause::unsupported(mode, word, &["Proxy", "VIP"]));
        }
        _ => {}
    }
    if let Some(host) = text("hostname") {
        let host_field = format!("{field}.hostname");
        let faults = subdomain_faults(host);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid(&host_field, host, fault)));
        if host.parse::<IpAddr>().is_ok() {
            causes.push(Cause::invalid(&host_field, host, "must be a DNS name, not an IP address"));
        }
    }
    causes
}
