//! The voice of the agent: starts, feeds and ends the speaker, and brings back what it says.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use purelb_bgp::{Farewell, Fault, Handle, Listening, PeerReport, Report, Speaker, State, Wish};
use purelb_core::bgp::status::SessionState;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, info};

use super::{PeerNews, Speak, SpeakerNews};

/// How often numbers are brought back that change without anything happening.
const NUMBERS: Duration = Duration::from_secs(15);

/// Starts and ends the speaker as it is needed.
pub struct Voice {
    speaker: Option<Speaking>,
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
        Self { speaker: None, ending: JoinSet::new(), trouble: None, fresh: false }
    }

    /// Does as asked. Never waits.
    pub fn speak(&mut self, speak: Speak) {
        match speak {
            Speak::Wish { wish, version } => self.say(*wish, version),
            Speak::Quiet => self.hush(Farewell::Deconfigured),
        }
    }

    fn say(&mut self, wish: Wish, version: u64) {
        if self.speaker.is_none() {
            match Speaking::start() {
                Ok(speaking) => (self.speaker, self.trouble) = (Some(speaking), None),
                Err(error) => {
                    error!(%error, "the bgp speaker cannot be started");
                    self.trouble = Some(format!("the BGP speaker cannot be started: {error}"));
                    self.fresh = true;
                    return;
                }
            }
        }
        if let Some(speaking) = &mut self.speaker {
            speaking.say(wish, version);
        }
    }

    fn hush(&mut self, farewell: Farewell) {
        self.trouble = None;
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
        if std::mem::take(&mut self.fresh) {
            return self.news();
        }
        match &mut self.speaker {
            None => std::future::pending().await,
            Some(speaking) => tokio::select! {
                _ = speaking.reports.changed() => {}
                _ = speaking.numbers.tick() => {}
            },
        }
        self.news()
    }

    fn news(&mut self) -> SpeakerNews {
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
    fn start() -> std::io::Result<Self> {
        let handle = Speaker::start()?;
        let reports = handle.reports();
        let mut numbers = interval(NUMBERS);
        numbers.set_missed_tick_behavior(MissedTickBehavior::Delay);
        info!("the bgp speaker begins");
        Ok(Self { handle, reports, numbers, wishes: VecDeque::new(), peers: Vec::new() })
    }

    fn say(&mut self, wish: Wish, version: u64) {
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
    let notification = match &report.fault {
        Some(Fault::Told(notification) | Fault::Nonsense(notification)) => {
            Some(format!("{}/{}", notification.code, notification.subcode))
        }
        _ => None,
    };
    PeerNews {
        state: session_state(report.state),
        since: report.since.and_then(unix_seconds),
        fault: report.fault.as_ref().map(ToString::to_string),
        limits: report.limits.iter().map(ToString::to_string).collect(),
        restart_time: report.restart_time,
        told: report.told.clone(),
        heard: report.counts.routes_heard.saturating_sub(report.counts.routes_withdrawn),
        flaps: report.counts.flaps,
        notification,
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
