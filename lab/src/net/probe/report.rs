//! What a client saw, reckoned from the numbers of its packets.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Manner;

/// A pause between two sendings longer than this is the client's own.
const STALL: Duration = Duration::from_millis(10);

/// The number of the packet, and who answered it.
pub(super) struct Answer {
    pub(super) number: u64,
    pub(super) node: String,
}

/// What a client saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets sent.
    pub sent: usize,
    /// Packets that were answered.
    pub received: usize,
    /// The longest silence from one port: from the first packet without answer to the next one with.
    pub longest_gap: Duration,
    /// How long the client itself did not get to send; never part of a gap.
    pub stalled: Duration,
    /// From the first packet to the last.
    pub lasted: Duration,
    /// How many packets each node answered.
    pub by_node: BTreeMap<String, usize>,
    /// The nodes in the order in which they answered; each change is a hand-over.
    pub path: Vec<String>,
}

impl Report {
    pub(super) fn of(sent: &[Instant], answers: &[Answer], manner: Manner) -> Self {
        let mut answered: Vec<Option<&str>> = vec![None; sent.len()];
        for answer in answers {
            if let Some(slot) = usize::try_from(answer.number).ok().and_then(|number| answered.get_mut(number)) {
                *slot = Some(&answer.node);
            }
        }
        let mut report = Self { sent: sent.len(), received: answered.iter().flatten().count(), ..Self::default() };
        report.lasted = sent.last().zip(sent.first()).map_or(Duration::ZERO, |(last, first)| *last - *first);
        for node in answered.iter().flatten() {
            *report.by_node.entry((*node).to_owned()).or_default() += 1;
            if report.path.last().is_none_or(|last| last != node) {
                report.path.push((*node).to_owned());
            }
        }
        report.measure(sent, &answered, manner);
        report
    }

    /// Silence is counted from each unanswered packet to the next one from the same port; a stall counts as the usual
    /// distance.
    fn measure(&mut self, sent: &[Instant], answered: &[Option<&str>], manner: Manner) {
        let clock = self.clock(sent, manner.pace);
        for flow in 0..manner.flows {
            let (numbers, mut gap) = ((flow..sent.len()).step_by(manner.flows).collect::<Vec<_>>(), Duration::ZERO);
            for pair in numbers.windows(2) {
                let step = clock[pair[1]] - clock[pair[0]];
                gap = if answered[pair[0]].is_some() { Duration::ZERO } else { gap + step };
                self.longest_gap = self.longest_gap.max(gap);
            }
        }
    }

    /// When each packet was sent, by a clock that stands still while the client itself does.
    fn clock(&mut self, sent: &[Instant], pace: Duration) -> Vec<Duration> {
        let (mut clock, mut now) = (vec![Duration::ZERO], Duration::ZERO);
        for pair in sent.windows(2) {
            let step = pair[1] - pair[0];
            let own = if step > STALL.max(pace * 4) { step - pace } else { Duration::ZERO };
            self.stalled += own;
            now += step - own;
            clock.push(now);
        }
        clock
    }

    /// Packets without an answer.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.sent - self.received
    }

    /// Packets per second, as really sent.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sent as f64 / self.lasted.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets sent at these milliseconds; a letter is who answered, a dot is nobody.
    fn report(sent: &[u64], answers: &str, flows: usize) -> Report {
        let begin = Instant::now();
        let sent: Vec<Instant> = sent.iter().map(|at| begin + Duration::from_millis(*at)).collect();
        let answered = answers.chars().enumerate().filter(|(_, node)| *node != '.');
        let answers = answered.map(|(number, node)| Answer { number: number as u64, node: node.to_string() });
        Report::of(&sent, &answers.collect::<Vec<_>>(), Manner { flows, ..Manner::default() })
    }

    #[test]
    fn a_gap_reaches_from_the_first_lost_packet_to_the_next_answered_one() {
        let seen = report(&[0, 1, 2, 3, 4, 5, 6], "aa...b.", 1);
        assert_eq!((seen.lost(), seen.longest_gap), (4, Duration::from_millis(3)));
        assert_eq!(seen.path, ["a", "b"]);
    }

    #[test]
    fn a_pause_of_the_client_is_no_gap() {
        let seen = report(&[0, 1, 500, 501], "aaaa", 1);
        assert_eq!((seen.lost(), seen.longest_gap), (0, Duration::ZERO));
        assert!(seen.stalled > Duration::from_millis(490));
        let seen = report(&[0, 1, 500, 501], "a.aa", 1);
        assert_eq!((seen.lost(), seen.longest_gap), (1, Manner::default().pace));
    }
    #[test]
    fn a_port_that_is_silent_among_others_is_a_gap() {
        let seen = report(&[0, 1, 2, 3, 4, 5, 6, 7, 8], "ab.b.bcbc", 2);
        assert_eq!((seen.lost(), seen.longest_gap), (2, Duration::from_millis(4)));
        assert_eq!(seen.by_node, [("a".to_owned(), 1), ("b".to_owned(), 4), ("c".to_owned(), 2)].into());
    }
}
