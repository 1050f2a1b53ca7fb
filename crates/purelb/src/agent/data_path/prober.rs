//! The thread that asks the data path.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use purelb_core::data_path::{Answer, Questions, Seen};
use tokio::sync::mpsc::UnboundedSender;
use tracing::info;

use super::asked::{Asked, Pause};
use super::source::{Source, Sources};
use super::{DataPathNews, health};
use crate::agent::lease::WallClock;

/// Asks until nobody has questions any more.
pub(super) struct Prober {
    sources: Sources,
    asked: Asked,
    seen: Seen,
    /// Who answered last, at this state of nftables' rules.
    source: Option<Source>,
    generation: Option<u32>,
    questions: Receiver<Questions>,
    news: UnboundedSender<DataPathNews>,
    wall: WallClock,
}

impl Prober {
    /// Opens its sockets in the network namespace of this thread.
    pub(super) fn open(
        questions: Receiver<Questions>,
        news: UnboundedSender<DataPathNews>,
        wall: WallClock,
    ) -> io::Result<Self> {
        let (asked, seen) = (Asked::default(), Seen::None);
        Ok(Self { sources: Sources::open()?, asked, seen, source: None, generation: None, questions, news, wall })
    }

    pub(super) fn run(mut self) {
        let mut pause = Pause::first();
        let mut fresh = true;
        loop {
            let began = Instant::now();
            self.look(fresh);
            let somebody = self.source.is_some();
            // Who has seen a kube-proxy and has no questions waits for some.
            let wait = (!somebody || self.asked.is_open()).then(|| pause.after(began.elapsed(), somebody));
            match self.next(wait) {
                Ok(questions) => {
                    self.asked.take(questions, (self.wall)());
                    (pause, fresh) = (Pause::first(), true);
                }
                Err(RecvTimeoutError::Timeout) => fresh = false,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The newest questions, waiting for them no longer than this.
    fn next(&self, wait: Option<Duration>) -> Result<Questions, RecvTimeoutError> {
        let mut questions = match wait {
            Some(wait) => self.questions.recv_timeout(wait)?,
            None => self.questions.recv().map_err(|_| RecvTimeoutError::Disconnected)?,
        };
        while let Ok(newer) = self.questions.try_recv() {
            questions = newer;
        }
        Ok(questions)
    }

    fn look(&mut self, fresh: bool) {
        // Read before the rules are: what changes in between is seen as a change the next time.
        let generation = self.sources.generation();
        let same = generation.is_some() && generation == self.generation;
        if fresh || !same || !self.source.is_some_and(Source::is_of_netfilter) {
            self.ask_rules();
            self.generation = generation;
        }
        let Self { asked, .. } = self;
        let node = asked.node.clone();
        let news = asked.news(|question| {
            let port = question.health_check_node_port;
            port.is_none_or(|port| health::has_endpoints(question.addr, port, node.iter().copied()))
        });
        if !news.is_empty() {
            // Nobody may be listening any more; then there will be no more questions, either.
            let _ = self.news.send(DataPathNews::Answers(news));
        }
    }

    fn ask_rules(&mut self) {
        self.source = self.sources.find(self.asked.node.iter().copied());
        if let Some(source) = self.source {
            self.see(Seen::Proxy(source.mode()));
        }
        let open = self.asked.open();
        let answers = match self.source {
            Some(source) => self.sources.ask(source, &open, (self.wall)()),
            None => vec![Answer::Unknown; open.len()],
        };
        self.asked.hear(answers);
    }

    /// Who was seen once stays seen: the rules of a kube-proxy that is being replaced may be gone for a moment.
    fn see(&mut self, seen: Seen) {
        if self.seen == seen {
            return;
        }
        self.seen = seen;
        info!(?seen, source = ?self.source, "kube-proxy seen");
        let _ = self.news.send(DataPathNews::Seen(seen));
    }
}
