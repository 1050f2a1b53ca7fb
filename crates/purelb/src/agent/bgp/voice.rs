//! The voice of the agent: starts, feeds and ends the speaker, and brings back what it says.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use purelb_bgp::{Farewell, Fault, Handle, Listening, PeerReport, Report, Speaker, State, Wish};
use purelb_core::bgp::status::SessionState;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tracing::{error, info};

use super::{PeerNews, Speak, SpeakerNews};

/// How often numbers are brought back that change without anything happening.
const NUMBERS: Duration = Duration::from_secs(15);
/// The pause before a speaker that could not be started, or has died, is started again.
const AGAIN: Duration = Duration::from_secs(5);

/// Starts and ends the speaker as it is needed.
pub struct Voice {
    start: fn() -> io::Result<Handle>,
    speaker: Option<Speaking>,
    /// What there is to say, and the version of the routes in it: a speaker that begins anew is told the same.
    wish: Option<(Arc<Wish>, u64)>,
    /// When a speaker that is missing is started, at the earliest.
    again: Option<Instant>,
    /// Speakers that say their last words.
    ending: JoinSet<()>,
    /// Why there is no speaker although there should be one.
    trouble: Option<String>,
    /// Something to bring back at once.
    fresh: bool,
}

struct Speaking {
    handle: Handle,
    reports: watch::Receiver<Report>,
    numbers: Interval,
    /// The numbers of wishes that sessions may not act on yet, with the versions of their routes.
    wishes: VecDeque<(u64, u64)>,
    /// The peers of the last wish.
    peers: Vec<IpAddr>,
}

impl Voice {
    /// Nobody speaks.
    pub fn new() -> Self {
        let ending = JoinSet::new();
        Self { start: Speaker::start, speaker: None, wish: None, again: None, ending, trouble: None, fresh: false }
    }

    /// Does as asked. Never waits.
    pub fn speak(&mut self, speak: Speak) {
        match speak {
            Speak::Wish { wish, version } => self.say(wish, version),
            Speak::Quiet => self.hush(Farewell::Deconfigured),
        }
    }

    fn say(&mut self, wish: Arc<Wish>, version: u64) {
        self.wish = Some((wish.clone(), version));
        match &mut self.speaker {
            Some(speaking) => speaking.say(wish, version),
            None if self.again.is_none() => self.begin(),
            // It is told when the pause is over.
            None => {}
        }
    }

    /// Starts a speaker, and tells it what there is to say.
    fn begin(&mut self) {
        self.again = None;
        let Some((wish, version)) = self.wish.clone() else { return };
        match (self.start)() {
            Ok(handle) => {
                self.trouble = None;
                self.speaker.insert(Speaking::new(handle)).say(wish, version);
            }
            Err(error) => {
                error!(%error, "the bgp speaker cannot be started");
                self.pause(format!("the BGP speaker cannot be started: {error}; it is tried again"));
            }
        }
    }

    /// There is no speaker for a while, and this is why.
    fn pause(&mut self, trouble: String) {
        (self.speaker, self.trouble, self.fresh) = (None, Some(trouble), true);
        self.again = Some(Instant::now() + AGAIN);
    }

    fn hush(&mut self, farewell: Farewell) {
        (self.wish, self.again, self.trouble) = (None, None, None);
        if let Some(speaking) = self.speaker.take() {
            self.ending.spawn(speaking.handle.stop(farewell));
            info!("the bgp speaker ends");
        }
        self.fresh = true;
    }

    /// Ends, and waits until the last words have left.
    pub async fn stop(&mut self, farewell: Farewell) {
        self.hush(farewell);
        while self.ending.join_next().await.is_some() {}
    }

    /// Whether there is a speaker.
    pub fn is_speaking(&self) -> bool {
        self.speaker.is_some()
    }

    /// The next news; never, while there is nobody to bring any.
    pub async fn next(&mut self) -> SpeakerNews {
        if !self.fresh {
            self.wait().await;
        }
        self.fresh = false;
        self.news()
    }

    /// Waits until there are news.
    async fn wait(&mut self) {
        let Some(speaking) = &mut self.speaker else {
            match self.again {
                Some(again) => sleep_until(again).await,
                None => std::future::pending().await,
            }
            return self.begin();
        };
        let dead = tokio::select! {
            changed = speaking.reports.changed() => changed.is_err(),
            _ = speaking.numbers.tick() => false,
        };
        if dead {
            error!("the bgp speaker has died; it is started again");
            self.pause("the BGP speaker has died, and the log has the details; it is started again".to_owned());
        }
    }

    /// What there is to tell at this moment.
    pub fn news(&mut self) -> SpeakerNews {
        match &mut self.speaker {
            Some(speaking) => speaking.news(),
            // Nobody speaks, so nobody acts on anything older.
            None => SpeakerNews { acts_on: u64::MAX, deaf: self.trouble.clone(), ..SpeakerNews::default() },
        }
    }
}

impl Default for Voice {
    fn default() -> Self {
        Self::new()
    }
}

impl Speaking {
    fn new(handle: Handle) -> Self {
        let reports = handle.reports();
        let mut numbers = interval(NUMBERS);
        numbers.set_missed_tick_behavior(MissedTickBehavior::Delay);
        info!("the bgp speaker begins");
        Self { handle, reports, numbers, wishes: VecDeque::new(), peers: Vec::new() }
    }

    fn say(&mut self, wish: Arc<Wish>, version: u64) {
        self.peers = wish.peers.iter().map(|peer| peer.address).collect();
        let number = self.handle.set(wish);
        self.wishes.push_back((number, version));
    }

    fn news(&mut self) -> SpeakerNews {
        let report = self.reports.borrow_and_update().clone();
        let acted = |peer: &IpAddr| report.peers.get(peer).map_or(0, |report| report.wish);
        let acted = self.peers.iter().map(acted).min().unwrap_or(u64::MAX);
        // The last wish that all act on is kept: later news may bring no newer one.
        while self.wishes.get(1).is_some_and(|(number, _)| *number <= acted) {
            self.wishes.pop_front();
        }
        let acts_on = self.wishes.front().filter(|(number, _)| *number <= acted).map_or(0, |(_, version)| *version);
        let deaf = match report.listening {
            Listening::Failed(why) => Some(why),
            Listening::Off | Listening::On => None,
        };
        SpeakerNews {
            acts_on,
            deaf,
            peers: report.peers.iter().map(|(peer, report)| (*peer, peer_news(report))).collect(),
        }
    }
}

fn peer_news(report: &PeerReport) -> PeerNews {
    let notification = report.counts.last_notification.map(|(_, code, subcode)| format!("{code}/{subcode}"));
    PeerNews {
        state: session_state(report.state),
        since: report.since.and_then(unix_seconds),
        fault: report.fault.as_ref().map(ToString::to_string),
        kind: report.fault.as_ref().map(kind).unwrap_or_default(),
        limits: report.limits.iter().map(ToString::to_string).collect(),
        restart_time: report.restart_time,
        told: report.told.clone(),
        heard: report.counts.routes_heard.saturating_sub(report.counts.routes_withdrawn),
        flaps: report.counts.flaps,
        notification,
    }
}

/// The kind of a fault, without what the peer or the kernel says about it.
fn kind(fault: &Fault) -> String {
    let variant = format!("{fault:?}");
    let name = variant.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    match fault {
        Fault::Told(notification) | Fault::Nonsense(notification) => {
            format!("{name} {}/{}", notification.code, notification.subcode)
        }
        _ => name.to_owned(),
    }
}

fn session_state(state: State) -> SessionState {
    match state {
        State::Idle => SessionState::Idle,
        State::Connect => SessionState::Connect,
        State::Active => SessionState::Active,
        State::OpenSent => SessionState::OpenSent,
        State::OpenConfirm => SessionState::OpenConfirm,
        State::Established => SessionState::Established,
    }
}

fn unix_seconds(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

#[cfg(test)]
mod tests;
