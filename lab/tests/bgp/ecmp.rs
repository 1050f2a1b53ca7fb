//! Three nodes that serve one address: the router spreads over all of them, and follows when one stops.

use anyhow::Result;
use purelb_bgp::Farewell;
use purelb_lab::router::{Make, Neighbour};
use rstest::rstest;

use crate::site::{NODE_AS, Site, router_peer, v4, v6};

#[rstest]
#[case(Make::Bird, false)]
#[case(Make::Bird, true)]
#[case(Make::Frr, false)]
#[case(Make::Frr, true)]
// Over IPv6, GoBGP always asks for IPv6 next hops: the families tell that story.
#[case(Make::GoBgp, false)]
fn three_nodes_are_three_next_hops(#[case] make: Make, #[case] over_v6: bool) -> Result<()> {
    let own = |number| if over_v6 { v6(number) } else { v4(number) };
    let mut site = Site::new(make, 3, |number| Neighbour::new(own(number), NODE_AS))?;
    let routes = ["192.0.2.1/32", "198.51.100.0/24", "2001:db8::1/128", "2001:db8:1::/64"];
    site.nodes.iter().for_each(|node| node.set(vec![router_peer(own(254))], &routes));
    let hops = |route: &str, nodes: &[u8]| -> Vec<_> {
        nodes.iter().map(|number| if route.contains(':') { v6(*number) } else { v4(*number) }).collect()
    };
    for route in routes {
        site.has(route, &hops(route, &[1, 2, 3]))?;
    }
    // The pod moves away from the second node.
    site.nodes[1].set(vec![router_peer(own(254))], &routes[1..]);
    site.has(routes[0], &hops(routes[0], &[1, 3]))?;
    site.has(routes[1], &hops(routes[1], &[1, 2, 3]))?;
    // The third node leaves.
    site.nodes[2].stop(Farewell::Cease("drained".into()));
    site.has(routes[0], &hops(routes[0], &[1]))?;
    site.has(routes[3], &hops(routes[3], &[1, 2]))
}
