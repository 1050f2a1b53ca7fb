//! Log lines: JSON for machines, plain text on a terminal, at a level that can be changed while the daemon runs.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// The environment variable that says how much is logged.
pub const LEVEL_VARIABLE: &str = "PURELB_LOG_LEVEL";

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Changes of state.
    #[default]
    Info,
    /// The reasoning, too.
    Debug,
}

impl Level {
    /// The level of this name in any case; anything else is no level.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Info, Self::Debug].into_iter().find(|level| text.trim().eq_ignore_ascii_case(level.name()))
    }

    /// The level that [`LEVEL_VARIABLE`] asks for; anything but `debug` means info.
    pub fn from_env() -> Self {
        std::env::var(LEVEL_VARIABLE).ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Our own lines at this level; those of libraries only when something is wrong, since they tell of every
    /// connection and might quote what was sent over it.
    fn filter(self) -> Targets {
        let (own, client) = match self {
            // Each of its errors is also in a line of ours that says what it means.
            Self::Info => (LevelFilter::INFO, LevelFilter::OFF),
            Self::Debug => (LevelFilter::DEBUG, LevelFilter::WARN),
        };
        Targets::new().with_default(LevelFilter::WARN).with_target("purelb", own).with_target("kube_client", client)
    }
}

/// The level of a running daemon; clones change the same one.
#[derive(Clone)]
pub struct Dial {
    handle: reload::Handle<Targets, Registry>,
}

impl Dial {
    /// The level now.
    pub fn level(&self) -> Level {
        let debug = self.handle.with_current(|filter| filter.would_enable("purelb", &tracing::Level::DEBUG));
        if debug.unwrap_or(false) { Level::Debug } else { Level::Info }
    }

    /// Logs more or less from now on.
    pub fn turn(&self, level: Level) {
        if self.handle.reload(level.filter()).is_ok() {
            tracing::info!(level = level.name(), "log level set");
        }
    }
}

/// Starts logging to standard output. Fails when something in this process has done so before.
pub fn start(level: Level) -> Result<Dial, TryInitError> {
    let (filter, handle) = reload::Layer::new(level.filter());
    let terminal = io::stdout().is_terminal();
    let lines = if terminal {
        fmt::layer().boxed()
    } else {
        fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?;
    Ok(Dial { handle })
}

/// A dial that no line is behind, and the filter it turns: it works as long as that is there.
#[cfg(test)]
pub(crate) fn quiet_dial() -> (Dial, reload::Layer<Targets, Registry>) {
    let (filter, handle) = reload::Layer::new(Level::Info.filter());
    (Dial { handle }, filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_debug_is_debug_and_in_any_case() {
        let read = |text: &str| Level::parse(text).unwrap_or_default();
        assert_eq!(["debug", "DEBUG", "Debug", " debug "].map(read), [Level::Debug; 4]);
        assert_eq!(["", "info", "trace", "warn", "all"].map(read), [Level::Info; 5]);
    }

    #[test]
    fn an_api_server_that_is_down_makes_one_line_and_not_two() {
        let shown = |level: Level, target| level.filter().would_enable(target, &tracing::Level::ERROR);
        let targets = ["purelb::cluster::watch", "kube_client::client::builder", "hyper"];
        assert_eq!(targets.map(|target| shown(Level::Info, target)), [true, false, true]);
        assert_eq!(targets.map(|target| shown(Level::Debug, target)), [true; 3]);
    }

    #[test]
    fn the_level_can_be_turned_while_the_daemon_runs() {
        let (dial, filter) = quiet_dial();
        let subscriber = tracing_subscriber::registry().with(fmt::layer().with_writer(io::sink).with_filter(filter));
        tracing::subscriber::with_default(subscriber, || {
            assert_eq!((dial.level(), tracing::enabled!(tracing::Level::DEBUG)), (Level::Info, false));
            dial.turn(Level::Debug);
            assert_eq!((dial.level(), tracing::enabled!(tracing::Level::DEBUG)), (Level::Debug, true));
            dial.turn(Level::Info);
            assert_eq!((dial.level(), tracing::enabled!(tracing::Level::DEBUG)), (Level::Info, false));
        });
    }
}
