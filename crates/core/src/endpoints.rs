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
    pub health: Health,
}

/// Whether an endpoint takes traffic; the better, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Health {
    /// It does not.
    Down,
    /// It is about to end and still answers.
    Draining,
    /// It does.
    Ready,
}

impl Health {
    /// By the conditions of an endpoint. Unknown readiness is to be taken as ready, and unknown serving as the readiness.
    pub fn new(ready: Option<bool>, serving: Option<bool>) -> Self {
        let ready = ready.unwrap_or(true);
        match (ready, serving.unwrap_or(ready)) {
            (true, _) => Self::Ready,
            (false, true) => Self::Draining,
            (false, false) => Self::Down,
        }
    }
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

    /// The nodes with a ready endpoint; where there is none at all, those with one that still answers.
    ///
    /// New connections go where they will not be cut off in a moment, as kube-proxy's health checks tell other load
    /// balancers, too. A Service with many ports may have an address in several slices: it is as ready as in the worst.
    pub fn nodes(&self) -> BTreeSet<String> {
        let mut all: BTreeMap<(&str, &str), Health> = BTreeMap::new();
        for endpoint in self.slices.iter().flat_map(|slice| &slice.endpoints) {
            let health = all.entry((&endpoint.node, &endpoint.addr)).or_insert(Health::Ready);
            *health = endpoint.health.min(*health);
        }
        let best = all.values().copied().max().filter(|best| *best > Health::Down);
        all.into_iter().filter(|(_, health)| Some(*health) == best).map(|((node, _), _)| node.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::Health::{Down, Draining, Ready};
    use super::*;

    fn slice(name: &str, endpoints: &[(&str, &str, Health)]) -> SliceView {
        let view = |(node, addr, health): &(&str, &str, Health)| EndpointView {
            addr: (*addr).into(),
            node: (*node).into(),
            health: *health,
        };
        SliceView { name: name.to_owned(), endpoints: endpoints.iter().map(view).collect() }
    }

    fn nodes(slices: &[SliceView]) -> Vec<String> {
        let mut endpoints = Endpoints::default();
        slices.iter().cloned().for_each(|slice| endpoints.hear(slice));
        endpoints.nodes().into_iter().collect()
    }

    #[rstest]
    #[case::ready(Some(true), Some(true), Ready)]
    #[case::neither(Some(false), Some(false), Down)]
    #[case::a13_serving_only(Some(false), Some(true), Draining)]
    #[case::b15_i13_nothing_said(None, None, Ready)]
    #[case::b15_serving_follows_ready(Some(false), None, Down)]
    #[case::b15_ready_not_said(None, Some(false), Ready)]
    fn an_endpoint_is_ready_as_the_api_defines_it(
        #[case] ready: Option<bool>,
        #[case] serving: Option<bool>,
        #[case] health: Health,
    ) {
        assert_eq!(Health::new(ready, serving), health);
    }

    #[test]
    fn a13_each_node_with_a_ready_endpoint_counts_once() {
        let one = slice("web-1", &[("b", "10.1.0.1", Ready), ("a", "10.1.0.2", Ready), ("c", "10.1.0.3", Down)]);
        let two = slice("web-2", &[("a", "10.1.0.4", Ready)]);
        assert_eq!(nodes(&[one, two]), ["a", "b"]);
        assert!(nodes(&[]).is_empty());
        assert!(nodes(&[slice("web-1", &[])]).is_empty());
    }

    #[test]
    fn a13_an_endpoint_that_ends_counts_only_where_no_other_is_ready() {
        let (ends, fresh) = (("a", "10.1.0.1", Draining), ("b", "10.1.0.2", Ready));
        assert_eq!(nodes(&[slice("web-1", &[ends, ("c", "10.1.0.3", Down)])]), ["a"], "somebody has to answer");
        assert_eq!(nodes(&[slice("web-1", &[ends]), slice("web-2", &[fresh])]), ["b"]);
        assert_eq!(nodes(&[slice("web-1", &[ends, ("a", "10.1.0.3", Ready)])]), ["a"]);
    }

    #[test]
    fn an_address_is_ready_only_if_all_its_ports_are() {
        let http = slice("web-http", &[("a", "10.1.0.1", Ready), ("b", "10.1.0.2", Ready)]);
        let admin = slice("web-admin", &[("a", "10.1.0.1", Down), ("b", "10.1.0.9", Down)]);
        assert_eq!(nodes(&[http, admin]), ["b"]);
    }

    #[test]
    fn a_slice_that_goes_or_changes_takes_its_nodes_along() {
        let mut endpoints = Endpoints::default();
        endpoints.hear(slice("web-1", &[("a", "10.1.0.1", Ready)]));
        endpoints.hear(slice("web-2", &[("b", "10.1.0.2", Ready)]));
        endpoints.hear(slice("web-1", &[("c", "10.1.0.3", Ready)]));
        assert_eq!(endpoints.nodes(), BTreeSet::from(["b".to_owned(), "c".to_owned()]));
        endpoints.gone("web-2");
        assert_eq!(endpoints.nodes(), BTreeSet::from(["c".to_owned()]));
        endpoints.gone("web-1");
        assert!(endpoints.is_empty() && endpoints.nodes().is_empty());
    }
}
