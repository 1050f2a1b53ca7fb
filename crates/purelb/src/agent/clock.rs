//! The agent's clock: moments for the decisions, instants for the timers, from one source.

use purelb_core::moment::Moment;
use tokio::time::Instant;

/// Counts from the moment it was made. Stands still in tests that pause tokio's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a default clock would hide that reading the time begins here")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment(self.start.elapsed())
    }

    /// When tokio's timers see this moment.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        // A moment too far away to be told is as good as one in thirty years.
        const FAR: std::time::Duration = std::time::Duration::from_secs(30 * 365 * 24 * 3600);
        self.start + moment.0.min(FAR)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_moves_only_when_told() {
        let clock = Clock::new();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.now(), Moment(Duration::from_secs(3)));
        tokio::time::sleep_until(clock.instant(Moment(Duration::from_secs(10)))).await;
        assert_eq!(clock.now(), Moment(Duration::from_secs(10)));
    }

    #[test]
    fn a_moment_beyond_all_timers_is_no_panic() {
        let clock = Clock::new();
        assert!(clock.instant(Moment(Duration::MAX)) > Instant::now());
    }
}
