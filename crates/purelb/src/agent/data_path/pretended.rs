//! A pretended data path behind the same doors as the real one, for agents that run without a network.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use purelb_core::data_path::{Answer, Question, Questions, Seen};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Ask, DataPathNews};

/// What it says to a question.
pub type Says = Box<dyn Fn(&Question) -> Answer + Send>;

/// The data path of one node. It lives on while agents come and go; clones are the same one.
#[derive(Clone)]
pub struct Pretended {
    inside: Arc<Mutex<Inside>>,
}

struct Inside {
    seen: Seen,
    says: Says,
    listener: Option<UnboundedSender<DataPathNews>>,
    plugged: u64,
    asked: Questions,
    told: Vec<(Question, Answer)>,
}

impl Pretended {
    /// One that was seen so, and says this.
    pub fn new(seen: Seen, says: Says) -> Self {
        let inside = Inside { seen, says, listener: None, plugged: 0, asked: Questions::default(), told: Vec::new() };
        Self { inside: Arc::new(Mutex::new(inside)) }
    }

    /// A node without kube-proxy.
    pub fn none() -> Self {
        Self::new(Seen::None, Box::new(|_| Answer::Unknown))
    }

    /// An agent starts: what it hears, and where it asks. An earlier one hears nothing more.
    pub fn plug(&self) -> (UnboundedReceiver<DataPathNews>, Ask) {
        let (listener, news) = unbounded_channel();
        let mut inside = self.lock();
        if inside.seen != Seen::None {
            drop(listener.send(DataPathNews::Seen(inside.seen)));
        }
        inside.listener = Some(listener);
        inside.plugged += 1;
        (inside.asked, inside.told) = (Questions::default(), Vec::new());
        let (this, agent) = (self.clone(), inside.plugged);
        let ask = move |questions| {
            let mut inside = this.lock();
            if inside.plugged == agent {
                inside.asked = questions;
                inside.tell();
            }
        };
        (news, Arc::new(ask))
    }

    /// A kube-proxy came, or changed its mode.
    pub fn see(&self, seen: Seen) {
        let mut inside = self.lock();
        inside.seen = seen;
        let _ = inside.listener.as_ref().map(|listener| listener.send(DataPathNews::Seen(seen)));
    }

    /// From now on it says this.
    pub fn say(&self, says: Says) {
        let mut inside = self.lock();
        inside.says = says;
        inside.tell();
    }

    /// What stands to be answered.
    pub fn asked(&self) -> Questions {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Tells the answers that are others than before; one that was ready once is ready.
    fn tell(&mut self) {
        let Self { asked, told, says, .. } = self;
        told.retain(|(question, _)| asked.all.contains(question));
        let mut news = Vec::new();
        for question in &asked.all {
            let before = told.iter().find(|(known, _)| known == question).map(|(_, answer)| *answer);
            let answer = if before == Some(Answer::Ready) { Answer::Ready } else { says(question) };
            if before != Some(answer) {
                news.push((question.clone(), answer));
            }
        }
        told.retain(|(question, _)| news.iter().all(|(changed, _)| changed != question));
        told.extend(news.iter().cloned());
        if !news.is_empty() {
            let _ = self.listener.as_ref().map(|listener| listener.send(DataPathNews::Answers(news)));
        }
    }
}
