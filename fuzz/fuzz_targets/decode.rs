//! Whatever a peer sends: reading it must not panic, hang or allocate beyond a message, and neither must the session.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use purelb_bgp::fsm::{Conn, Fsm, Input};
use purelb_bgp::path::Ends;
use purelb_bgp::wire::{HEADER, decode, frame};
use purelb_bgp::{Global, Peer};

fuzz_target!(|bytes: &[u8]| {
    let global = Arc::new(Global::new(65001, [10, 0, 0, 1].into()));
    let mut fsm = Fsm::new(global, Arc::new(Peer::new([10, 0, 0, 254].into(), 65002)));
    let mut step = |input| fsm.step(input, Duration::ZERO, 0);
    step(Input::Start);
    step(Input::Connected(Conn(1), Ends { local: [10, 0, 0, 1].into(), beside: Vec::new() }));
    let mut bytes = bytes;
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
        let Ok(frame) = frame(header) else { return };
        let Some((body, rest)) = rest.split_at_checked(frame.body) else { return };
        match decode(frame.kind, body) {
            Ok(heard) => drop(step(Input::Heard(Conn(1), heard))),
            Err(answer) => drop(step(Input::Nonsense(Conn(1), answer))),
        }
        bytes = rest;
    }
});
