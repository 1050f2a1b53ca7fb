//! Sessions: passwords, hops, who dials, and what happens when one side goes.

use std::time::Duration;

use anyhow::Result;
use purelb_bgp::{Farewell, Peer, PeerReport, Secret, State, Ttl};
use purelb_lab::router::{Make, Neighbour};
use rstest::rstest;

use crate::site::{NODE_AS, Site, router_peer, v4, v6};

/// A node as the router knows it.
pub fn neighbour(number: u8) -> Neighbour {
    Neighbour::new(v4(number), NODE_AS)
}

/// A site whose one node has told the router one route.
pub fn settled(make: Make, know: impl Fn(u8) -> Neighbour, peer: Peer) -> Result<Site> {
    let site = Site::new(make, 1, know)?;
    site.nodes[0].set(vec![peer], &["192.0.2.1/32"]);
    site.nodes[0].in_session(v4(254))?;
    site.has("192.0.2.1/32", &[v4(1)])?;
    Ok(site)
}

#[rstest]
fn the_same_password_is_let_in_whoever_dials(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
    #[values(false, true)] passive: bool,
    #[values(false, true)] over_v6: bool,
) -> Result<()> {
    let own = |number| if over_v6 { v6(number) } else { v4(number) };
    let password = Some("correct-horse".to_owned());
    let know =
        |number| Neighbour { password: password.clone(), passive: !passive, ..Neighbour::new(own(number), NODE_AS) };
    let site = Site::new(make, 1, know)?;
    let peer = Peer { password: Secret::new("correct-horse"), passive, ..router_peer(own(254)) };
    let route = if over_v6 { "2001:db8::1/128" } else { "192.0.2.1/32" };
    site.nodes[0].set(vec![peer], &[route]);
    site.has(route, &[own(1)])
}

#[rstest]
fn another_password_is_said_and_mended_without_a_restart(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let know = |number| Neighbour { password: Some("correct-horse".into()), ..neighbour(number) };
    let site = Site::new(make, 1, know)?;
    let peer = |password: &str| {
        let connect_retry = Duration::from_secs(2);
        Peer { password: Secret::new(password), connect_retry, ..router_peer(v4(254)) }
    };
    site.nodes[0].set(vec![peer("battery-staple")], &["192.0.2.1/32"]);
    site.nodes[0].says(v4(254), "the passwords of the two sides may differ")?;
    assert!(!site.router().is_established(v4(1)));
    site.nodes[0].set(vec![peer("correct-horse")], &["192.0.2.1/32"]);
    site.has("192.0.2.1/32", &[v4(1)])
}

#[rstest]
fn ttl_security_on_both_sides_is_a_session(#[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make) -> Result<()> {
    let know = |number| Neighbour { ttl_security: true, ..neighbour(number) };
    settled(make, know, Peer { ttl: Ttl::Security(1), ..router_peer(v4(254)) }).map(drop)
}

/// Our packets with a TTL of 1 are too far away for the router, and its own are dropped by nobody.
#[rstest]
fn ttl_security_on_the_router_alone_is_not(#[values(Make::Bird, Make::Frr)] make: Make) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour { ttl_security: true, ..neighbour(number) })?;
    let peer = Peer { connect_retry: Duration::from_secs(1), hold: Duration::from_secs(3), ..router_peer(v4(254)) };
    site.nodes[0].set(vec![peer], &["192.0.2.1/32"]);
    site.nodes[0].wait_for(v4(254), "there is a fault", |report| report.fault.is_some())?;
    assert!(site.router().next_hops("192.0.2.1/32")?.is_empty());
    Ok(())
}

/// The packets of an external session have a TTL of 1, unless somebody says otherwise: too far away for us.
#[rstest]
fn a_router_that_seems_to_be_far_away_is_not_talked_to(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
    #[values(false, true)] router_dials: bool,
) -> Result<()> {
    let know = |number| Neighbour { passive: !router_dials, ..neighbour(number) };
    let site = Site::new(make, 1, know)?;
    let near = |ttl| Peer { ttl, connect_retry: Duration::from_secs(1), ..router_peer(v4(254)) };
    site.nodes[0].set(vec![near(Ttl::Security(1))], &["192.0.2.1/32"]);
    site.nodes[0].says(v4(254), "further away than allowed")?;
    assert!(!site.router().is_established(v4(1)));
    assert!(site.router().next_hops("192.0.2.1/32")?.is_empty());
    let report = site.nodes[0].report(v4(254)).expect("the peer is in the wish");
    assert_eq!(report.counts.ups, 0, "it never was in session");
    site.nodes[0].set(vec![near(Ttl::Usual)], &["192.0.2.1/32"]);
    site.has("192.0.2.1/32", &[v4(1)])
}

#[rstest]
fn a_passive_node_is_dialled_by_the_router(#[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make) -> Result<()> {
    settled(make, neighbour, Peer { passive: true, ..router_peer(v4(254)) }).map(drop)
}

#[rstest]
fn a_passive_router_is_dialled_by_the_node(#[values(Make::Bird, Make::Frr)] make: Make) -> Result<()> {
    settled(make, |number| Neighbour { passive: true, ..neighbour(number) }, router_peer(v4(254))).map(drop)
}

/// Both sides dial whenever they can, over and over; one session is left each time, and it stays.
#[rstest]
fn whoever_is_faster_one_session_is_left(#[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make) -> Result<()> {
    let mut site = settled(make, neighbour, router_peer(v4(254)))?;
    for _ in 0..5 {
        site.nodes[0].stop(Farewell::Cease("again".into()));
        site.nodes[0].restart()?;
        site.nodes[0].set(vec![router_peer(v4(254))], &["192.0.2.1/32"]);
        site.nodes[0].in_session(v4(254))?;
        site.has("192.0.2.1/32", &[v4(1)])?;
    }
    let before = site.nodes[0].in_session(v4(254))?.counts;
    let old =
        |report: &PeerReport| report.since.is_some_and(|since| since.elapsed().is_ok_and(|age| age.as_secs() >= 4));
    let after = site.nodes[0].wait_for(v4(254), "the session is four seconds old", old)?;
    assert_eq!((after.state, after.counts.flaps), (State::Established, before.flaps), "it stays");
    Ok(())
}

#[rstest]
fn a_router_that_was_restarted_learns_the_routes_again(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let mut site = settled(make, neighbour, router_peer(v4(254)))?;
    site.kill_router();
    site.nodes[0].wait_for(v4(254), "the session falls", |report| report.state != State::Established)?;
    site.start_router()?;
    site.has("192.0.2.1/32", &[v4(1)])?;
    assert!(site.nodes[0].in_session(v4(254))?.counts.ups >= 2);
    Ok(())
}

#[rstest]
fn clear_bgp_is_survived_and_a_refresh_is_answered(#[values(Make::Bird, Make::Frr)] make: Make) -> Result<()> {
    let site = settled(make, neighbour, router_peer(v4(254)))?;
    let sent = site.nodes[0].in_session(v4(254))?.counts.updates_sent;
    site.router().refresh(v4(1))?;
    site.nodes[0].wait_for(v4(254), "all is told again", |report| report.counts.updates_sent > sent)?;
    assert_eq!(site.nodes[0].in_session(v4(254))?.counts.flaps, 0);
    site.router().clear(v4(1))?;
    site.nodes[0].wait_for(v4(254), "the session was reset", |report| report.counts.ups == 2)?;
    site.has("192.0.2.1/32", &[v4(1)])
}

#[rstest]
fn the_words_of_a_shutdown_reach_the_router_and_its_routes_are_gone(
    #[values(Make::Bird, Make::Frr)] make: Make,
) -> Result<()> {
    let mut site = settled(make, neighbour, router_peer(v4(254)))?;
    site.nodes[0].stop(Farewell::Cease("node drained".into()));
    site.has("192.0.2.1/32", &[])?;
    let words = site.router().neighbour(v4(1))? + &site.router().log();
    assert!(words.contains("node drained"), "{words}");
    Ok(())
}

/// Graceful restart: the route stays in the router's kernel while there is no speaker.
#[rstest]
fn a_speaker_that_restarts_gracefully_keeps_its_routes(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let know = |number| Neighbour { graceful_restart: true, ..neighbour(number) };
    let peer = Peer { graceful_restart: Some(Duration::from_secs(60)), ..router_peer(v4(254)) };
    let mut site = settled(make, know, peer.clone())?;
    assert_eq!(site.nodes[0].in_session(v4(254))?.restart_time, 60);
    site.nodes[0].stop(Farewell::Silent);
    site.router().wait_for("the session is seen to be down", |router| !router.is_established(v4(1)))?;
    assert_eq!(site.router().next_hops("192.0.2.1/32")?, [v4(1)], "the route outlives the speaker");
    site.nodes[0].restart()?;
    let mut wish = site.nodes[0].wish(vec![peer.clone()], &[]);
    (wish.global.restarting, wish.complete) = (true, false);
    site.nodes[0].speaker().set(wish);
    site.nodes[0].wait_for(v4(254), "the session is up", |report| report.state == State::Established)?;
    assert_eq!(site.router().next_hops("192.0.2.1/32")?, [v4(1)], "nothing is gone before all is said");
    site.nodes[0].set(vec![peer.clone()], &["192.0.2.2/32"]);
    site.has("192.0.2.2/32", &[v4(1)])?;
    site.has("192.0.2.1/32", &[])
}

#[rstest]
fn a_wrong_as_is_one_clear_sentence(#[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour { passive: true, ..neighbour(number) })?;
    site.nodes[0].set(vec![Peer { asn: 64999, ..router_peer(v4(254)) }], &[]);
    site.nodes[0].says(v4(254), "the peer says that its AS is 65100, the configuration says 64999")
}

#[rstest]
fn an_internal_session_works_too(#[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make) -> Result<()> {
    let site = Site::new(make, 1, |number| Neighbour::new(v4(number), crate::site::ROUTER_AS))?;
    let peer = Peer { local_asn: Some(crate::site::ROUTER_AS), ..router_peer(v4(254)) };
    site.nodes[0].set(vec![peer], &["192.0.2.1/32"]);
    site.has("192.0.2.1/32", &[v4(1)])
}

/// A router from before RFC 6793. BIRD takes only a neighbour of two octets then.
#[test]
fn a_router_that_reads_as_numbers_of_two_octets_is_told_in_two() -> Result<()> {
    let old = |number| Neighbour { four_octets: false, ..Neighbour::new(v4(number), 65007) };
    let site = settled(Make::Bird, old, Peer { local_asn: Some(65007), ..router_peer(v4(254)) })?;
    let words = site.router().ask("show route all for 192.0.2.1/32")?;
    assert!(words.contains("BGP.as_path: 65007"), "{words}");
    Ok(())
}
