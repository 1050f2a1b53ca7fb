//! The state machine: every state with every input, stories, and laws.

mod laws;
mod stories;
mod table;

use std::net::Ipv4Addr;

use super::*;
use crate::message::{Capabilities, Open, Tally, Update};
use crate::wish::{self, Families, Family};

pub(super) const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
pub(super) const OUR_AS: u32 = 65001;
pub(super) const THEIR_AS: u32 = 65002;

pub(super) fn global() -> Global {
    Global::new(OUR_AS, US)
}

pub(super) fn peer() -> Peer {
    Peer { families: Families::BOTH, ..Peer::new("10.0.0.9".parse().unwrap(), THEIR_AS) }
}

pub(super) fn ends() -> Ends {
    Ends { local: US.into(), beside: vec!["2001:db8::5".parse().unwrap()] }
}

pub(super) fn their_open() -> Open {
    let can = Capabilities { families: Some(Families::BOTH), four_octets: true, refresh: true, ..Default::default() };
    Open { asn: THEIR_AS, hold: 90, id: Ipv4Addr::new(10, 0, 0, 9), can }
}

pub(super) fn routes(list: &[&str]) -> Arc<Routes> {
    wish::routes(list.iter().map(|route| route.parse().unwrap()))
}

/// A machine with a clock and names for what it does.
pub(super) struct Bench {
    pub(super) fsm: Fsm,
    pub(super) now: Duration,
}

impl Bench {
    pub(super) fn new(peer: Peer) -> Self {
        Self { fsm: Fsm::new(Arc::new(global()), Arc::new(peer)), now: Duration::from_secs(1000) }
    }

    /// One step, told in words.
    pub(super) fn step(&mut self, input: Input) -> String {
        let outputs = self.fsm.step(input, self.now, 256);
        outputs.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Lets time pass, waking the machine whenever it wants to be.
    pub(super) fn pass(&mut self, time: Duration) -> String {
        let end = self.now + time;
        let mut words = Vec::new();
        while let Some(wake) = self.fsm.wake().filter(|wake| *wake <= end) {
            self.now = wake;
            words.push(self.step(Input::Tick));
        }
        self.now = end;
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }

    pub(super) fn hear(&mut self, conn: u64, heard: Heard) -> String {
        self.step(Input::Heard(Conn(conn), heard))
    }

    /// All that was to be sent has left.
    pub(super) fn drain(&mut self, conn: u64) -> String {
        self.step(Input::Sent(Conn(conn)))
    }

    pub(super) fn state(&self) -> State {
        self.fsm.state()
    }

    /// Brings the machine into a state, with connection 1 where there is one.
    pub(super) fn at(state: &str) -> Self {
        Self::with(peer(), state)
    }

    pub(super) fn with(peer: Peer, state: &str) -> Self {
        let mut bench = Self::new(peer);
        let path: &[&str] = match state {
            "stopped" => &[],
            "pausing" => &["start", "connect", "close"],
            "connect" => &["start"],
            "active" => &["start", "fail"],
            "opensent" => &["start", "connect"],
            "openconfirm" => &["start", "connect", "open"],
            "established" => &["start", "connect", "open", "keepalive"],
            other => panic!("no state {other}"),
        };
        for input in path {
            bench.step(named(input));
            bench.drain(1);
        }
        bench
    }
}

/// The inputs of the table; connection 1 is ours, 2 is a new one.
pub(super) fn named(name: &str) -> Input {
    let one = Conn(1);
    match name {
        "start" => Input::Start,
        "stop" => Input::Stop(Farewell::Cease("bye".into())),
        "silent stop" => Input::Stop(Farewell::Silent),
        "connect" => Input::Connected(one, ends()),
        "fail" => Input::DialFailed(Fault::PathDown),
        "accept" => Input::Accepted(Conn(2), ends()),
        "close" => Input::Closed(one, None),
        "open" => Input::Heard(one, Heard::Open(their_open())),
        "keepalive" => Input::Heard(one, Heard::Keepalive),
        "update" => Input::Heard(one, Heard::Update(Tally { announced: 3, ..Tally::default() })),
        "refresh" => Input::Heard(one, Heard::Refresh(Some(Family::V4))),
        "notification" => Input::Heard(one, Heard::Notification(Notification::new(6, 4))),
        "nonsense" => Input::Nonsense(one, Notification::new(1, 1)),
        "sent" => Input::Sent(one),
        "path down" => Input::PathDown,
        "routes" => Input::Wanted(routes(&["192.0.2.1/32"]), false),
        "same" => Input::Configure(Arc::new(global()), Arc::new(peer())),
        "down" => Input::Configure(Arc::new(global()), Arc::new(Peer { admin_down: true, ..peer() })),
        other => panic!("no input {other}"),
    }
}

fn word(output: &Output) -> String {
    match output {
        Output::Dial => "dial".into(),
        Output::HangUp => "hangup".into(),
        Output::Close(conn) => format!("{}:close", conn.0),
        Output::Send(conn, message) => format!("{}:{}", conn.0, message_word(message)),
    }
}

fn message_word(message: &Message) -> String {
    match message {
        Message::Open(_) => "open".into(),
        Message::Keepalive => "keepalive".into(),
        Message::Notification(why) => format!("{}/{}", why.code, why.subcode),
        Message::Update(Update::Announce(_, nets)) => format!("+{}", list(nets)),
        Message::Update(Update::Withdraw(nets, _)) => format!("-{}", list(nets)),
        Message::Update(Update::EndOfRib(family)) => format!("end-{family}"),
    }
}

fn list(nets: &[IpNet]) -> String {
    nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
