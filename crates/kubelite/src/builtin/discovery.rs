//! Endpoint slices and leases.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::typed;
use crate::kinds::Served;
use crate::object::{map_at, map_of};
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;

/// Endpoint slices have one address family for life.
pub(crate) struct SliceRules;

impl Rules for SliceRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut slice = typed::<EndpointSlice>(body)?;
        // The two lists are there even when they are empty.
        for list in ["endpoints", "ports"] {
            map_of(&mut slice).entry(list).or_insert(Value::Null);
        }
        for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
            map_at(endpoint, "conditions");
        }
        for port in slice.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let members = map_of(port);
            members.entry("name").or_insert_with(|| json!(""));
            members.entry("protocol").or_insert_with(|| json!("TCP"));
        }
        Ok(slice)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<EndpointSlice>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        match new["addressType"].as_str().unwrap_or_default() {
            "IPv4" | "IPv6" | "FQDN" => endpoint_faults(new),
            "" => vec![Cause::required("addressType", "")],
            other => vec![Cause::unsupported("addressType", other, &["FQDN", "IPv4", "IPv6"])],
        }
    }

    fn update(&self, ground: &Ground<'_>, served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        if old["addressType"] != new["addressType"] {
            return vec![Cause::invalid("addressType", &new["addressType"], "field is immutable")];
        }
        self.create(ground, served, new)
    }
}

fn endpoint_faults(slice: &Value) -> Vec<Cause> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten().enumerate();
    let mut causes = Vec::new();
    for (i, endpoint) in endpoints {
        let addresses = endpoint["addresses"].as_array().map_or(&[][..], Vec::as_slice);
        if addresses.is_empty() {
            causes.push(Cause::required(format!("endpoints[{i}].addresses"), "must contain at least 1 address"));
        }
        for (j, address) in addresses.iter().enumerate() {
            let text = address.as_str().unwrap_or_default();
            let good = match slice["addressType"].as_str() {
                Some("IPv4") => text.parse::<std::net::Ipv4Addr>().is_ok(),
                Some("IPv6") => text.parse::<std::net::Ipv6Addr>().is_ok(),
                _ => !text.is_empty(),
            };
            if !good {
                let field = format!("endpoints[{i}].addresses[{j}]");
                causes.push(Cause::invalid(
                    field,
                    text,
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ));
            }
        }
    }
    causes
}

/// Leases, whose times count microseconds.
pub(crate) struct LeaseRules;

impl Rules for LeaseRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        for field in ["acquireTime", "renewTime"] {
            let text = body["spec"][field].as_str().unwrap_or_default();
            if !text.is_empty() && !text.contains('.') {
                return Err(format!("parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": no microseconds"));
            }
        }
        let mut lease = typed::<Lease>(body)?;
        map_at(&mut lease, "spec");
        Ok(lease)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<Lease>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        let spec = &new["spec"];
        let mut causes = Vec::new();
        if let Some(seconds) = spec["leaseDurationSeconds"].as_i64()
            && seconds <= 0
        {
            causes.push(Cause::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
        }
        if let Some(count) = spec["leaseTransitions"].as_i64()
            && count < 0
        {
            causes.push(Cause::invalid("spec.leaseTransitions", count, "must be greater than or equal to 0"));
        }
        causes
    }

    fn update(&self, ground: &Ground<'_>, served: &Served, _old: &Value, new: &mut Value) -> Vec<Cause> {
        self.create(ground, served, new)
    }
}
