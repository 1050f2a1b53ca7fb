//! Services: defaults, cluster addresses, node ports, and what a change of type takes away.

mod allocate;
mod allocations;
mod validate;

use k8s_openapi::api::core::v1::{Service, ServiceSpec, SessionAffinityConfig};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::builtin::typed;
use crate::kinds::Served;
use crate::object::{carry, map_at, map_of};
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;

pub(crate) use allocations::Allocations;

/// The rules for Services.
pub(crate) struct ServiceRules;

impl Rules for ServiceRules {
    fn decode(&self, _served: &Served, mut body: Value) -> Result<Value, String> {
        swap_times(&mut body, &Value::Null, &json!(NEVER));
        let mut service: Service = serde_json::from_value(body).map_err(|error| error.to_string())?;
        let spec = service.spec.get_or_insert_default();
        drop_zeros(spec);
        fill_defaults(spec);
        let balanced = is_type(spec, "LoadBalancer");
        let status = service.status.get_or_insert_default().load_balancer.get_or_insert_default();
        for ingress in status.ingress.iter_mut().flatten().filter(|_| balanced) {
            if ingress.ip.as_deref().is_some_and(|ip| !ip.is_empty()) {
                ingress.ip_mode.get_or_insert_with(|| "VIP".into());
            }
        }
        let mut service = typed::<Service>(json!(service))?;
        swap_times(&mut service, &json!(NEVER), &Value::Null);
        Ok(service)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<Service>()
    }

    fn create(&self, ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        map_of(new).insert("status".into(), json!({"loadBalancer": {}}));
        let mut spec = spec_of(new);
        let mut causes = allocate::settle(ground.allocations, None, &mut spec);
        if causes.is_empty() {
            causes = validate::spec(None, &spec);
        }
        set_spec(new, &spec);
        causes
    }

    fn update(&self, ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        carry(old, new, "status");
        let (before, mut spec) = (spec_of(old), spec_of(new));
        let mut causes = allocate::settle(ground.allocations, Some(&before), &mut spec);
        if causes.is_empty() {
            drop_what_the_type_lacks(&before, &mut spec);
            causes = validate::spec(Some(&before), &spec);
        }
        if !is_type(&spec, "LoadBalancer") {
            map_at(new, "status").insert("loadBalancer".into(), json!({}));
        }
        set_spec(new, &spec);
        causes
    }

    fn update_status(&self, ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        carry(old, new, "spec");
        let causes = validate::load_balancer(is_type(&spec_of(new), "LoadBalancer"), &new["status"]["loadBalancer"]);
        if !ground.ip_modes {
            drop_modes(new);
        }
        causes
    }
}

fn drop_modes(service: &mut Value) {
    let ingress = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
    for entry in ingress.into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.remove("ipMode");
    }
}

/// The time that Go takes no time for. It is written as null, so conditions that nobody gave a time have none.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Writes the times of conditions that have this value another way.
fn swap_times(service: &mut Value, from: &Value, to: &Value) {
    let conditions = service.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let time = condition.entry("lastTransitionTime").or_insert(Value::Null);
        if time == from {
            *time = to.clone();
        }
    }
}

fn spec_of(service: &Value) -> ServiceSpec {
    serde_json::from_value(service["spec"].clone()).unwrap_or_default()
}

fn set_spec(service: &mut Value, spec: &ServiceSpec) {
    map_of(service).insert("spec".into(), json!(spec));
}

fn is_type(spec: &ServiceSpec, kind: &str) -> bool {
    spec.type_.as_deref() == Some(kind)
}

fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ips.iter().flatten().next().is_some_and(|ip| ip == "None")
}

fn needs_node_ports(spec: &ServiceSpec) -> bool {
    is_type(spec, "NodePort") || is_type(spec, "LoadBalancer")
}

fn needs_health_port(spec: &ServiceSpec) -> bool {
    is_type(spec, "LoadBalancer") && spec.external_traffic_policy.as_deref() == Some("Local")
}

/// Whether traffic from outside the cluster can reach the Service at all.
fn is_exposed(spec: &ServiceSpec) -> bool {
    needs_node_ports(spec) || (is_type(spec, "ClusterIP") && spec.external_ips.iter().flatten().next().is_some())
}

fn node_ports(spec: &ServiceSpec) -> Vec<i32> {
    spec.ports.iter().flatten().filter_map(|port| port.node_port).collect()
}

/// Zero and the empty text mean "not set" in these fields.
fn drop_zeros(spec: &mut ServiceSpec) {
    for text in [
        &mut spec.cluster_ip,
        &mut spec.type_,
        &mut spec.external_name,
        &mut spec.load_balancer_ip,
        &mut spec.external_traffic_policy,
        &mut spec.session_affinity,
    ] {
        text.take_if(|text| text.is_empty());
    }
    spec.health_check_node_port.take_if(|port| *port == 0);
    spec.publish_not_ready_addresses.take_if(|wanted| !*wanted);
    spec.cluster_ips.take_if(|ips| ips.is_empty());
    spec.ip_families.take_if(|families| families.is_empty());
    spec.selector.take_if(|selector| selector.is_empty());
    for port in spec.ports.iter_mut().flatten() {
        port.node_port.take_if(|port| *port == 0);
        port.name.take_if(|name| name.is_empty());
        port.protocol.take_if(|protocol| protocol.is_empty());
    }
}

fn fill_defaults(spec: &mut ServiceSpec) {
    spec.type_.get_or_insert_with(|| "ClusterIP".into());
    match spec.session_affinity.get_or_insert_with(|| "None".into()).as_str() {
        "None" => spec.session_affinity_config = None,
        "ClientIP" => {
            let config = spec.session_affinity_config.get_or_insert_with(SessionAffinityConfig::default);
            config.client_ip.get_or_insert_default().timeout_seconds.get_or_insert(10_800);
        }
        _ => {}
    }
    for port in spec.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".into());
        let unset = matches!(&port.target_port, None | Some(IntOrString::Int(0)))
            || matches!(&port.target_port, Some(IntOrString::String(name)) if name.is_empty());
        if unset {
            port.target_port = Some(IntOrString::Int(port.port));
        }
    }
    if is_exposed(spec) {
        spec.external_traffic_policy.get_or_insert_with(|| "Cluster".into());
    }
    if needs_node_ports(spec) || is_type(spec, "ClusterIP") {
        spec.internal_traffic_policy.get_or_insert_with(|| "Cluster".into());
    } else if is_type(spec, "ExternalName") {
        spec.internal_traffic_policy = None;
    }
    if is_type(spec, "LoadBalancer") {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
    }
}

/// A change of type clears what the new type has no use for, unless the same request also changed it: then validation
/// speaks up.
fn drop_what_the_type_lacks(old: &ServiceSpec, new: &mut ServiceSpec) {
    if !is_type(old, "ExternalName") && is_type(new, "ExternalName") {
        if old.cluster_ip == new.cluster_ip && old.cluster_ips == new.cluster_ips {
            (new.cluster_ip, new.cluster_ips) = (None, None);
        }
        new.ip_families.take_if(|it| old.ip_families.as_ref() == Some(&*it));
        new.ip_family_policy.take_if(|it| old.ip_family_policy.as_ref() == Some(&*it));
    }
    let known = node_ports(old);
    if needs_node_ports(old) && !needs_node_ports(new) && node_ports(new).iter().all(|port| known.contains(port)) {
        new.ports.iter_mut().flatten().for_each(|port| port.node_port = None);
    }
    if needs_health_port(old) && !needs_health_port(new) {
        new.health_check_node_port.take_if(|it| old.health_check_node_port == Some(*it));
    }
    if is_type(old, "LoadBalancer") && !is_type(new, "LoadBalancer") {
        new.allocate_load_balancer_node_ports.take_if(|it| old.allocate_load_balancer_node_ports == Some(*it));
        new.load_balancer_class.take_if(|it| old.load_balancer_class.as_ref() == Some(&*it));
    }
    if is_exposed(old) && !is_exposed(new) {
        new.external_traffic_policy.take_if(|it| old.external_traffic_policy.as_ref() == Some(&*it));
    }
}
