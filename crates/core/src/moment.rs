//! Time as an argument: a point on the clock of this process, which only ever goes forward.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time since some fixed point before the process began to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Moment(pub Duration);

impl Moment {
    /// How long ago `earlier` was; nothing, if it lies ahead.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, later: Duration) -> Moment {
        Moment(self.0.saturating_add(later))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, earlier: Duration) -> Moment {
        Moment(self.0.saturating_sub(earlier))
    }
}
