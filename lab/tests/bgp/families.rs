//! Both families over either transport, and what attributes routers see.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::Result;
use purelb_bgp::{Advertise, Families, Family, Fault, Peer};
use purelb_lab::router::{Make, Neighbour};
use rstest::rstest;

use crate::site::{NODE_AS, Site, router_peer, v4, v6};

const ROUTES: &[&str] = &["192.0.2.1/32", "198.51.100.0/24", "2001:db8::1/128", "2001:db8:1::/64"];

#[rstest]
fn both_families_travel_over_ipv4(#[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour::new(v4(number), NODE_AS))?;
    site.nodes[0].set(vec![router_peer(v4(254))], ROUTES);
    all_through_the_node(&site)?;
    site.nodes[0].set(vec![router_peer(v4(254))], &[]);
    ROUTES.iter().try_for_each(|route| site.has(route, &[]))
}

#[rstest]
fn both_families_travel_over_ipv6(#[values(Make::Bird, Make::Frr)] make: Make) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour::new(v6(number), NODE_AS))?;
    site.nodes[0].set(vec![router_peer(v6(254))], ROUTES);
    all_through_the_node(&site)?;
    site.nodes[0].set(vec![router_peer(v6(254))], &[]);
    ROUTES.iter().try_for_each(|route| site.has(route, &[]))
}

fn all_through_the_node(site: &Site) -> Result<()> {
    site.has("192.0.2.1/32", &[v4(1)])?;
    site.has("198.51.100.0/24", &[v4(1)])?;
    site.has("2001:db8::1/128", &[v6(1)])?;
    site.has("2001:db8:1::/64", &[v6(1)])
}

/// The next hop of IPv6 is told with both addresses of the node (RFC 2545 §3), and routers take either.
#[rstest]
fn both_families_travel_over_link_local_addresses(#[values(Make::Bird, Make::Frr)] make: Make) -> Result<()> {
    let near = |number: u8| IpAddr::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 9, number.into()));
    let site = Site::new(make, 1, |number| Neighbour::new(near(number), NODE_AS))?;
    for (space, number) in [(&site.space, 254), (&site.nodes[0].space, 1)] {
        space.batch(&format!("addr add {}/64 dev eth0 nodad\n", near(number)))?;
    }
    // Another interface has the same address, and nothing beside it that could be a next hop.
    let twin = format!("link add name aa0 type bridge\nlink set aa0 up\naddr add {}/64 dev aa0 nodad\n", near(1));
    site.nodes[0].space.batch(&twin)?;
    let (interface, source) = (Some("eth0".to_owned()), Some(near(1)));
    site.nodes[0].set(vec![Peer { interface, source, ..router_peer(near(254)) }], ROUTES);
    site.nodes[0].in_session(near(254))?;
    site.has("192.0.2.1/32", &[v4(1)])?;
    site.router().wait_for("IPv6 goes through the node", |router| {
        router.next_hops("2001:db8::1/128").is_ok_and(|hops| hops == [v6(1)] || hops == [near(1)])
    })
}

/// RFC 8950, where both sides have it: IPv4 through an IPv6 next hop.
#[rstest]
fn ipv4_goes_through_an_ipv6_next_hop_where_both_sides_can(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let know = |number| Neighbour { extended_next_hop: true, ..Neighbour::new(v6(number), NODE_AS) };
    let site = Site::new(make, 1, know)?;
    site.nodes[0].set(vec![router_peer(v6(254))], ROUTES);
    site.nodes[0].in_session(v6(254))?;
    site.has("2001:db8::1/128", &[v6(1)])?;
    site.router().wait_for("IPv4 goes through IPv6", |router| {
        router.next_hops("192.0.2.1/32").is_ok_and(|hops| hops.len() == 1 && hops[0].is_ipv6())
    })
}

#[rstest]
fn a_family_that_the_router_does_not_speak_is_reported(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour { v6: false, ..Neighbour::new(v4(number), NODE_AS) })?;
    site.nodes[0].set(vec![router_peer(v4(254))], ROUTES);
    site.has("192.0.2.1/32", &[v4(1)])?;
    let report = site.nodes[0].in_session(v4(254))?;
    assert_eq!(report.limits, [Fault::FamilyNotSpoken(Family::V6)]);
    assert_eq!(report.families, Families { v4: true, v6: false });
    Ok(())
}

#[rstest]
fn the_router_sees_the_attributes_that_were_asked_for(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour::new(v4(number), NODE_AS))?;
    let advertise = Advertise {
        communities: [65100 << 16 | 7, 0xffff_ff01].into(),
        large_communities: [[NODE_AS, 1, 2]].into(),
        med: Some(55),
        prepend: 2,
        ..Advertise::default()
    };
    site.nodes[0].set(vec![Peer { advertise, ..router_peer(v4(254)) }], ROUTES);
    site.has("192.0.2.1/32", &[v4(1)])?;
    let (question, expected) = match make {
        Make::Bird => (
            "show route all for 192.0.2.1/32",
            ["(65100,7)", "(65535,65281)", "(4200000100, 1, 2)", "BGP.med: 55", "4200000100 4200000100 4200000100"],
        ),
        Make::Frr => (
            "show bgp ipv4 unicast 192.0.2.1/32",
            ["65100:7", "no-export", "4200000100:1:2", "metric 55", "4200000100 4200000100 4200000100"],
        ),
        Make::GoBgp => (
            "global rib -a ipv4",
            ["65100:7", "no-export", "4200000100:1:2", "{Med: 55}", "4200000100 4200000100 4200000100"],
        ),
    };
    let words = site.router().ask(question)?;
    for part in expected {
        assert!(words.contains(part), "{part:?} is not in {words}");
    }
    Ok(())
}

#[rstest]
fn four_thousand_routes_come_and_go(#[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour::new(v4(number), NODE_AS))?;
    let v4_routes = (0..2000).map(|n| format!("192.{}.{}.1/32", 100 + n / 250, n % 250));
    let v6_routes = (0..2000).map(|n| format!("2001:db8:{n:x}::1/128"));
    let all: Vec<String> = v4_routes.chain(v6_routes).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    site.nodes[0].set(vec![router_peer(v4(254))], &[]);
    site.nodes[0].in_session(v4(254))?;
    for count in [2000, 0, 2000] {
        let begun = Instant::now();
        site.nodes[0].set(vec![router_peer(v4(254))], if count > 0 { &all } else { &[] });
        let there = |router: &purelb_lab::router::Router| {
            ["-4", "-6"].iter().all(|family| router.route_count(family).is_ok_and(|found| found == count))
        };
        site.router().wait_for(&format!("{count} routes of each family are in the kernel"), there)?;
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let sent = site.nodes[0].in_session(v4(254))?.counts.updates_sent;
    assert!(sent < 60, "8,000 announcements and 4,000 withdrawals in {sent} messages");
    Ok(())
}
