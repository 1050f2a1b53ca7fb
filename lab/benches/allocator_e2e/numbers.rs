//! Medians and the like.

use std::fmt;
use std::time::Duration;

/// The value below which this share of all values lies.
pub fn quantile(values: &[Duration], share: f64) -> Duration {
    let mut values = values.to_vec();
    values.sort();
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * share).round() as usize).copied().unwrap_or_default()
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

pub fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// A number with what was promised of it.
pub struct Promise {
    what: String,
    value: f64,
    most: f64,
}

impl Promise {
    /// Prints it, such as `target: p50 ratio 0.99, at most 2: kept`. Whether it is kept decides at the end of the run, so
    /// that every number is printed.
    pub fn told(what: impl Into<String>, value: f64, most: f64) -> Self {
        let promise = Self { what: what.into(), value, most };
        let word = if promise.is_kept() { "kept" } else { "BROKEN" };
        println!("target: {promise}: {word}");
        promise
    }

    /// What is no number is not kept.
    pub fn is_kept(&self) -> bool {
        self.value <= self.most
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.2}, at most {}", self.what, self.value, self.most)
    }
}
