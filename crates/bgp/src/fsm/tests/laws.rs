//! Whatever happens, in whatever order: nothing illegal is sent, timers make sense, and peers end up knowing the wish.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::wire;

/// What can happen, in a form that shrinks well. Numbers choose among what is possible.
#[derive(Clone, Debug)]
enum Happening {
    Named(&'static str),
    Heard(u8, u8),
    Closed(u8),
    Nonsense(u8),
    Sent(u8),
    Connected,
    DialFailed,
    Accepted,
    Readdressed(u8, bool),
    Wanted(Vec<u8>, bool),
    Configure(u8),
    Wait(u16),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        1 => prop_oneof![Just("start"), Just("stop"), Just("silent stop"), Just("path down")].prop_map(Happening::Named),
        12 => (any::<u8>(), 0u8..8).prop_map(|(conn, what)| Happening::Heard(conn, what)),
        2 => any::<u8>().prop_map(Happening::Closed),
        1 => any::<u8>().prop_map(Happening::Nonsense),
        6 => any::<u8>().prop_map(Happening::Sent),
        4 => Just(Happening::Connected),
        2 => Just(Happening::DialFailed),
        4 => Just(Happening::Accepted),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(conn, v6)| Happening::Readdressed(conn, v6)),
        4 => (prop::collection::vec(any::<u8>(), 0..8), any::<bool>()).prop_map(|(nets, all)| Happening::Wanted(nets, all)),
        1 => any::<u8>().prop_map(Happening::Configure),
        4 => any::<u16>().prop_map(Happening::Wait),
    ]
}

/// A router as seen from the machine: what is open, what was said, and what it believes.
#[derive(Default)]
struct World {
    dialling: bool,
    next: u64,
    /// Open connections, with what was said on each.
    open: BTreeMap<Conn, Said>,
}

#[derive(Default)]
struct Said {
    opened: bool,
    heard_open: bool,
    heard_keepalive: bool,
    unsent: bool,
    believes: BTreeSet<IpNet>,
}

impl World {
    fn pick(&self, number: u8) -> Option<Conn> {
        self.open.keys().nth(usize::from(number) % self.open.len().max(1)).copied()
    }

    /// Turns a happening into an input that a runner could give, or `None`.
    fn input(&mut self, what: &Happening, wild: bool) -> Option<Input> {
        let pick = |world: &Self, number: u8| if wild { Some(Conn(u64::from(number % 4))) } else { world.pick(number) };
        Some(match what {
            Happening::Named(name) => named(name),
            Happening::Heard(conn, what) => {
                let conn = pick(self, *conn)?;
                let heard = heard(*what);
                if let Some(said) = self.open.get_mut(&conn) {
                    said.heard_keepalive |= said.heard_open && heard == Heard::Keepalive;
                    said.heard_open |= matches!(heard, Heard::Open(_));
                }
                Input::Heard(conn, heard)
            }
            Happening::Closed(conn) => {
                let conn = pick(self, *conn)?;
                self.open.remove(&conn);
                Input::Closed(conn, None)
            }
            Happening::Nonsense(conn) => Input::Nonsense(pick(self, *conn)?, Notification::new(1, 2)),
            Happening::Sent(conn) => {
                let conn = pick(self, *conn)?;
                self.open.get_mut(&conn).into_iter().for_each(|said| said.unsent = false);
                Input::Sent(conn)
            }
            Happening::Connected | Happening::DialFailed if !self.dialling && !wild => return None,
            Happening::DialFailed => {
                self.dialling = false;
                Input::DialFailed(Fault::PathDown)
            }
            Happening::Connected => {
                self.dialling = false;
                Input::Connected(self.connection(), ends())
            }
            Happening::Accepted => Input::Accepted(self.connection(), ends()),
            Happening::Readdressed(conn, v6) => {
                let beside = if *v6 { ends().beside } else { Vec::new() };
                Input::Readdressed(pick(self, *conn)?, Ends { beside, ..ends() })
            }
            Happening::Wanted(nets, all) => Input::Wanted(some_routes(nets), *all),
            Happening::Configure(number) => Input::Configure(Arc::new(global()), Arc::new(some_peer(*number))),
            Happening::Wait(_) => Input::Tick,
        })
    }

    fn connection(&mut self) -> Conn {
        self.next += 1;
        self.open.insert(Conn(self.next), Said::default());
        Conn(self.next)
    }

    /// Takes what the machine does, and complains about what it may not do.
    fn take(&mut self, output: &Output) -> Result<(), TestCaseError> {
        match output {
            Output::Dial => {
                prop_assert!(!self.dialling, "dials twice");
                self.dialling = true;
            }
            Output::HangUp => {
                prop_assert!(self.dialling, "hangs up without dialling");
                self.dialling = false;
            }
            Output::Close(conn) => {
                prop_assert!(self.open.remove(conn).is_some(), "closes what is not open");
            }
            Output::Send(conn, message) => {
                let bytes = wire::encode(message);
                prop_assert!(bytes.is_ok_and(|bytes| bytes.len() <= wire::LONGEST), "does not fit: {message:?}");
                let said = self.open.get_mut(conn);
                prop_assert!(said.is_some(), "sends on what is not open");
                said.map_or(Ok(()), |said| said.say(message))?;
            }
        }
        Ok(())
    }
}

impl Said {
    fn say(&mut self, message: &Message) -> Result<(), TestCaseError> {
        match message {
            Message::Open(_) => {
                prop_assert!(!self.opened, "a second OPEN");
                self.opened = true;
            }
            Message::Keepalive => prop_assert!(self.heard_open, "a KEEPALIVE before the peer's OPEN"),
            Message::Update(update) => {
                prop_assert!(self.heard_keepalive, "an UPDATE outside a session");
                match update {
                    Update::Announce(_, nets) => self.believes.extend(nets),
                    Update::Withdraw(nets, _) => {
                        for net in nets {
                            prop_assert!(self.believes.remove(net), "withdraws what was never told");
                        }
                    }
                    Update::EndOfRib(_) => {}
                }
            }
            Message::Notification(_) => {}
        }
        self.unsent = true;
        Ok(())
    }
}

fn heard(what: u8) -> Heard {
    match what {
        0 | 1 => Heard::Open(their_open()),
        2 => Heard::Open(Open { id: Ipv4Addr::new(10, 0, 0, 1), ..their_open() }),
        3 | 4 => Heard::Keepalive,
        5 => Heard::Update(Tally { announced: 3, ..Tally::default() }),
        6 => Heard::Refresh(Some(Family::V6)),
        _ => Heard::Notification(Notification::new(6, 4)),
    }
}

fn some_routes(nets: &[u8]) -> Arc<Routes> {
    let v4 = nets.iter().map(|net| IpNet::new(Ipv4Addr::new(192, 0, 2, *net).into(), 32).unwrap());
    let v6 = nets.iter().map(|net| format!("2001:db8::{net:x}/128").parse().unwrap());
    wish::routes(v4.chain(v6))
}

/// Between two announcements of a route, where there is a time between them.
const INTERVAL: Duration = Duration::from_secs(2);

fn some_peer(number: u8) -> Peer {
    let (passive, admin_down) = (number & 1 != 0, number & 0x1e == 0x1e);
    let graceful_restart = (number & 0x20 != 0).then(|| Duration::from_secs(120));
    let advertisement_interval = if number & 0x40 != 0 { INTERVAL } else { Duration::ZERO };
    Peer { passive, admin_down, graceful_restart, advertisement_interval, ..peer() }
}

/// Runs a history, and gives the machine and the world at its end.
fn live(history: &[Happening], wild: bool) -> Result<(Fsm, World, Duration), TestCaseError> {
    let mut fsm = Fsm::new(Arc::new(global()), Arc::new(peer()));
    let (mut world, mut now) = (World::default(), Duration::ZERO);
    for (dice, what) in history.iter().enumerate() {
        if let Happening::Wait(seconds) = what {
            now += Duration::from_millis(u64::from(*seconds) * 7);
        }
        let Some(input) = world.input(what, wild) else { continue };
        let tick = matches!(input, Input::Tick);
        let outputs = fsm.step(input, now, u32::try_from(dice).unwrap().wrapping_mul(2_654_435_761));
        if !wild {
            outputs.iter().try_for_each(|output| world.take(output))?;
            prop_assert!(world.open.len() <= 2, "more than two connections");
        }
        prop_assert!(!tick || fsm.wake().is_none_or(|wake| wake > now), "would spin");
    }
    Ok((fsm, world, now))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn nothing_illegal_is_sent_and_no_timer_spins(history in prop::collection::vec(happening(), 0..80)) {
        live(&history, false)?;
    }

    /// Inputs that no runner would give, on connections that never were.
    #[test]
    fn no_input_whatever_makes_it_panic(history in prop::collection::vec(happening(), 0..80)) {
        live(&history, true)?;
    }

    #[test]
    fn a_peer_in_session_ends_up_knowing_the_wish(history in prop::collection::vec(happening(), 0..80), last: Vec<u8>) {
        let (mut fsm, mut world, mut now) = live(&history, false)?;
        let wanted = some_routes(&last);
        for conn in world.open.keys().copied().collect::<Vec<_>>() {
            let outputs = fsm.step(Input::Readdressed(conn, ends()), now, 0);
            outputs.iter().try_for_each(|output| world.take(output))?;
        }
        let mut outputs = fsm.step(Input::Wanted(wanted.clone(), true), now, 0);
        let end = now + INTERVAL;
        while fsm.state() == State::Established {
            outputs.iter().try_for_each(|output| world.take(output))?;
            let next = if let Some((conn, said)) = world.open.iter_mut().find(|(_, said)| said.unsent) {
                said.unsent = false;
                Input::Sent(*conn)
            } else if now < end {
                now = end;
                Input::Tick
            } else {
                break;
            };
            outputs = fsm.step(next, now, 0);
        }
        if fsm.state() == State::Established {
            let believes: BTreeSet<_> = world.open.values().flat_map(|said| said.believes.clone()).collect();
            prop_assert_eq!(&believes, &wanted.keys().copied().collect());
            prop_assert_eq!(&believes, &*fsm.report().told);
            prop_assert!(fsm.report().converged);
        }
    }

    #[test]
    fn after_a_stop_nothing_is_left(history in prop::collection::vec(happening(), 0..80)) {
        let (mut fsm, mut world, now) = live(&history, false)?;
        fsm.step(Input::Stop(Farewell::Silent), now, 0).iter().try_for_each(|output| world.take(output))?;
        prop_assert_eq!(fsm.state(), State::Idle);
        prop_assert!(!world.dialling && world.open.is_empty());
        prop_assert!(fsm.wake().is_none() && fsm.report().told.is_empty());
    }
}
