//! One side falls silent and closes nothing: the hold timer of the other ends the session, and the route is gone.

use std::time::Duration;

use anyhow::Result;
use purelb_bgp::report::Direction;
use purelb_bgp::{Fault, Peer, PeerReport, State};
use purelb_lab::net::Capture;
use purelb_lab::router::Make;
use rstest::rstest;

use crate::sessions::{neighbour, settled};
use crate::site::{router_peer, v4};

const ROUTE: &str = "192.0.2.1/32";

/// The router's nine seconds are agreed on; the patience of our TCP is longer, so that it is BGP that speaks.
fn patient() -> Peer {
    Peer { hold: Duration::from_secs(30), ..router_peer(v4(254)) }
}

/// The router stands still; its kernel goes on to take what it is told.
#[rstest]
fn a_router_that_falls_silent_is_told_that_the_hold_timer_expired(
    #[values(Make::Bird, Make::Frr, Make::GoBgp)] make: Make,
) -> Result<()> {
    let site = settled(make, neighbour, patient())?;
    let wire = Capture::start(&site.nodes[0].space, "eth0", "tcp port 179 and src host 10.9.0.1")?;
    site.router().freeze()?;
    let told = |report: &PeerReport| report.counts.last_notification == Some((Direction::Sent, 4, 0));
    let fallen = site.nodes[0].wait_for(v4(254), "the router is told 4/0", told)?;
    assert_ne!(fallen.state, State::Established);
    assert_eq!(fallen.fault, Some(Fault::HoldExpired(9)));
    assert!(fallen.told.is_empty());
    wire.wait_for("the notification", |line| line.contains("Hold Timer Expired"))?;
    // Nobody is there to tell it anything new: what was told last counts.
    site.nodes[0].set(Vec::new(), &[]);
    site.router().thaw()?;
    site.has(ROUTE, &[])?;
    // GoBGP does not say why.
    let words = (site.router().neighbour(v4(1))? + &site.router().log()).to_lowercase();
    assert!(make == Make::GoBgp || words.contains("hold timer expired"), "{words}");
    site.nodes[0].set(vec![patient()], &[ROUTE]);
    site.has(ROUTE, &[v4(1)])
}

/// Neither side hears the other: both forget.
#[rstest]
fn a_wire_that_is_cut_ends_the_session_on_both_sides(#[values(Make::Bird, Make::Frr)] make: Make) -> Result<()> {
    let site = settled(make, neighbour, patient())?;
    site.part()?;
    let fallen = site.nodes[0].wait_for(v4(254), "the session falls", |report| report.state != State::Established)?;
    assert_eq!(fallen.fault, Some(Fault::HoldExpired(9)));
    assert!(fallen.told.is_empty());
    site.has(ROUTE, &[])?;
    site.join()?;
    site.has(ROUTE, &[v4(1)])
}
