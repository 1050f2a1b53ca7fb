//! How text is laid out: 80 columns, times with their unit, bars for shares.

use std::time::Duration;

/// The columns of a page.
pub const WIDTH: usize = 80;

/// Folds long lines at blanks or commas; what continues is indented.
pub fn folded(text: &str) -> String {
    text.split('\n').map(folded_line).collect::<Vec<_>>().join("\n")
}

fn folded_line(text: &str) -> String {
    let mut lines = vec![String::new()];
    for piece in text.split_inclusive([' ', ',']) {
        let last = lines.last_mut().expect("there is always a line");
        if !last.trim().is_empty() && last.chars().count() + piece.trim_end().chars().count() > WIDTH {
            lines.push(format!("    {piece}"));
        } else {
            last.push_str(piece);
        }
    }
    let trimmed: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    trimmed.join("\n")
}

/// A time in seconds.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// A time in milliseconds.
pub fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// A word for a shell, whatever is in it.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/.:_-+".contains(letter);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// A name, a number, and its share of the whole as a bar.
pub fn bar(name: &str, part: usize, whole: usize) -> String {
    let length = (part * 40).checked_div(whole).unwrap_or_default();
    format!("  {name:<8} {part:>5}  {}", "#".repeat(length)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_folded_into_80_columns_and_loses_no_word() {
        let long = "the quick brown fox jumps over the lazy dog, again and again, ".repeat(5);
        let shown = folded(&long);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&shown), words(&long));
        assert!(shown.lines().skip(1).all(|line| line.starts_with("    ")), "{shown}");
    }

    #[test]
    fn columns_of_a_short_line_stay_as_they_are() {
        assert_eq!(folded("NAME     AGE   "), "NAME     AGE");
        assert_eq!(folded(""), "");
        assert_eq!(folded("    indented"), "    indented");
    }

    #[test]
    fn a_word_that_fits_nowhere_stays_whole_for_copying() {
        let word = "x".repeat(100);
        assert_eq!(folded(&word), word);
    }

    #[test]
    fn a_shell_takes_a_quoted_word_as_one_word() {
        assert_eq!(quoted("/usr/bin:/sbin"), "/usr/bin:/sbin");
        assert_eq!(quoted("/home/o'neill/my cache"), r"'/home/o'\''neill/my cache'");
    }

    #[test]
    fn a_bar_shows_the_share() {
        assert_eq!(bar("node1", 150, 300), format!("  node1      150  {}", "#".repeat(20)));
        assert_eq!(bar("node2", 0, 0), "  node2        0");
    }
}
