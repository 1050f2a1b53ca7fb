//! A client that never stops asking: who answers, and for how long was nobody there?

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use purelb_net::Namespace;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use crate::ask::{Answer, ask};

/// Between two requests.
const PACE: Duration = Duration::from_millis(10);
/// A request without an answer in this time is lost. The kernel repeats an attempt to connect later than that, so
/// that none counts twice.
const PATIENCE: Duration = Duration::from_millis(400);
/// A longer pause between two requests is the client's own: it did not get to run.
const STALL: Duration = Duration::from_millis(50);
/// How many requests are remembered: a minute's.
const MEMORY: usize = 6000;

/// One request.
#[derive(Clone, Debug)]
struct Request {
    sent: Instant,
    /// Nothing while nobody has answered, and it may still come.
    outcome: Option<Option<Answer>>,
}

/// A client at work; it ends with this value.
pub struct Watch {
    requests: Arc<Mutex<VecDeque<Request>>>,
    begun: Instant,
    _stop: oneshot::Sender<()>,
}

/// What the client saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were answered.
    pub answered: usize,
    /// Requests that were not.
    pub lost: usize,
    /// The longest time in which every request was lost.
    pub gap: Duration,
    /// How many requests the back-ends of each node answered.
    pub by_node: BTreeMap<String, usize>,
}

impl Watch {
    /// Begins to ask.
    pub fn start(client: &Namespace, target: SocketAddr) -> Result<Self> {
        let requests: Arc<Mutex<VecDeque<Request>>> = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (client, book) = (client.clone(), Arc::clone(&requests));
        thread::spawn(move || {
            // Sockets belong to the namespace of the thread that opens them.
            if client.step_in().is_ok() {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = ask_on(target, &book) => {}
                    }
                });
            }
        });
        Ok(Self { requests, begun: Instant::now(), _stop: stop })
    }

    /// What was seen since the beginning, as far as remembered.
    pub fn report(&self) -> Report {
        self.report_since(self.begun)
    }

    /// What was seen since a moment.
    pub fn report_since(&self, moment: Instant) -> Report {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        Report::of(requests.iter().filter(|request| request.sent >= moment))
    }

    /// How many requests in a row were answered, up to now.
    pub fn steady(&self) -> usize {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let known = requests.iter().rev().filter_map(|request| request.outcome.as_ref());
        known.take_while(|outcome| outcome.is_some()).count()
    }
}

async fn ask_on(target: SocketAddr, book: &Arc<Mutex<VecDeque<Request>>>) {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let sent = Instant::now();
        remember(book, sent);
        let book = Arc::clone(book);
        tokio::spawn(async move {
            let outcome = ask(target, PATIENCE).await.ok();
            let mut requests = book.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(request) = requests.iter_mut().rev().find(|request| request.sent == sent) {
                request.outcome = Some(outcome);
            }
        });
    }
}

fn remember(book: &Mutex<VecDeque<Request>>, sent: Instant) {
    let mut requests = book.lock().unwrap_or_else(PoisonError::into_inner);
    if requests.len() == MEMORY {
        requests.pop_front();
    }
    requests.push_back(Request { sent, outcome: None });
}

impl Report {
    /// Silence reaches from a lost request to the next one that was answered. If the client itself paused just before
    /// that one, nobody knows how much of the pause was silence: it counts as one step of its pace.
    fn of<'a>(requests: impl Iterator<Item = &'a Request>) -> Self {
        let (mut report, mut silence) = (Self::default(), Duration::ZERO);
        let known: Vec<(Instant, &Option<Answer>)> =
            requests.filter_map(|request| Some((request.sent, request.outcome.as_ref()?))).collect();
        for (number, (sent, outcome)) in known.iter().enumerate() {
            let Some(answer) = outcome else {
                let next = known.get(number + 1);
                let step = next.map_or(PACE, |(next, _)| *next - *sent);
                let unknown = step > STALL && next.is_some_and(|(_, outcome)| outcome.is_some());
                silence += if unknown { PACE } else { step };
                report.lost += 1;
                report.gap = report.gap.max(silence);
                continue;
            };
            silence = Duration::ZERO;
            report.answered += 1;
            *report.by_node.entry(answer.node.clone()).or_default() += 1;
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests sent at these milliseconds; a digit is the node that answered, a dot nobody, a question mark not yet.
    fn report(sent: &[u64], outcomes: &str) -> Report {
        let begin = Instant::now();
        let answer =
            |node: char| Answer { pod: "pod".into(), node: format!("node{node}"), source: [10, 0, 0, 1].into() };
        let requests: Vec<Request> = sent
            .iter()
            .zip(outcomes.chars())
            .map(|(at, letter)| Request {
                sent: begin + Duration::from_millis(*at),
                outcome: (letter != '?').then(|| (letter != '.').then(|| answer(letter))),
            })
            .collect();
        Report::of(requests.iter())
    }

    #[test]
    fn a_gap_reaches_from_the_first_lost_request_to_the_next_answered_one() {
        let seen = report(&[0, 10, 20, 30, 40, 50], "11..2.");
        assert_eq!((seen.answered, seen.lost, seen.gap), (3, 3, Duration::from_millis(20)));
        assert_eq!(seen.by_node, [("node1".to_owned(), 2), ("node2".to_owned(), 1)].into());
    }

    #[test]
    fn a_pause_of_the_client_is_no_gap_unless_requests_are_lost_on_both_sides_of_it() {
        assert_eq!(report(&[0, 10, 900, 910], "1.11").gap, PACE);
        assert_eq!(report(&[0, 10, 900, 910], "1111").gap, Duration::ZERO);
        assert_eq!(report(&[0, 10, 900, 910], "1..1").gap, Duration::from_millis(900));
    }

    #[test]
    fn a_request_that_may_still_be_answered_is_not_lost() {
        let seen = report(&[0, 10, 20], "1??");
        assert_eq!((seen.answered, seen.lost), (1, 0));
    }
}
