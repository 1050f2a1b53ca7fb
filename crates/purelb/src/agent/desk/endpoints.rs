//! The endpoints of Services, kept small, and which nodes have a ready one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use purelb_core::endpoints::{EndpointView, Endpoints, Health, SliceView};
use purelb_core::pool::ServiceKey;

use crate::agent::event::{API_SERVER, SliceNews};
use crate::cluster::known::{Known, Noted};
use crate::cluster::watch::Change;

/// All EndpointSlices of Services that have a cluster address, by Service and name.
///
/// Any Service may one day follow its endpoints, so that those of all are kept; but few do, so that they are packed.
#[derive(Default)]
pub(super) struct Slices {
    known: Known<(ServiceKey, Box<str>), Packed>,
    /// The endpoints of the API server, wherever they are.
    api_servers: BTreeMap<Box<str>, Vec<IpAddr>>,
}

/// The endpoints of a slice as one text: address, node and health of each, by tabs and line ends.
#[derive(Debug)]
struct Packed(Box<str>);

impl Packed {
    fn new(slice: &SliceView) -> Self {
        let line = |endpoint: &EndpointView| {
            let health = match endpoint.health {
                Health::Ready => "up",
                Health::Draining => "ends",
                Health::Down => "",
            };
            format!("{}\t{}\t{health}\n", endpoint.addr, endpoint.node)
        };
        Self(slice.endpoints.iter().map(line).collect::<String>().into())
    }

    fn unpack(&self, name: &str) -> SliceView {
        let endpoint = |line: &str| {
            let mut parts = line.split('\t');
            let (addr, node) = (parts.next()?.into(), parts.next()?.into());
            let health = match parts.next() {
                Some("up") => Health::Ready,
                Some("ends") => Health::Draining,
                _ => Health::Down,
            };
            Some(EndpointView { addr, node, health })
        };
        SliceView { name: name.to_owned(), endpoints: self.0.lines().filter_map(endpoint).collect() }
    }
}

impl Slices {
    /// Whether all slices are known.
    pub fn is_complete(&self) -> bool {
        self.known.is_complete()
    }

    /// Takes a change in; answers with the Services whose endpoints may be others now.
    pub fn take(&mut self, change: Change<Box<SliceNews>>) -> BTreeSet<ServiceKey> {
        if let Change::Here(slice) = &change
            && *slice.service == *API_SERVER
        {
            self.api_servers.insert(slice.view.name.as_str().into(), slice.addresses.clone());
        }
        let packed = change.map(|slice| {
            let name = slice.view.name.as_str().into();
            ((slice.service, name), Packed::new(&slice.view))
        });
        let mut touched = BTreeSet::new();
        for noted in self.known.take(packed) {
            match noted {
                Noted::Here((service, _)) => drop(touched.insert(service)),
                Noted::Gone((service, name), _) | Noted::Missing((service, name), _) => {
                    if *service == *API_SERVER {
                        self.api_servers.remove(&name);
                    }
                    touched.insert(service);
                }
            }
        }
        touched
    }

    /// The nodes with a ready endpoint of a Service.
    pub fn nodes(&self, service: &ServiceKey) -> BTreeSet<String> {
        let first = (service.clone(), Box::from(""));
        let mut endpoints = Endpoints::default();
        for ((_, name), packed) in self.known.from(&first).take_while(|((other, _), _)| other == service) {
            endpoints.hear(packed.unpack(name));
        }
        endpoints.nodes()
    }

    /// Where the API servers are.
    pub fn api_servers(&self) -> impl Iterator<Item = IpAddr> {
        self.api_servers.values().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Health::{Down, Draining, Ready};
    use super::*;

    fn slice(service: &str, name: &str, endpoints: &[(&str, &str, Health)]) -> Box<SliceNews> {
        let view = |(addr, node, health): &(&str, &str, Health)| EndpointView {
            addr: (*addr).into(),
            node: (*node).into(),
            health: *health,
        };
        let view = SliceView { name: name.to_owned(), endpoints: endpoints.iter().map(view).collect() };
        let addresses = endpoints.iter().filter_map(|(addr, ..)| addr.parse().ok()).collect();
        Box::new(SliceNews { service: service.into(), view, addresses })
    }

    #[test]
    fn the_nodes_of_a_service_come_from_all_its_slices_and_no_others() {
        let mut slices = Slices::default();
        slices.take(Change::Here(slice("shop/web", "web-1", &[("10.1.0.1", "a", Ready), ("10.1.0.2", "b", Down)])));
        slices.take(Change::Here(slice("shop/web", "web-2", &[("10.1.0.3", "c", Ready), ("10.1.0.1", "a", Ready)])));
        slices.take(Change::Here(slice("shop/web2", "web-3", &[("10.1.0.4", "d", Ready)])));
        slices.take(Change::Here(slice("shop/we", "web-4", &[("10.1.0.5", "e", Ready)])));
        let nodes = |slices: &Slices| slices.nodes(&"shop/web".into()).into_iter().collect::<Vec<_>>();
        assert_eq!(nodes(&slices), ["a", "c"]);
        let touched = slices.take(Change::Gone(slice("shop/web", "web-2", &[])));
        assert_eq!((touched, nodes(&slices)), (["shop/web".into()].into(), vec!["a".to_owned()]));
        slices.take(Change::Here(slice("shop/web", "web-1", &[("10.1.0.1", "a", Draining), ("10.1.0.2", "b", Down)])));
        assert_eq!(nodes(&slices), ["a"], "it still answers");
        slices.take(Change::Restarted);
        let touched = slices.take(Change::Complete);
        assert_eq!((touched.len(), nodes(&slices).len()), (3, 0), "a new list that names none leaves none");
    }

    #[test]
    fn the_api_servers_are_the_endpoints_of_their_service() {
        let mut slices = Slices::default();
        slices.take(Change::Here(slice(
            API_SERVER,
            "kubernetes",
            &[("192.0.2.1", "", Ready), ("192.0.2.2", "", Ready)],
        )));
        assert_eq!(slices.api_servers().count(), 2);
        slices.take(Change::Gone(slice(API_SERVER, "kubernetes", &[])));
        assert_eq!(slices.api_servers().count(), 0);
    }
}
