//! What a Prometheus server reads, taken apart for the tests of both daemons' metrics.

use std::collections::BTreeSet;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Name, type and label names of a series.
pub type Series = (String, String, String);

/// What the server reads.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

/// The series of a text but those whose line is to be left out.
pub fn series(text: &str, left_out: impl Fn(&str) -> bool) -> BTreeSet<Series> {
    let mut kind = "";
    let mut all = BTreeSet::new();
    for line in text.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            kind = told.rsplit(' ').next().unwrap();
        } else if !line.starts_with('#') && !left_out(line) {
            let series = line.rsplit_once(' ').unwrap().0;
            let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
            let labels: Vec<_> = labels.split(',').map(|label| label.split('=').next().unwrap()).collect();
            all.insert((name.to_owned(), kind.to_owned(), labels.join(",")));
        }
    }
    all
}

/// The series as they are promised.
pub fn promised<'a>(all: impl IntoIterator<Item = &'a (&'a str, &'a str, &'a str)>) -> BTreeSet<Series> {
    all.into_iter().map(|(name, kind, labels)| (name.to_string(), kind.to_string(), labels.to_string())).collect()
}
