//! Medians and the like.

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

/// A number with what was promised of it, such as `p50 ratio 0.99, at most 2: kept`.
pub fn promise(what: &str, value: f64, most: f64) {
    let word = if value <= most { "kept" } else { "BROKEN" };
    println!("target: {what} {value:.2}, at most {most}: {word}");
}
