//! Which questions stand, what was answered, and how soon to ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use purelb_core::data_path::{Answer, Question, Questions};

/// The questions of the day.
#[derive(Debug, Default)]
pub(super) struct Asked {
    questions: BTreeMap<Question, Standing>,
    /// This node's own addresses.
    pub(super) node: BTreeSet<IpAddr>,
}

/// How a question stands.
#[derive(Clone, Copy, Debug)]
struct Standing {
    since: Timestamp,
    /// What the rules say.
    rules: Answer,
    /// What the agent was told last.
    told: Option<Answer>,
}

impl Asked {
    /// The agent has these questions, and no others.
    pub(super) fn take(&mut self, all: Questions, now: Timestamp) {
        self.node = all.node;
        self.questions.retain(|question, _| all.all.contains(question));
        for question in all.all {
            let fresh = Standing { since: now, rules: Answer::Unknown, told: None };
            self.questions.entry(question).or_insert(fresh);
        }
    }

    /// Whether something is to be asked.
    pub(super) fn is_open(&self) -> bool {
        self.questions.values().any(Standing::is_open)
    }

    /// What is to be asked, with when each question arose.
    pub(super) fn open(&self) -> Vec<(&Question, Timestamp)> {
        let open = self.questions.iter().filter(|(_, standing)| standing.is_open());
        open.map(|(question, standing)| (question, standing.since)).collect()
    }

    /// The rules say this to the open questions, in their order.
    pub(super) fn hear(&mut self, answers: impl IntoIterator<Item = Answer>) {
        let open = self.questions.values_mut().filter(|standing| standing.is_open());
        open.zip(answers).for_each(|(standing, answer)| standing.rules = answer);
    }

    /// The answers that the agent does not know yet. A Service whose own health port is named serves only when that says so,
    /// too, and it is asked last: where rules are missing it can say nothing else.
    pub(super) fn news(&mut self, mut is_healthy: impl FnMut(&Question) -> bool) -> Vec<(Question, Answer)> {
        let mut news = Vec::new();
        for (question, standing) in self.questions.iter_mut().filter(|(_, standing)| standing.is_open()) {
            let doubtful = standing.rules == Answer::Ready && question.health_check_node_port.is_some();
            let answer = if doubtful && !is_healthy(question) { Answer::NotYet } else { standing.rules };
            if standing.told.replace(answer) != Some(answer) {
                news.push((question.clone(), answer));
            }
        }
        news
    }
}

impl Standing {
    fn is_open(&self) -> bool {
        self.told != Some(Answer::Ready)
    }
}

/// The pause before the next look.
#[derive(Debug)]
pub(super) struct Pause {
    next: Duration,
    waited: Duration,
}

impl Pause {
    const SHORTEST: Duration = Duration::from_millis(1);
    /// While kube-proxy is merely a little later than we are, each pause is a delay that clients see.
    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_millis(100);
    /// While there is nobody who could answer.
    const LONGEST: Duration = Duration::from_secs(1);
    /// How long it is worth a hurry: an address is announced after three seconds anyway.
    const HURRY: Duration = Duration::from_secs(3);

    /// The first after a new question.
    pub(super) fn first() -> Self {
        Self { next: Self::SHORTEST, waited: Duration::ZERO }
    }

    /// How long to wait after a look that took so long: looks never take more than a quarter of the time.
    pub(super) fn after(&mut self, took: Duration, somebody: bool) -> Duration {
        let pause = self.next.max(took * 3);
        self.waited += pause;
        let most = match self.waited < Self::HURRY {
            _ if !somebody => Self::LONGEST,
            true => Self::SOON,
            false => Self::LATE,
        };
        self.next = (self.next * 2).min(most);
        pause
    }
}

#[cfg(test)]
mod tests {
    use purelb_core::pool::{Port, Protocol};

    use super::Answer::{NotYet, Ready, Unknown};
    use super::*;

    fn question(last: u8, health_check_node_port: Option<u16>) -> Question {
        let ports = vec![Port { protocol: Protocol::Tcp, number: 80 }];
        Question { addr: [192, 0, 2, last].into(), ports, endpoints: true, health_check_node_port }
    }

    fn asked(questions: &[Question]) -> Asked {
        let mut asked = Asked::default();
        take(&mut asked, questions, 0);
        asked
    }

    fn take(asked: &mut Asked, questions: &[Question], now: i64) {
        let all = Questions { all: questions.iter().cloned().collect(), node: BTreeSet::new() };
        asked.take(all, Timestamp::from_second(now).unwrap());
    }

    #[test]
    fn an_answer_is_told_once_and_a_question_that_is_answered_is_asked_no_more() {
        let (one, two) = (question(1, None), question(2, None));
        let mut asked = asked(&[one.clone(), two.clone()]);
        asked.hear([NotYet, Ready]);
        assert_eq!(asked.news(|_| panic!("no health port")), [(one.clone(), NotYet), (two, Ready)]);
        assert_eq!(asked.open().len(), 1);
        asked.hear([NotYet]);
        assert_eq!(asked.news(|_| panic!("no health port")), []);
        asked.hear([Ready]);
        assert_eq!(asked.news(|_| panic!("no health port")), [(one, Ready)]);
        assert!(!asked.is_open());
    }

    #[test]
    fn a_question_that_stays_keeps_its_answer_and_its_time_and_another_is_asked_anew() {
        let mut asked = asked(&[question(1, None)]);
        asked.hear([Ready]);
        asked.news(|_| true);
        take(&mut asked, &[question(1, None), question(2, None)], 5);
        assert_eq!(asked.open(), [(&question(2, None), Timestamp::from_second(5).unwrap())]);
        take(&mut asked, &[question(2, None)], 6);
        assert_eq!(asked.open(), [(&question(2, None), Timestamp::from_second(5).unwrap())]);
        take(&mut asked, &[question(1, None)], 7);
        assert_eq!(asked.open(), [(&question(1, None), Timestamp::from_second(7).unwrap())]);
    }

    #[test]
    fn rules_alone_do_not_serve_where_a_health_port_says_no() {
        let local = question(1, Some(31_000));
        let mut asked = asked(std::slice::from_ref(&local));
        asked.hear([Unknown]);
        assert_eq!(asked.news(|_| panic!("rules come first")), [(local.clone(), Unknown)]);
        asked.hear([Ready]);
        assert_eq!(asked.news(|_| false), [(local.clone(), NotYet)]);
        assert_eq!(asked.news(|_| true), [(local, Ready)], "the rules need not be asked again");
    }

    #[test]
    fn pauses_grow_and_never_less_than_three_times_what_a_look_takes() {
        let mut pause = Pause::first();
        let mut pauses = |somebody| (0..400).map(|_| pause.after(Duration::ZERO, somebody)).collect::<Vec<_>>();
        let with_proxy = pauses(true);
        assert_eq!(with_proxy[..6], [1, 2, 4, 8, 16, 20].map(Duration::from_millis));
        assert_eq!(with_proxy.last(), Some(&Pause::LATE));
        assert_eq!(pauses(false).last(), Some(&Pause::LONGEST));
        assert_eq!(Pause::first().after(Duration::from_millis(50), true), Duration::from_millis(150));
    }
}
