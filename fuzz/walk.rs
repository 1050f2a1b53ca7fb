//! One session with a peer that says whatever it likes: the fuzz target, and an ordinary test of the crate, take this walk.

use std::sync::Arc;
use std::time::Duration;

use purelb_bgp::fsm::{Conn, Fsm, Input, Output};
use purelb_bgp::message::Heard;
use purelb_bgp::path::Ends;
use purelb_bgp::wire::{HEADER, decode, encode, frame};
use purelb_bgp::{Families, Global, Peer, routes};

const CONN: Conn = Conn(1);
/// Between two messages: keepalives and timers get their turn.
const APART: Duration = Duration::from_secs(1);

/// Takes the peer's bytes in, message by message, up to the first that cannot be told from the next.
///
/// The peer is expected in the AS that its first message names, so that recorded sessions of any AS go on after OPEN.
///
/// # Panics
/// When the state machine says what cannot be written.
pub fn walk(mut bytes: &[u8]) -> Fsm {
    let address = [10, 9, 0, 254].into();
    let graceful_restart = Some(Duration::from_secs(60));
    let peer = Peer { families: Families::BOTH, graceful_restart, ..Peer::new(address, named_as(bytes)) };
    let mut fsm = Fsm::new(Arc::new(Global::new(65001, [10, 9, 0, 1].into())), Arc::new(peer));
    let ends = Ends { local: [10, 9, 0, 1].into(), beside: vec!["fd00:9::1".parse().expect("an address")] };
    let routes = routes(["192.0.2.1/32", "2001:db8::/64"].map(|net| net.parse().expect("a prefix")));
    let mut now = Duration::ZERO;
    for input in [Input::Start, Input::Wanted(routes, true), Input::Connected(CONN, ends)] {
        take(&mut fsm, input, now);
    }
    while let Some((heard, rest)) = next(bytes) {
        now += APART;
        take(&mut fsm, heard, now);
        take(&mut fsm, Input::Tick, now);
        bytes = rest;
    }
    fsm
}

fn next(bytes: &[u8]) -> Option<(Input, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let frame = frame(header).ok()?;
    let (body, rest) = rest.split_at_checked(frame.body)?;
    let input = match decode(frame.kind, body) {
        Ok(heard) => Input::Heard(CONN, heard),
        Err(answer) => Input::Nonsense(CONN, answer),
    };
    Some((input, rest))
}

/// The AS that the first message names, if it is an OPEN that can be read.
fn named_as(bytes: &[u8]) -> u32 {
    match next(bytes) {
        Some((Input::Heard(_, Heard::Open(open)), _)) => open.asn,
        _ => 65100,
    }
}

/// One step, and everything that it says leaves at once.
fn take(fsm: &mut Fsm, input: Input, now: Duration) {
    let mut outputs = fsm.step(input, now, 0);
    while !outputs.is_empty() {
        for output in &outputs {
            if let Output::Send(_, message) = output {
                encode(message).expect("what we say can be written");
            }
        }
        outputs = fsm.step(Input::Sent(CONN), now, 0);
    }
}
