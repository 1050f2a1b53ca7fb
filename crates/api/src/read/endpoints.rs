//! From an EndpointSlice to where the ready endpoints of a Service are.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use purelb_core::endpoints::{EndpointView, Health, SliceView};
use purelb_core::pool::ServiceKey;

/// The label that names the Service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Reads an EndpointSlice: the Service it belongs to, and its endpoints. One that belongs to no Service gives nothing.
pub fn endpoint_slice(object: &EndpointSlice) -> Option<(ServiceKey, SliceView)> {
    let service = object.labels().get(SERVICE_NAME).filter(|name| !name.is_empty())?;
    let key = format!("{}/{service}", object.namespace().unwrap_or_default());
    let endpoints = object.endpoints.iter().flat_map(views).collect();
    Some((key.into(), SliceView { name: object.name_any(), endpoints }))
}

/// One view for each address; an endpoint that says no node is on none.
fn views(endpoint: &Endpoint) -> impl Iterator<Item = EndpointView> + use<'_> {
    let conditions = endpoint.conditions.as_ref();
    let health = Health::new(conditions.and_then(|c| c.ready), conditions.and_then(|c| c.serving));
    let node = endpoint.node_name.as_deref().filter(|node| !node.is_empty());
    node.into_iter().flat_map(move |node| {
        let view = move |addr: &String| EndpointView { addr: addr.as_str().into(), node: node.into(), health };
        endpoint.addresses.iter().map(view)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(labels: Value, endpoints: Value) -> Option<(ServiceKey, SliceView)> {
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-x7k", "namespace": "shop", "labels": labels}, "endpoints": endpoints,
        });
        endpoint_slice(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a13_b15_a_slice_says_where_ready_endpoints_are() {
        let endpoints = json!([
            {"addresses": ["10.1.0.1", "10.1.0.2"], "nodeName": "a", "conditions": {"ready": true}},
            {"addresses": ["10.1.0.3"], "nodeName": "b"},
            {"addresses": ["10.1.0.4"], "nodeName": "c", "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.1.0.5"], "nodeName": "d", "conditions": {"ready": false}},
            {"addresses": ["10.1.0.6"], "conditions": {"ready": true}},
        ]);
        let (key, slice) = read(json!({"kubernetes.io/service-name": "web"}), endpoints).unwrap();
        let seen: Vec<_> = slice.endpoints.iter().map(|e| (&*e.addr, &*e.node, e.health)).collect();
        let expected = [
            ("10.1.0.1", "a", Health::Ready),
            ("10.1.0.2", "a", Health::Ready),
            ("10.1.0.3", "b", Health::Ready),
            ("10.1.0.4", "c", Health::Draining),
            ("10.1.0.5", "d", Health::Down),
        ];
        assert_eq!((&*key, slice.name.as_str(), seen.as_slice()), ("shop/web", "web-x7k", &expected[..]));
    }

    #[test]
    fn a_slice_without_endpoints_or_without_a_service_is_no_reason_to_stumble() {
        let labels = json!({"kubernetes.io/service-name": "web"});
        assert!(read(labels, json!(null)).is_some_and(|(_, slice)| slice.endpoints.is_empty()));
        assert!(read(json!({}), json!([])).is_none());
    }
}
