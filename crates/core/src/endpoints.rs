//! Which nodes have a ready endpoint of a Service.

use std::collections::{BTreeMap, BTreeSet};

/// The endpoints of a Service, slice by slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// A list, because nearly every Service has one slice only.
    slices: Vec<SliceView>,
}

/// One EndpointSlice, reduced to what decisions need.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SliceView {
    /// Its name.
    pub name: String,
    /// The endpoints that are on a node.
    pub endpoints: Vec<EndpointView>,
}

/// One address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EndpointView {
    /// The address as it is written.
    pub addr: Box<str>,
    /// The node it is on.
    pub node: Box<str>,
    /// Whether it takes traffic.
    pub healthy: bool,
}

/// Whether an endpoint takes traffic, by its conditions.
///
/// Unknown readiness is to be taken as ready, and unknown serving as the readiness. A terminating endpoint is never
/// ready but may still be serving, and then drains rather than cuts its connections.
pub fn is_healthy(ready: Option<bool>, serving: Option<bool>) -> bool {
    let ready = ready.unwrap_or(true);
    ready || serving.unwrap_or(ready)
}

impl Endpoints {
    /// A slice is there and looks like this.
    pub fn hear(&mut self, slice: SliceView) {
        match self.slices.iter_mut().find(|known| known.name == slice.name) {
            Some(known) => *known = slice,
            None => self.slices.push(slice),
        }
    }

    /// A slice is gone.
    pub fn gone(&mut self, slice: &str) {
        self.slices.retain(|known| known.name != slice);
    }

    /// Whether no slice is left.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// The nodes with a ready endpoint.
    ///
    /// A Service with many ports may have an address in several slices: it is ready only if it is so in all of them.
    pub fn nodes(&self) -> BTreeSet<String> {
        let mut health: BTreeMap<(&str, &str), bool> = BTreeMap::new();
        for endpoint in self.slices.iter().flat_map(|slice| &slice.endpoints) {
            *health.entry((&endpoint.node, &endpoint.addr)).or_insert(true) &= endpoint.healthy;
        }
        health.into_iter().filter(|(_, healthy)| *healthy).map(|((node, _), _)| node.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn slice(name: &str, endpoints: &[(&str, &str, bool)]) -> SliceView {
        let view = |(node, addr, healthy): &(&str, &str, bool)| EndpointView {
            addr: (*addr).into(),
            node: (*node).into(),
            healthy: *healthy,
        };
        SliceView { name: name.to_owned(), endpoints: endpoints.iter().map(view).collect() }
    }

    fn nodes(slices: &[SliceView]) -> Vec<String> {
        let mut endpoints = Endpoints::default();
        slices.iter().cloned().for_each(|slice| endpoints.hear(slice));
        endpoints.nodes().into_iter().collect()
    }

    #[rstest]
    #[case::ready(Some(true), Some(true), true)]
    #[case::neither(Some(false), Some(false), false)]
    #[case::a13_serving_only(Some(false), Some(true), true)]
    #[case::b15_i13_nothing_said(None, None, true)]
    #[case::b15_serving_follows_ready(Some(false), None, false)]
    #[case::b15_ready_not_said(None, Some(false), true)]
    fn an_endpoint_is_ready_as_the_api_defines_it(
        #[case] ready: Option<bool>,
        #[case] serving: Option<bool>,
        #[case] healthy: bool,
    ) {
        assert_eq!(is_healthy(ready, serving), healthy);
    }

    #[test]
    fn a13_each_node_with_a_ready_endpoint_counts_once() {
        let one = slice("web-1", &[("b", "10.1.0.1", true), ("a", "10.1.0.2", true), ("c", "10.1.0.3", false)]);
        let two = slice("web-2", &[("a", "10.1.0.4", true)]);
        assert_eq!(nodes(&[one, two]), ["a", "b"]);
        assert!(nodes(&[]).is_empty());
        assert!(nodes(&[slice("web-1", &[])]).is_empty());
    }

    #[test]
    fn an_address_is_ready_only_if_all_its_ports_are() {
        let http = slice("web-http", &[("a", "10.1.0.1", true), ("b", "10.1.0.2", true)]);
        let admin = slice("web-admin", &[("a", "10.1.0.1", false), ("b", "10.1.0.9", false)]);
        assert_eq!(nodes(&[http, admin]), ["b"]);
    }

    #[test]
    fn a_slice_that_goes_or_changes_takes_its_nodes_along() {
        let mut endpoints = Endpoints::default();
        endpoints.hear(slice("web-1", &[("a", "10.1.0.1", true)]));
        endpoints.hear(slice("web-2", &[("b", "10.1.0.2", true)]));
        endpoints.hear(slice("web-1", &[("c", "10.1.0.3", true)]));
        assert_eq!(endpoints.nodes(), BTreeSet::from(["b".to_owned(), "c".to_owned()]));
        endpoints.gone("web-2");
        assert_eq!(endpoints.nodes(), BTreeSet::from(["c".to_owned()]));
        endpoints.gone("web-1");
        assert!(endpoints.is_empty() && endpoints.nodes().is_empty());
    }
}
