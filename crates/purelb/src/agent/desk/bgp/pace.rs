//! When a BGPNodeStatus is written: soon after a change, not too often, and now and then although nothing happened.

use std::time::Duration;

use purelb_core::moment::Moment;

/// Two reports are at least this far apart.
pub(super) const APART: Duration = Duration::from_secs(1);
/// How soon a report that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// When the next report is due.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Something may have changed since the last report was made.
    changed: bool,
    /// When somebody last looked whether there is something to report.
    looked: Option<Moment>,
    /// When the last report was sent.
    sent: Option<Moment>,
    /// It has not been answered yet.
    in_flight: bool,
    /// Not to be tried again before.
    pause: Option<Moment>,
}

impl Pace {
    /// Something may have changed.
    pub fn hurry(&mut self) {
        self.changed = true;
    }

    /// Whether it is time to write although nothing happened.
    pub fn is_beat(&self, heartbeat: Duration, now: Moment) -> bool {
        self.pause.is_some() || self.sent.is_some_and(|sent| sent + heartbeat <= now)
    }

    /// When the next report is due; `None` while one is on its way, or before anything is worth one.
    pub fn due(&self, heartbeat: Duration) -> Option<Moment> {
        let due = match self.changed {
            true => Some(self.looked.map_or(Moment::default(), |looked| looked + APART)),
            false => self.sent.map(|sent| sent + heartbeat),
        };
        due.filter(|_| !self.in_flight).map(|due| due.max(self.pause.unwrap_or_default()))
    }

    /// What was looked at is what was sent last; nothing needs to be written before the heartbeat.
    pub fn nothing_new(&mut self, now: Moment) {
        (self.changed, self.looked) = (false, Some(now));
    }

    /// A report goes out.
    pub fn sending(&mut self, now: Moment) {
        (self.changed, self.looked, self.sent, self.in_flight) = (false, Some(now), Some(now), true);
    }

    /// It was written, or not.
    pub fn written(&mut self, well: bool, now: Moment) {
        self.in_flight = false;
        self.changed |= !well;
        self.pause = (!well).then_some(now + RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment(Duration::from_millis(millis))
    }

    #[test]
    fn changes_are_written_soon_not_too_often_and_silence_now_and_then() {
        let beat = Duration::from_secs(60);
        let mut pace = Pace::default();
        assert_eq!(pace.due(beat), None, "nothing to say yet");
        pace.hurry();
        assert_eq!(pace.due(beat), Some(at(0)));
        pace.sending(at(5000));
        pace.hurry();
        assert_eq!(pace.due(beat), None, "one at a time");
        pace.written(true, at(5100));
        assert_eq!(pace.due(beat), Some(at(6000)), "a second apart");
        pace.sending(at(6000));
        pace.written(true, at(6001));
        assert_eq!(pace.due(beat), Some(at(66_000)), "the heartbeat");
        pace.hurry();
        pace.nothing_new(at(7000));
        assert_eq!(pace.due(beat), Some(at(66_000)));
    }

    #[test]
    fn a_report_that_could_not_be_written_is_tried_again_after_a_pause() {
        let mut pace = Pace::default();
        pace.hurry();
        pace.sending(at(0));
        pace.written(false, at(200));
        assert_eq!(pace.due(Duration::from_secs(60)), Some(at(5200)));
    }
}
