//! What a neighbour can be told beside its address: how far away it is, from where it is dialled, and what it hears.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;
use purelb_bgp::{Advertise, Peer, PeerReport, State, Ttl};
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::router::{Make, Neighbour, Router};
use rstest::rstest;

use crate::sessions::{neighbour, settled};
use crate::site::{NODE_AS, Node, ROUTER_AS, Site, router_peer, v4, v6};

const ROUTE: &str = "192.0.2.1/32";

fn hasty(peer: Peer) -> Peer {
    Peer { connect_retry: Duration::from_secs(1), ..peer }
}

/// Two segments and a machine between them that only forwards.
///
/// ```text
///  node (10.9.0.1) ── (10.9.0.3) middle (10.10.0.3) ── (10.10.0.254) router
/// ```
struct Road {
    node: Node,
    router: Router,
    _lans: [Lan; 2],
    _middle: Namespace,
}

impl Road {
    const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 3);
    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 254);

    fn new(make: Make) -> Result<Self> {
        let (near, far) = (Lan::new()?, Lan::new()?);
        let (middle, space) = (Namespace::new("middle")?, Namespace::new("router")?);
        near.plug(&middle, "eth0", &["10.9.0.3/24"])?;
        far.plug(&middle, "eth1", &["10.10.0.3/24"])?;
        middle.sysctl("net.ipv4.ip_forward", "1")?;
        far.plug(&space, "eth0", &["10.10.0.254/24"])?;
        space.batch("route add 10.9.0.0/24 via 10.10.0.3\n")?;
        let node = Node::new(&near, 1)?;
        node.space.batch("route add 10.10.0.0/24 via 10.9.0.3\n")?;
        let router = Router::start_with(make, &space, &Self::config(make))?;
        Ok(Self { node, router, _lans: [near, far], _middle: middle })
    }

    /// A router that takes a neighbour two hops away, and finds its next hops by the routes it has. It waits: on a
    /// connection of its own it would not hear that a node with a TTL of 1 gives up.
    fn config(make: Make) -> String {
        match make {
            Make::Bird => format!(
                "log stderr all;
router id 10.10.0.254;
protocol device {{ scan time 1; }}
protocol kernel {{ ipv4 {{ export where proto != \"road\"; import none; }}; }}
protocol static road {{ ipv4; route 10.9.0.0/24 via 10.10.0.3; }}
protocol bgp n_10_9_0_1 {{
  local as {ROUTER_AS};
  neighbor 10.9.0.1 as {NODE_AS};
  multihop 2;
  passive on;
  ipv4 {{ import all; export none; }};
}}
"
            ),
            _ => format!(
                "router bgp {ROUTER_AS}
 bgp router-id 10.10.0.254
 no bgp ebgp-requires-policy
 neighbor 10.9.0.1 remote-as {NODE_AS}
 neighbor 10.9.0.1 ebgp-multihop 2
 neighbor 10.9.0.1 passive
"
            ),
        }
    }
}

#[rstest]
fn a_router_two_hops_away_is_reached_if_that_is_said(#[values(Make::Bird, Make::Frr)] make: Make) -> Result<()> {
    let road = Road::new(make)?;
    let router: IpAddr = Road::ROUTER.into();
    let far = |ttl| hasty(Peer { ttl, hold: Duration::from_secs(9), ..Peer::new(router, ROUTER_AS) });
    road.node.set(vec![far(Ttl::Usual)], &[ROUTE]);
    road.node.says(router, "further away than allowed")?;
    assert!(!road.router.is_established(v4(1)));
    road.node.set(vec![far(Ttl::Multihop(2))], &[ROUTE]);
    road.node.in_session(router)?;
    let way = [IpAddr::from(Road::MIDDLE)];
    road.router
        .wait_for("the route goes back the same way", |router| router.next_hops(ROUTE).is_ok_and(|hops| hops == way))
}

/// The router waits, and knows another address of the node than the one its kernel would choose.
#[rstest]
fn a_session_comes_from_the_source_address_that_is_asked_for(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let know = |_| Neighbour { passive: true, ..Neighbour::new(v4(101), NODE_AS) };
    let site = Site::new(make, 1, know)?;
    site.nodes[0].space.batch("addr add 10.9.0.101/24 dev eth0\n")?;
    site.nodes[0].set(vec![hasty(router_peer(v4(254)))], &[ROUTE]);
    let fault = |report: &PeerReport| report.fault.is_some() && report.counts.ups == 0;
    site.nodes[0].wait_for(v4(254), "the router does not know the other address", fault)?;
    site.nodes[0].set(vec![Peer { source: Some(v4(101)), ..hasty(router_peer(v4(254))) }], &[ROUTE]);
    site.has(ROUTE, &[v4(101)])
}

/// The node's routes lead the other way.
#[rstest]
fn a_session_keeps_to_the_interface_that_is_asked_for(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour { passive: true, ..neighbour(number) })?;
    let nowhere = Lan::new()?;
    let space = &site.nodes[0].space;
    nowhere.plug(space, "eth1", &["10.99.0.1/24"])?;
    space.batch("route add 10.9.0.254/32 dev eth1 src 10.9.0.1\n")?;
    for interface in ["all", "eth0"] {
        space.sysctl(&format!("net.ipv4.conf.{interface}.rp_filter"), "0")?;
    }
    site.nodes[0].set(vec![hasty(router_peer(v4(254)))], &[ROUTE]);
    let fault = |report: &PeerReport| report.fault.is_some() && report.counts.ups == 0;
    site.nodes[0].wait_for(v4(254), "the router is not found", fault)?;
    site.nodes[0].set(vec![Peer { interface: Some("eth0".into()), ..hasty(router_peer(v4(254))) }], &[ROUTE]);
    site.has(ROUTE, &[v4(1)])?;
    site.nodes[0].set(vec![Peer { interface: Some("eth7".into()), ..hasty(router_peer(v4(254))) }], &[ROUTE]);
    site.nodes[0].says(v4(254), "binding to the interface")
}

#[rstest]
fn a_next_hop_that_is_asked_for_is_the_one_the_router_uses(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let site = Site::new(make, 1, neighbour)?;
    let (IpAddr::V4(hop_v4), IpAddr::V6(hop_v6)) = (v4(77), v6(77)) else { unreachable!("one of each family") };
    let by_hand = Peer { next_hop_v4: Some(hop_v4), next_hop_v6: Some(hop_v6), ..router_peer(v4(254)) };
    let routes = [ROUTE, "2001:db8::1/128"];
    site.nodes[0].set(vec![by_hand], &routes);
    site.has(routes[0], &[v4(77)])?;
    site.has(routes[1], &[v6(77)])?;
    let before = site.nodes[0].in_session(v4(254))?.counts.ups;
    // Without a new session it is taken back.
    site.nodes[0].set(vec![router_peer(v4(254))], &routes);
    site.has(routes[0], &[v4(1)])?;
    site.has(routes[1], &[v6(1)])?;
    assert_eq!(site.nodes[0].in_session(v4(254))?.counts.ups, before);
    Ok(())
}

#[rstest]
#[case(Make::Bird, "show route all for 192.0.2.1/32", "BGP.local_pref: 250")]
#[case(Make::Frr, "show bgp ipv4 unicast 192.0.2.1/32", "localpref 250")]
#[case(Make::GoBgp, "global rib -a ipv4", "{LocalPref: 250}")]
fn a_router_of_our_own_as_sees_the_preference_that_is_asked_for(
    #[case] make: Make,
    #[case] question: &str,
    #[case] words: &str,
) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour::new(v4(number), ROUTER_AS))?;
    let advertise = Advertise { local_pref: Some(250), ..Advertise::default() };
    let peer = Peer { local_asn: Some(ROUTER_AS), advertise, ..router_peer(v4(254)) };
    site.nodes[0].set(vec![peer], &[ROUTE]);
    site.has(ROUTE, &[v4(1)])?;
    let shown = site.router().ask(question)?;
    assert!(shown.contains(words), "{shown}");
    Ok(())
}

#[rstest]
fn a_neighbor_that_is_kept_down_is_told_so_and_has_no_route(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let site = settled(make, neighbour, router_peer(v4(254)))?;
    site.nodes[0].set(vec![Peer { admin_down: true, ..router_peer(v4(254)) }], &[ROUTE]);
    site.has(ROUTE, &[])?;
    site.router().wait_for("the session is down", |router| !router.is_established(v4(1)))?;
    let down = site.nodes[0].wait_for(v4(254), "nobody tries", |report| report.state == State::Idle)?;
    assert_eq!(down.counts.last_notification.map(|(_, code, subcode)| (code, subcode)), Some((6, 2)));
    site.nodes[0].set(vec![router_peer(v4(254))], &[ROUTE]);
    site.has(ROUTE, &[v4(1)])
}
