//! When this node's lease is renewed: regularly, at once when others wait for what it says, and soon after a failure.

use std::time::Duration;

use purelb_core::moment::Moment;

use crate::agent::lease::Content;

/// How often the lease is renewed.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long after a renewal the next one is sent.
    pub renew: Duration,
    /// How long after a failed one.
    pub retry: Duration,
}

/// What is known of the renewals.
#[derive(Debug)]
pub struct Heartbeat {
    pace: Pace,
    /// What was last sent, and when.
    sent: Option<(Content, Moment)>,
    under_way: bool,
    failures: u32,
    /// After a failure, nothing is sent before this.
    pause_until: Moment,
}

impl Heartbeat {
    /// Nothing was sent yet.
    pub fn new(pace: Pace) -> Self {
        Self { pace, sent: None, under_way: false, failures: 0, pause_until: Moment::default() }
    }

    /// When a lease that should say this is to be written; `None` while an answer is awaited.
    ///
    /// `urgent` is whether somebody waits for a newer `saw`, `proof_due` when a renewal would prove a member dead.
    pub fn due(&self, content: &Content, urgent: bool, proof_due: Option<Moment>, now: Moment) -> Option<Moment> {
        if self.under_way {
            return None;
        }
        if self.failures > 0 {
            return Some(self.pause_until);
        }
        Some(match &self.sent {
            Some((said, at)) if !is_news(said, content, urgent) => {
                let regular = *at + self.pace.renew;
                proof_due.map_or(regular, |proof| regular.min(proof))
            }
            _ => now,
        })
    }

    /// A renewal goes out.
    pub fn sending(&mut self, content: Content, now: Moment) {
        self.sent = Some((content, now));
        self.under_way = true;
    }

    /// It was accepted; answers with how many had failed before.
    pub fn accepted(&mut self) -> u32 {
        self.under_way = false;
        std::mem::take(&mut self.failures)
    }

    /// It failed; answers with how many have failed in a row.
    pub fn failed(&mut self, now: Moment) -> u32 {
        self.under_way = false;
        self.failures += 1;
        let at = self.sent.as_ref().map_or(now, |(_, at)| *at);
        // Silence has used up the time already, a refusal has not.
        self.pause_until = (at + self.pace.retry).max(now + self.pace.retry / 4);
        self.failures
    }

    /// The lease was deleted by somebody: write it at once.
    pub fn lost(&mut self) {
        self.sent = None;
    }

    /// What the lease was last to say.
    pub fn said(&self) -> Option<&Content> {
        self.sent.as_ref().map(|(content, _)| content)
    }
}

/// Whether others need to hear of the difference before the next regular renewal.
fn is_news(said: &Content, content: &Content, urgent: bool) -> bool {
    said.subnets != content.subnets
        || said.claims != content.claims
        || said.owner != content.owner
        || said.addresses != content.addresses
        || said.gateways != content.gateways
        || said.api_servers != content.api_servers
        || (urgent && said.saw < content.saw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { renew: Duration::from_secs(3), retry: Duration::from_secs(2) };

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn content(saw: u64) -> Content {
        Content { saw, ..Content::default() }
    }

    fn beating() -> Heartbeat {
        let mut heartbeat = Heartbeat::new(PACE);
        heartbeat.sending(content(1), at(10));
        heartbeat
    }

    #[test]
    fn the_first_renewal_goes_out_at_once_and_the_next_after_the_answer() {
        assert_eq!(Heartbeat::new(PACE).due(&content(1), false, None, at(5)), Some(at(5)));
        let mut heartbeat = beating();
        assert_eq!(heartbeat.due(&content(1), false, None, at(11)), None, "one at a time");
        assert_eq!(heartbeat.accepted(), 0);
        assert_eq!(heartbeat.due(&content(1), false, None, at(11)), Some(at(13)));
    }

    #[test]
    fn what_others_wait_for_does_not_wait() {
        let mut heartbeat = beating();
        heartbeat.accepted();
        assert_eq!(heartbeat.due(&content(7), false, None, at(11)), Some(at(13)), "nobody waits for it");
        assert_eq!(heartbeat.due(&content(7), true, None, at(11)), Some(at(11)));
        assert_eq!(heartbeat.due(&content(1), true, None, at(11)), Some(at(13)), "it was said before");
        let subnets = ["192.0.2.0/24".parse().unwrap()].into();
        assert_eq!(heartbeat.due(&Content { subnets, ..content(1) }, false, None, at(11)), Some(at(11)));
        assert_eq!(heartbeat.due(&content(1), false, Some(at(12)), at(11)), Some(at(12)), "a member may be dead");
    }

    #[test]
    fn b8_a_failure_is_repeated_soon_and_a_lost_lease_written_at_once() {
        let mut heartbeat = beating();
        assert_eq!(heartbeat.failed(at(10)), 1);
        assert_eq!(heartbeat.due(&content(7), true, None, at(11)), Some(at(12)), "not in a hot loop");
        heartbeat.sending(content(1), at(12));
        assert_eq!(heartbeat.failed(at(14)), 2);
        assert_eq!(heartbeat.due(&content(1), false, None, at(14)), Some(Moment(Duration::from_millis(14_500))));
        heartbeat.sending(content(1), at(15));
        assert_eq!(heartbeat.accepted(), 2);
        heartbeat.lost();
        assert_eq!(heartbeat.due(&content(1), false, None, at(15)), Some(at(15)));
    }
}
