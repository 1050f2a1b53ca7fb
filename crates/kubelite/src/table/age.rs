//! Ages in kubectl's short form: seconds for two minutes, then ever coarser.

use jiff::Timestamp;

/// How long ago a time in an object was; nothing if it is no time.
pub(super) fn of_text(text: &str, now: Timestamp) -> Option<String> {
    let then: Timestamp = text.parse().ok()?;
    Some(human(now.as_second() - then.as_second()))
}

fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    match seconds {
        // Clocks may differ a little.
        ..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_get_coarser_as_they_grow() {
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 60, "3h1m"),
            (47 * HOUR, "47h"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (800 * DAY, "2y70d"),
            (3650 * DAY, "10y"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }

    #[test]
    fn what_is_no_time_has_no_age() {
        let now = "2026-01-01T00:00:05Z".parse().expect("a time");
        assert_eq!(of_text("2026-01-01T00:00:00.123456Z", now), Some("5s".into()));
        assert_eq!(of_text("yesterday", now), None);
    }
}
