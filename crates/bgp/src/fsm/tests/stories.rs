//! What a network engineer would try.

use rstest::rstest;

use super::*;
use crate::message::Graceful;
use crate::path::NextHop;
use crate::report::Direction;
use crate::wish::{Advertise, Ttl};

#[test]
fn routes_are_told_on_the_first_keepalive_and_their_end_after_them() {
    let mut bench = Bench::at("openconfirm");
    bench.step(Input::Wanted(routes(&["192.0.2.1/32", "192.0.2.2/32", "2001:db8::1/128"]), true));
    let told = bench.hear(1, Heard::Keepalive);
    assert_eq!(told, "1:+192.0.2.1/32,192.0.2.2/32 1:+2001:db8::1/128 1:end-IPv4 1:end-IPv6");
    assert_eq!(bench.drain(1), "");
    assert!(bench.fsm.report().converged);
}

#[test]
fn the_end_is_not_told_before_all_routes_are_known() {
    let mut bench = Bench::at("established");
    assert_eq!(bench.step(Input::Wanted(routes(&["192.0.2.1/32"]), false)), "1:+192.0.2.1/32");
    bench.drain(1);
    assert_eq!(bench.step(Input::Wanted(routes(&["192.0.2.1/32"]), true)), "1:end-IPv4 1:end-IPv6");
}

#[test]
fn withdrawals_go_first_and_a_withdrawn_route_counts_as_told_until_it_has_left() {
    let mut bench = Bench::at("established");
    bench.step(Input::Wanted(routes(&["192.0.2.1/32"]), true));
    bench.drain(1);
    assert_eq!(bench.step(Input::Wanted(routes(&["192.0.2.2/32"]), true)), "1:-192.0.2.1/32 1:+192.0.2.2/32");
    let gone = "192.0.2.1/32".parse().unwrap();
    assert!(bench.fsm.report().told.contains(&gone), "the bytes have not left");
    bench.drain(1);
    assert!(!bench.fsm.report().told.contains(&gone));
    assert_eq!(bench.fsm.report().told.len(), 1);
}

#[test]
fn while_a_peer_takes_nothing_only_the_last_wish_counts() {
    let mut bench = Bench::at("established");
    bench.step(Input::Wanted(routes(&["192.0.2.1/32"]), true));
    for last in 2..200 {
        assert_eq!(bench.step(Input::Wanted(routes(&[&format!("192.0.2.{last}/32")]), true)), "");
    }
    assert_eq!(bench.drain(1), "1:-192.0.2.1/32 1:+192.0.2.199/32");
}

#[test]
fn a_route_that_flaps_is_announced_once_in_an_interval_and_withdrawn_at_once() {
    let peer = Peer { advertisement_interval: Duration::from_secs(5), ..peer() };
    let mut bench = Bench::with(peer.clone(), "established");
    let (one, both) = (routes(&["192.0.2.1/32"]), routes(&["192.0.2.1/32", "192.0.2.2/32"]));
    assert_eq!(bench.step(Input::Wanted(one.clone(), false)), "1:+192.0.2.1/32");
    bench.drain(1);
    bench.now += Duration::from_secs(1);
    assert_eq!(bench.step(Input::Wanted(routes(&[]), false)), "1:-192.0.2.1/32");
    bench.drain(1);
    assert_eq!(bench.step(Input::Wanted(both.clone(), false)), "1:+192.0.2.2/32", "a new one need not wait");
    bench.drain(1);
    assert!(!bench.fsm.report().converged, "one is still to be told");
    assert_eq!(bench.pass(Duration::from_millis(3999)), "");
    assert_eq!(bench.pass(Duration::from_millis(1)), "1:+192.0.2.1/32");
    assert_eq!(bench.drain(1), "");
    assert!(bench.fsm.report().converged);
    bench.step(Input::Wanted(routes(&["2001:db8::1/128"]), false));
    bench.drain(1);
    let elsewhere = Ends { beside: vec!["2001:db8::6".parse().unwrap()], ..ends() };
    let moved = bench.step(Input::Readdressed(Conn(1), elsewhere));
    assert_eq!(moved, "1:+2001:db8::1/128", "nobody is at the next hop that it was told");
    bench.drain(1);
    bench.step(Input::Wanted(both, false));
    bench.drain(1);
    let other = Peer { advertise: Advertise { med: Some(7), ..Advertise::default() }, ..peer.clone() };
    let configured = |peer: &Peer| Input::Configure(Arc::new(global()), Arc::new(peer.clone()));
    assert_eq!(bench.step(configured(&other)), "", "other attributes are an announcement, too");
    assert_eq!(bench.hear(1, Heard::Refresh(Some(Family::V4))), "1:+192.0.2.1/32,192.0.2.2/32", "whoever asks is told");
    bench.drain(1);
    bench.step(configured(&peer));
    let hurried = Peer { advertisement_interval: Duration::ZERO, ..peer };
    assert_eq!(bench.step(configured(&hurried)), "1:+192.0.2.1/32,192.0.2.2/32", "no interval, no waiting");
}

#[test]
fn route_refresh_tells_all_again_and_an_unknown_family_is_ignored() {
    let mut bench = Bench::at("established");
    bench.step(Input::Wanted(routes(&["192.0.2.1/32", "2001:db8::1/128"]), true));
    bench.drain(1);
    assert_eq!(bench.hear(1, Heard::Refresh(Some(Family::V6))), "1:+2001:db8::1/128");
    bench.drain(1);
    assert_eq!(bench.hear(1, Heard::Refresh(None)), "");
}

#[test]
fn a_change_of_attributes_is_told_without_closing_the_session() {
    let mut bench = Bench::at("established");
    bench.step(Input::Wanted(routes(&["192.0.2.1/32"]), true));
    bench.drain(1);
    let advertise = Advertise { med: Some(7), ..Advertise::default() };
    let change = Input::Configure(Arc::new(global()), Arc::new(Peer { advertise, ..peer() }));
    assert_eq!(bench.step(change.clone()), "1:+192.0.2.1/32");
    bench.drain(1);
    assert_eq!(bench.step(change), "");
    let often = Peer { keepalive: Some(Duration::from_secs(4)), passive: true, ..peer() };
    assert_eq!(bench.step(Input::Configure(Arc::new(global()), Arc::new(often))), "1:+192.0.2.1/32", "as at first");
    bench.drain(1);
    assert_eq!(bench.pass(Duration::from_secs(4)), "1:keepalive", "from now on");
    bench.drain(1);
    let timers = Peer { hold: Duration::from_secs(30), ..peer() };
    assert_eq!(bench.step(Input::Configure(Arc::new(global()), Arc::new(timers))), "1:6/6 1:close dial");
}

#[test]
fn who_is_to_wait_hangs_up_and_who_is_to_dial_does() {
    let with = |passive| Input::Configure(Arc::new(global()), Arc::new(Peer { passive, ..peer() }));
    let mut bench = Bench::at("connect");
    assert_eq!((bench.step(with(true)).as_str(), bench.state()), ("hangup", State::Active));
    assert_eq!((bench.step(with(false)).as_str(), bench.state()), ("dial", State::Connect));
    let mut bench = Bench::at("stopped");
    assert_eq!(bench.step(with(true)) + &bench.step(with(false)), "", "nobody asked for anything");
}

/// The connection that the side with the higher identifier has dialled stays (RFC 4271 §6.8). We are 5; 1 is ours.
#[rstest]
#[case::theirs_wins_and_speaks_last(9, &[(1, "1:keepalive"), (2, "1:6/7 1:close 2:keepalive")], 2)]
#[case::theirs_wins_and_speaks_first(9, &[(2, "1:6/7 1:close 2:keepalive")], 2)]
#[case::ours_wins_and_is_answered_first(1, &[(1, "2:6/7 2:close 1:keepalive")], 1)]
#[case::ours_wins_and_is_answered_last(1, &[(2, "2:6/7 2:close"), (1, "1:keepalive")], 1)]
fn of_two_connections_the_one_of_the_higher_identifier_stays(
    #[case] id: u8,
    #[case] opens: &[(u64, &str)],
    #[case] stays: u64,
) {
    let mut bench = Bench::at("connect");
    bench.step(Input::Accepted(Conn(2), ends()));
    bench.step(Input::Connected(Conn(1), ends()));
    let open = Open { id: Ipv4Addr::new(10, 0, 0, id), ..their_open() };
    for (conn, words) in opens {
        assert_eq!(bench.hear(*conn, Heard::Open(open.clone())), *words);
    }
    bench.hear(stays, Heard::Keepalive);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(bench.fsm.report().fault, None, "a collision is nobody's fault");
}

#[test]
fn with_equal_identifiers_the_higher_as_decides() {
    let mut bench = Bench::at("connect");
    bench.step(Input::Accepted(Conn(2), ends()));
    bench.step(Input::Connected(Conn(1), ends()));
    let open = Open { id: US, ..their_open() };
    assert_eq!(bench.hear(2, Heard::Open(open)), "1:6/7 1:close 2:keepalive", "65002 is higher than 65001");
}

/// The peer may take the first connection for the one as soon as we have agreed to it.
#[test]
fn no_second_connection_begins_once_the_first_is_agreed() {
    let mut bench = Bench::at("connect");
    bench.step(Input::Accepted(Conn(2), ends()));
    assert_eq!(bench.hear(2, Heard::Open(their_open())), "hangup 2:keepalive");
    assert_eq!(bench.step(Input::Connected(Conn(1), ends())), "1:close");
    assert_eq!(bench.state(), State::OpenConfirm);
}

#[test]
fn a_session_is_never_given_up_for_a_new_connection() {
    let mut bench = Bench::at("established");
    assert_eq!(bench.step(named("accept")), "2:6/7 2:close");
    assert_eq!(bench.state(), State::Established);
}

#[test]
fn with_graceful_restart_a_peer_that_dials_anew_has_restarted() {
    let mut bench = Bench::new(Peer { graceful_restart: Some(Duration::from_secs(120)), ..peer() });
    bench.step(Input::Start);
    bench.step(named("connect"));
    let mut open = their_open();
    open.can.graceful = Some(Graceful { time: 60, ..Graceful::default() });
    bench.hear(1, Heard::Open(open));
    bench.hear(1, Heard::Keepalive);
    assert_eq!(bench.fsm.report().restart_time, 120);
    let farewell = Input::Stop(Farewell::Restart("upgrade".into()));
    assert_eq!(Bench { fsm: bench.fsm.clone(), now: bench.now }.step(farewell.clone()), "1:close");
    assert_eq!(Bench::at("established").step(farewell), "1:6/2 1:close", "this one would not keep our routes");
    bench.now += Duration::from_secs(4);
    assert_eq!(bench.step(Input::Accepted(Conn(3), ends())), "3:6/7 3:close", "this one was on its way before");
    bench.now += Duration::from_secs(1);
    assert_eq!(bench.step(named("accept")), "1:close 2:open");
    assert_eq!(bench.state(), State::OpenSent);
}

/// The R bit is for the first session of a process that follows another; the F bit for all that may have been told before.
#[rstest]
#[case::after_an_agent(true, (true, true))]
#[case::after_a_reboot(false, (false, false))]
fn only_the_first_open_after_a_restart_says_so(#[case] restarting: bool, #[case] first: (bool, bool)) {
    let peer = Arc::new(Peer { graceful_restart: Some(Duration::from_secs(120)), ..peer() });
    let us = Arc::new(Global { restarting, ..global() });
    let mut fsm = Fsm::new(us, peer);
    let bits = |outputs: &[Output]| {
        let graceful = outputs.iter().find_map(|output| match output {
            Output::Send(_, Message::Open(open)) => open.can.graceful.clone(),
            _ => None,
        });
        let graceful = graceful.expect("the session can be restarted gracefully");
        assert_eq!(graceful.families, Families::BOTH);
        (graceful.restarting, graceful.preserved)
    };
    fsm.step(Input::Start, Duration::ZERO, 0);
    assert_eq!(bits(&fsm.step(named("connect"), Duration::ZERO, 0)), first);
    for input in ["open", "keepalive", "close"] {
        fsm.step(named(input), Duration::ZERO, 0);
    }
    fsm.step(Input::Tick, Duration::from_secs(10), 0);
    let outputs = fsm.step(Input::Connected(Conn(7), ends()), Duration::from_secs(10), 0);
    assert_eq!(bits(&outputs), (false, true), "it was told something by this process");
}

#[test]
fn a_wrong_as_a_shared_identifier_and_a_foreign_family_are_each_said() {
    let say = |peer: Peer, open: Open| {
        let mut bench = Bench::with(peer, "opensent");
        let words = bench.hear(1, Heard::Open(open));
        (words, bench.fsm.report().fault.unwrap().to_string())
    };
    let (words, fault) = say(peer(), Open { asn: 64999, ..their_open() });
    assert_eq!(words, "1:2/2 1:close");
    assert_eq!(fault, "the peer says that its AS is 64999, the configuration says 65002");
    let (words, _) = say(Peer { asn: 0, ..peer() }, Open { asn: 0, ..their_open() });
    assert_eq!(words, "1:2/2 1:close", "AS 0 is nobody's (RFC 7607)");
    let (words, fault) = say(Peer { asn: OUR_AS, ..peer() }, Open { asn: OUR_AS, id: US, ..their_open() });
    assert_eq!(words, "1:2/3 1:close");
    assert!(fault.contains("10.0.0.5, which is ours"), "{fault}");
    let mut open = their_open();
    open.can.families = Some(Families::only(Family::V4));
    let (words, fault) = say(Peer { families: Families::only(Family::V6), ..peer() }, open);
    assert_eq!(words, "1:2/7 1:close");
    assert!(fault.ends_with("enable IPv6 for this neighbour on the router"), "{fault}");
}

#[test]
fn a_peer_without_a_word_about_families_speaks_ipv4_and_the_other_is_reported() {
    let mut bench = Bench::at("opensent");
    let mut open = their_open();
    open.can.families = None;
    bench.step(Input::Wanted(routes(&["192.0.2.1/32", "2001:db8::1/128"]), true));
    bench.hear(1, Heard::Open(open));
    bench.drain(1);
    assert_eq!(bench.hear(1, Heard::Keepalive), "1:+192.0.2.1/32 1:end-IPv4");
    assert_eq!(bench.fsm.report().limits, [Fault::FamilyNotSpoken(Family::V6)]);
}

#[test]
fn a_family_without_a_next_hop_is_not_told_and_reported() {
    let mut bench = Bench::at("connect");
    bench.step(Input::Wanted(routes(&["192.0.2.1/32", "2001:db8::1/128"]), true));
    let fleeting = Arc::new(Global { fleeting: ["2001:db8::5".parse().unwrap()].into(), ..global() });
    bench.step(Input::Configure(fleeting, Arc::new(peer())));
    bench.step(named("connect"));
    bench.step(named("open"));
    bench.drain(1);
    assert_eq!(bench.step(named("keepalive")), "1:+192.0.2.1/32 1:end-IPv4 1:end-IPv6");
    assert_eq!(bench.fsm.report().limits, [Fault::NoNextHop { family: Family::V6 }]);
}

#[test]
fn an_address_that_comes_later_becomes_the_next_hop_and_one_that_goes_is_no_more() {
    let mut bench = Bench::at("connect");
    bench.step(Input::Wanted(routes(&["192.0.2.1/32", "2001:db8::1/128"]), true));
    let with = |beside: &[&str]| Ends { local: US.into(), beside: beside.iter().map(|a| a.parse().unwrap()).collect() };
    bench.step(Input::Connected(Conn(1), with(&[])));
    bench.step(named("open"));
    bench.drain(1);
    assert_eq!(bench.step(named("keepalive")), "1:+192.0.2.1/32 1:end-IPv4 1:end-IPv6");
    assert_eq!(bench.fsm.report().limits, [Fault::NoNextHop { family: Family::V6 }]);
    bench.drain(1);
    let came = Input::Readdressed(Conn(1), with(&["2001:db8::5"]));
    assert_eq!(bench.step(came.clone()), "1:+2001:db8::1/128");
    assert_eq!(bench.fsm.report().limits, []);
    bench.drain(1);
    assert_eq!(bench.step(came), "", "nothing is new");
    assert_eq!(bench.step(Input::Readdressed(Conn(1), with(&[]))), "1:-2001:db8::1/128");
    assert_eq!(bench.fsm.report().limits, [Fault::NoNextHop { family: Family::V6 }]);
    assert_eq!(bench.state(), State::Established);
}

#[test]
fn an_address_that_comes_before_the_peer_agrees_is_used_as_well() {
    let mut bench = Bench::at("connect");
    bench.step(Input::Wanted(routes(&["2001:db8::1/128"]), false));
    bench.step(Input::Connected(Conn(1), Ends { local: US.into(), beside: Vec::new() }));
    bench.step(named("open"));
    bench.drain(1);
    assert_eq!(bench.step(Input::Readdressed(Conn(1), ends())), "");
    assert_eq!(bench.step(named("keepalive")), "1:+2001:db8::1/128");
}

#[test]
fn pauses_double_up_to_the_longest_and_a_good_session_begins_anew() {
    let mut bench = Bench::new(Peer { connect_retry: Duration::from_secs(8), ..peer() });
    bench.step(Input::Start);
    for seconds in [1, 2, 4, 8, 8, 8] {
        bench.step(named("fail"));
        assert_eq!(bench.state(), State::Active);
        assert_eq!(bench.pass(Duration::from_secs(seconds) - Duration::from_millis(1)), "");
        assert_eq!(bench.pass(Duration::from_millis(1)), "dial");
    }
    for (lasted, pause) in [(5, 1), (5, 2), (5, 4), (61, 1), (5, 2)] {
        bench.step(named("connect"));
        bench.step(named("open"));
        bench.step(named("keepalive"));
        bench.drain(1);
        bench.now += Duration::from_secs(lasted);
        bench.step(named("close"));
        let almost = Duration::from_secs(pause) - Duration::from_millis(1);
        assert_eq!(bench.pass(almost), "", "after {lasted} s in session");
        assert_eq!(bench.pass(Duration::from_millis(1)), "dial", "after {lasted} s in session");
    }
}

#[test]
fn jitter_takes_away_up_to_a_quarter() {
    for (dice, millis) in [(0, 750), (128, 875), (256, 1000), (u32::MAX, 750)] {
        let mut fsm = Fsm::new(Arc::new(global()), Arc::new(peer()));
        fsm.step(Input::Start, Duration::ZERO, 0);
        fsm.step(named("fail"), Duration::ZERO, dice);
        let wake = fsm.wake().unwrap().as_millis();
        assert!(wake.abs_diff(millis) <= 1, "{dice}: {wake}");
    }
}

#[test]
fn a_passive_peer_never_dials_and_lets_its_router_in_soon_after_a_failure() {
    let mut bench = Bench::new(Peer { passive: true, ..peer() });
    assert_eq!(bench.step(Input::Start), "");
    assert_eq!(bench.state(), State::Active);
    for conn in 1..10 {
        assert_eq!(bench.step(Input::Accepted(Conn(conn), ends())), format!("{conn}:open"));
        bench.step(Input::Closed(Conn(conn), None));
        assert_eq!(bench.state(), State::Idle);
        assert_eq!(bench.pass(Duration::from_secs(1)), "");
        assert_eq!(bench.state(), State::Active);
    }
}

#[test]
fn a_router_that_never_connects_is_named_after_a_while() {
    let mut bench = Bench::new(Peer { passive: true, connect_retry: Duration::from_secs(30), ..peer() });
    bench.step(Input::Start);
    bench.pass(Duration::from_secs(29));
    assert_eq!(bench.fsm.report().fault, None, "it may be on its way");
    assert_eq!(bench.pass(Duration::from_secs(1)), "");
    let fault = bench.fsm.report().fault.unwrap().to_string();
    assert!(fault.starts_with("waiting for 10.0.0.9 to connect, and it has not"), "{fault}");
    assert_eq!((bench.state(), bench.fsm.wake()), (State::Active, None));
    bench.step(Input::Accepted(Conn(1), ends()));
    bench.step(named("open"));
    bench.step(named("keepalive"));
    assert_eq!((bench.state(), bench.fsm.report().fault), (State::Established, None));
    bench.step(named("notification"));
    bench.pass(Duration::from_secs(100));
    assert_eq!(
        bench.fsm.report().fault,
        Some(Fault::Told(Notification::new(6, 4))),
        "the first reason is the better one"
    );
}

#[test]
fn waiting_for_a_router_without_listening_is_said_at_once() {
    let passive = Arc::new(Peer { passive: true, ..peer() });
    let deaf = Arc::new(Global { listen: None, ..global() });
    let mut bench = Bench::new((*passive).clone());
    bench.step(Input::Configure(deaf.clone(), passive.clone()));
    bench.step(Input::Start);
    let fault = bench.fsm.report().fault.unwrap().to_string();
    assert!(fault.starts_with("waiting for 10.0.0.9 to connect, but we do not listen"), "{fault}");
    bench.step(Input::Configure(Arc::new(global()), passive.clone()));
    assert_eq!(bench.fsm.report().fault, None, "now we do");
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.fsm.report().fault, Some(Fault::NotCalled { peer: peer().address }));
    bench.step(Input::Configure(deaf, passive));
    assert_eq!(bench.fsm.report().fault, Some(Fault::NotListening { peer: peer().address }));
}

#[test]
fn silence_ends_a_session_and_keepalives_prevent_that() {
    let mut bench = Bench::at("established");
    for _ in 0..10 {
        bench.pass(Duration::from_secs(80));
        bench.drain(1);
        bench.hear(1, Heard::Keepalive);
    }
    assert_eq!(bench.state(), State::Established);
    assert!(bench.pass(Duration::from_secs(90)).ends_with("1:4/0 1:close"));
    let fault = bench.fsm.report().fault.unwrap().to_string();
    assert_eq!(fault, "hold timer expired: nothing was heard from the peer for 90 s");
}

#[test]
fn the_shorter_hold_time_counts_and_none_at_all_is_for_ever() {
    let mut open = their_open();
    open.hold = 9;
    let mut bench = Bench::at("opensent");
    bench.hear(1, Heard::Open(open.clone()));
    bench.drain(1);
    bench.hear(1, Heard::Keepalive);
    bench.drain(1);
    assert_eq!(bench.pass(Duration::from_secs(3)), "1:keepalive");
    open.hold = 0;
    let mut bench = Bench::at("opensent");
    bench.hear(1, Heard::Open(open));
    bench.hear(1, Heard::Keepalive);
    bench.drain(1);
    assert_eq!(bench.pass(Duration::from_secs(100_000)), "");
    assert_eq!(bench.state(), State::Established);
}

/// RFC 9687: without this, a peer with a closed window would keep withdrawn routes for ever.
#[test]
fn a_peer_that_takes_nothing_for_eight_minutes_is_left() {
    let mut bench = Bench::at("established");
    bench.step(named("routes"));
    let mut words = String::new();
    for _ in 0..8 {
        bench.hear(1, Heard::Keepalive);
        words += &bench.pass(Duration::from_secs(60));
    }
    assert_eq!(words, "1:8/0 1:close", "and no keepalives were queued behind it");
    assert_eq!(bench.fsm.report().fault, Some(Fault::SendHoldExpired(480)));
}

#[test]
fn bfd_ends_a_session_at_once() {
    let mut bench = Bench::at("established");
    assert_eq!(bench.step(Input::PathDown), "1:6/10 1:close");
    assert_eq!(bench.state(), State::Idle);
}

#[test]
fn ipv4_routes_get_an_ipv6_next_hop_only_if_both_sides_can() {
    for (can, next_hop) in [(true, "V6(2001:db8::5, None)"), (false, "V4(10.0.0.5)")] {
        let mut bench = Bench::at("connect");
        bench.step(Input::Wanted(routes(&["192.0.2.1/32"]), false));
        let ends = Ends { local: "2001:db8::5".parse().unwrap(), beside: vec![US.into()] };
        bench.step(Input::Connected(Conn(1), ends));
        let mut open = their_open();
        open.can.extended_next_hop = can;
        bench.hear(1, Heard::Open(open));
        bench.drain(1);
        let outputs = bench.fsm.step(named("keepalive"), bench.now, 0);
        let [Output::Send(_, Message::Update(Update::Announce(path, _)))] = outputs.as_slice() else {
            panic!("{outputs:?}")
        };
        assert_eq!(format!("{:?}", path.next_hop), next_hop);
        assert_eq!(path.is_multiprotocol(), matches!(path.next_hop, NextHop::V6(..)));
    }
}

#[test]
fn a_peer_that_is_switched_off_stays_so_until_it_is_switched_on() {
    let mut bench = Bench::at("established");
    assert_eq!(bench.step(named("down")), "1:6/2 1:close");
    assert_eq!(bench.step(named("accept")), "2:close");
    assert_eq!(bench.pass(Duration::from_secs(1000)), "");
    assert_eq!(bench.step(named("same")), "dial");
}

#[test]
fn the_last_notification_is_kept_with_its_direction_and_across_the_next_session() {
    let mut bench = Bench::at("established");
    let last = |bench: &Bench| bench.fsm.report().counts.last_notification;
    assert_eq!(last(&bench), None);
    bench.step(named("accept"));
    assert_eq!(last(&bench), None, "that says nothing of the session");
    assert_eq!(bench.fsm.report().counts.notifications_sent, 1, "a connection too many is told so, and that counts");
    bench.step(named("notification"));
    assert_eq!(last(&bench), Some((Direction::Heard, 6, 4)));
    bench.pass(Duration::from_secs(1));
    for input in ["connect", "open", "keepalive"] {
        bench.step(named(input));
    }
    assert_eq!((bench.state(), last(&bench)), (State::Established, Some((Direction::Heard, 6, 4))));
    bench.drain(1);
    bench.pass(Duration::from_secs(90));
    assert_eq!(last(&bench), Some((Direction::Sent, 4, 0)), "hold timer expired");
}

/// Its packets are dropped by our kernel, so that a connection stands on which nothing is ever heard.
#[test]
fn a_router_that_forgot_ttl_security_is_said_to_be_too_far_away_and_soon() {
    let near = |ttl| Bench::with(Peer { ttl, ..peer() }, "opensent");
    let mut bench = Bench::with(Peer { ttl: Ttl::Security(1), ..peer() }, "openconfirm");
    bench.pass(Duration::from_secs(90));
    assert!(matches!(bench.fsm.report().fault, Some(Fault::TooFar { .. })), "its first word was let in");
    let mut bench = near(Ttl::Security(1));
    assert_eq!(bench.pass(Duration::from_secs(10)), "1:4/0 1:close");
    let sentence = bench.fsm.report().fault.expect("it is said").to_string();
    assert!(sentence.contains("further away than allowed") && sentence.contains("a TTL of 255 or more"), "{sentence}");
    let mut bench = near(Ttl::Security(1));
    bench.step(Input::Closed(Conn(1), Some("Connection timed out".into())));
    assert!(matches!(bench.fsm.report().fault, Some(Fault::TooFar { .. })), "TCP may give up before");
    assert_eq!(near(Ttl::Usual).pass(Duration::from_secs(200)), "", "others may take their time");
}
