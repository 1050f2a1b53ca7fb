//! Medians and the like.

use std::time::Duration;

/// The value below which this share of all values lies.
pub fn quantile(values: &[Duration], share: f64) -> Duration {
    let mut values = values.to_vec();
    values.sort();
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * share).round() as usize).copied().unwrap_or_default()
}

pub fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

pub fn ms(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}
