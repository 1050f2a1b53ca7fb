//! Durations as Go writes them, such as `100ms` or `1m30s`.

use std::time::Duration;

/// Reads a duration; `None` for text that Go would not read, and for negative ones.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    loop {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(unit_at);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = number.parse::<f64>().ok()? * seconds_of(unit)?;
        total = total.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        if tail.is_empty() {
            return Some(total);
        }
        rest = tail;
    }
}

fn seconds_of(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        // Go accepts the letter u, the micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("100ms", Some(Duration::from_millis(100)))]
    #[case("1.5s", Some(Duration::from_millis(1500)))]
    #[case("1m30s", Some(Duration::from_secs(90)))]
    #[case("2h0.5m", Some(Duration::from_secs(7230)))]
    #[case("250us", Some(Duration::from_micros(250)))]
    #[case("250µs", Some(Duration::from_micros(250)))]
    #[case("0", Some(Duration::ZERO))]
    #[case("+1s", Some(Duration::from_secs(1)))]
    #[case(".5s", Some(Duration::from_millis(500)))]
    #[case("", None)]
    #[case("100", None)]
    #[case("ms", None)]
    #[case("-5s", None)]
    #[case("1 s", None)]
    #[case("1d", None)]
    #[case("1.2.3s", None)]
    #[case("s1", None)]
    #[case("99999999999999999999h", None)]
    fn durations_read_as_in_go(#[case] text: &str, #[case] read: Option<Duration>) {
        assert_eq!(parse(text), read);
    }
}
