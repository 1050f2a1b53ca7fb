//! What the demo tells: text for people, in 80 columns and without colour, or one JSON object per step for machines.

mod page;

use std::fs::File;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use purelb_net::Namespace;
use serde_json::{Map, Value, json};

use crate::ending::STOPPED;
use crate::folder::TOUR;
use page::{folded, seconds};

/// How long something may take to be seen; only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a command may take before the screen shows what is awaited, and how often it is told anew.
const TICK: Duration = Duration::from_millis(100);

/// For whom it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// People.
    Text,
    /// Machines.
    Json,
}

/// What was expected and never came.
#[derive(Debug, thiserror::Error)]
#[error("expected: {expected}\n  saw: {saw}")]
pub struct Missed {
    expected: String,
    saw: String,
}

/// A look at something: what was looked for, or else what was there instead.
pub type Look<T> = std::result::Result<T, String>;

/// One step of the tour.
struct Step {
    number: usize,
    title: &'static str,
    begun: Instant,
    facts: Map<String, Value>,
}

/// The screen, and what has been shown on it.
pub struct Show {
    form: Form,
    on_terminal: bool,
    folder: PathBuf,
    log: Option<File>,
    begun: Instant,
    step: Option<Step>,
}

impl Show {
    /// Text also goes to `tour.log` in the folder.
    pub fn new(form: Form, folder: &Path) -> Self {
        let on_terminal = form == Form::Text && stdout().is_terminal();
        let log = File::create(folder.join(TOUR)).ok();
        Self { form, on_terminal, folder: folder.to_owned(), log, begun: Instant::now(), step: None }
    }

    /// Where manifests, kubeconfig and logs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How long the demo has been running.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A line of text, folded if it is too long.
    pub fn line(&mut self, text: &str) {
        self.whole(&folded(text));
    }

    /// A line that somebody may want to copy, as long as it may be.
    pub fn whole(&mut self, text: &str) {
        if let Some(log) = &mut self.log {
            // A full disk is no reason to stop showing.
            let _ = writeln!(log, "{text}");
        }
        if self.form == Form::Text {
            print(text);
        }
    }

    /// Something that a machine may want to know about this step.
    pub fn fact(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(step) = &mut self.step {
            step.facts.insert(name.to_owned(), value.into());
        }
    }

    /// Begins a step.
    pub fn begin(&mut self, number: usize, of: usize, title: &'static str) {
        self.line("");
        self.line(&format!("== {number}/{of} {title}"));
        self.step = Some(Step { number, title, begun: Instant::now(), facts: Map::new() });
    }

    /// Ends a step that was seen to work.
    pub fn done(&mut self) {
        let Some(step) = self.step.take() else { return };
        self.line(&format!("-- seen to work in {}", seconds(step.begun.elapsed())));
        let mut object = json!({"step": step.number, "title": step.title, "ok": true});
        object["seconds"] = json!(step.begun.elapsed().as_secs_f64());
        object["at"] = json!(self.elapsed().as_secs_f64());
        object["facts"] = Value::Object(step.facts);
        self.object(&object);
    }

    /// Says what went wrong, in which step, and where the logs are.
    pub fn failure(&mut self, error: &anyhow::Error) {
        let (number, title) = self.step.as_ref().map_or((0, "the start"), |step| (step.number, step.title));
        let place = if number == 0 { title.to_owned() } else { format!("step {number}, {title}") };
        let logs = self.folder.display().to_string();
        let _ = writeln!(stderr(), "\nFAILED in {place}\n  {error:#}\n  logs: {logs} (the next start removes them)");
        let object = json!({"step": number, "title": title, "ok": false, "error": format!("{error:#}"), "logs": logs});
        self.object(&object);
    }

    /// A line for machines.
    pub fn object(&self, object: &Value) {
        if self.form == Form::Json {
            print(&object.to_string());
        }
    }

    /// Runs a command as a person would type it, shows it with what it prints, and returns that.
    pub fn types(&mut self, line: &str) -> Result<String> {
        self.types_to_await(line, &beginning(line))
    }

    /// The same for a command that takes its time: meanwhile the screen says what for.
    pub fn types_to_await(&mut self, line: &str, awaited: &str) -> Result<String> {
        self.whole(&format!("$ {line}"));
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.folder.join("manifests")).stdin(Stdio::null());
        shell.env("KUBECONFIG", self.folder.join("kubeconfig"));
        shell.env("KUBECACHEDIR", self.folder.join("kubectl-cache"));
        self.runs(line, awaited, &mut shell)
    }

    /// The same on one of the machines.
    pub fn types_on(&mut self, machine: &Namespace, line: &str) -> Result<String> {
        self.whole(&format!("{}$ {line}", machine.name()));
        let mut shell = machine.command("sh");
        shell.args(["-c", line]).stdin(Stdio::null());
        self.runs(line, &beginning(line), &mut shell)
    }

    fn runs(&mut self, line: &str, awaited: &str, command: &mut Command) -> Result<String> {
        let output = self.output(awaited, command).with_context(|| format!("cannot run {line}"))?;
        let (text, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        for shown in text.lines().chain(complaint.lines()) {
            self.line(shown);
        }
        let saw = || format!("{text}{complaint}");
        ensure!(output.status.success(), Missed { expected: format!("{line} succeeds"), saw: saw() });
        Ok(text.into_owned())
    }

    /// What a command prints; until it ends, the screen shows that it runs.
    fn output(&self, awaited: &str, command: &mut Command) -> Result<Output> {
        let begun = Instant::now();
        thread::scope(|scope| {
            let (running, ended) = channel::<()>();
            let command = scope.spawn(move || {
                let _running = running;
                command.output()
            });
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                self.progress(&format!("... {awaited} ({})", seconds(begun.elapsed())));
            }
            self.erase();
            Ok(command.join().map_err(|_| anyhow!("nobody waits for it any more"))??)
        })
    }

    /// Looks again and again until something is so, and shows meanwhile that it waits.
    pub fn until<T>(&mut self, expected: &str, mut look: impl FnMut() -> Result<Look<T>>) -> Result<T> {
        let begun = Instant::now();
        loop {
            match look()? {
                Ok(seen) => {
                    self.erase();
                    return Ok(seen);
                }
                Err(saw) if begun.elapsed() > PATIENCE => {
                    self.erase();
                    return Err(Missed { expected: expected.to_owned(), saw }.into());
                }
                Err(_) => self.progress(&format!("... {expected} ({})", seconds(begun.elapsed()))),
            }
            thread::sleep(PAUSE);
        }
    }

    /// Shows a passing word in the last line of a terminal.
    pub fn progress(&self, text: &str) {
        if self.on_terminal {
            let short: String = text.chars().take(page::WIDTH - 1).collect();
            print!("\r{short}\x1b[K");
            let _ = stdout().flush();
        }
    }

    /// Takes the passing word away.
    pub fn erase(&self) {
        self.progress("");
    }
}

/// The words that say what a command does, as in `kubectl apply`.
fn beginning(line: &str) -> String {
    line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Ends the demo if nobody reads any more what it prints.
fn print(text: &str) {
    if writeln!(stdout(), "{text}").is_err() {
        std::process::exit(STOPPED.into());
    }
}

/// Fails unless something was seen.
pub fn demand(holds: bool, expected: &str, saw: impl std::fmt::Display) -> Result<()> {
    ensure!(holds, Missed { expected: expected.to_owned(), saw: saw.to_string() });
    Ok(())
}

pub use page::{WIDTH as COLUMNS, bar, milliseconds, quoted};
