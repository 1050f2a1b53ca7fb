//! A terminal of 80 columns and 24 lines with a shell on it: tmux shows what a person would see, and presses keys.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

use crate::stage::{PATIENCE, Stage};

/// What the shell shows when it waits for a command.
const PROMPT: &str = "person$";
/// Between two looks at the screen.
const PAUSE: Duration = Duration::from_millis(50);

/// A terminal; it is closed with this value.
pub struct Screen<'a> {
    stage: &'a Stage,
    socket: String,
    server: Child,
}

impl<'a> Screen<'a> {
    /// Opens a terminal of the stage's user, and waits for its shell.
    pub fn open(stage: &'a Stage) -> Result<Self> {
        let folder = stage.path("terminal");
        if !folder.exists() {
            stage.folder_for_the_user("terminal")?;
        }
        let socket = folder.join("socket").display().to_string();
        let mut tmux = stage.command("tmux");
        tmux.args(["-D", "-f", "/dev/null", "-S", &socket]).env("LANG", "C.UTF-8").env("SHELL", "/bin/sh");
        let server = tmux.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("cannot run tmux")?;
        let screen = Self { stage, socket, server };
        let begun = Instant::now();
        let shell = format!("PS1={PROMPT} ");
        while let Err(error) = screen.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "env", &shell, "sh"]) {
            ensure!(begun.elapsed() < PATIENCE, "{error:#}");
            thread::sleep(PAUSE);
        }
        screen.waits_for_a_command()?;
        Ok(screen)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let output = self.stage.command("tmux").args(["-N", "-S", &self.socket]).args(arguments).output()?;
        ensure!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The processes of the terminal itself: tmux and the shell.
    pub fn processes(&self) -> Result<[u32; 2]> {
        Ok([self.server.id(), self.tmux(&["display-message", "-p", "#{pane_pid}"])?.trim().parse()?])
    }

    /// Presses one key, by the name that tmux has for it.
    pub fn presses(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Types a command and Enter.
    pub fn types(&self, line: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", line])?;
        self.presses("Enter")
    }

    /// All that has been shown and not erased; a line that is too long for the screen is two.
    pub fn text(&self) -> Result<String> {
        let text = self.tmux(&["capture-pane", "-p", "-S", "-"])?;
        Ok(text.trim_end().to_owned())
    }

    /// The same with every line whole, as long as it may be.
    pub fn joined(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-"])
    }

    /// The last line that is not empty: where passing words, the status and prompts are.
    fn last_line(&self) -> Result<String> {
        Ok(self.text()?.lines().last().unwrap_or_default().trim_end().to_owned())
    }

    /// Waits until something is so.
    pub fn until(&self, expected: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !holds()? {
            if begun.elapsed() > PATIENCE {
                bail!("expected on the screen: {expected}\n--- it shows\n{}", self.text()?);
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until a text is shown.
    pub fn shows(&self, words: &str) -> Result<()> {
        self.until(words, || Ok(self.text()?.contains(words)))
    }

    /// Waits until the last line is as expected, and returns it.
    pub fn last_line_is(&self, expected: &str, fits: impl Fn(&str) -> bool) -> Result<String> {
        let mut last = String::new();
        self.until(expected, || {
            last = self.last_line()?;
            Ok(fits(&last))
        })?;
        Ok(last)
    }

    /// Waits until the shell is back. The last words of a demo that dies may cover its prompt: then Enter gives another.
    fn waits_for_a_command(&self) -> Result<()> {
        self.until("the prompt of the shell", || {
            self.presses("Enter")?;
            Ok(self.last_line()? == PROMPT)
        })
    }

    /// The shell is back, got this exit code, and has a terminal that shows what is typed and takes it line by line.
    pub fn is_as_before(&self, code: u8) -> Result<()> {
        self.waits_for_a_command()?;
        self.wipes()?;
        self.types("echo code $? $(stty -a)")?;
        let answer = Regex::new(r"code (\d+) (speed .*)").expect("a good rule");
        let mut told = None;
        self.until("an exit code and the state of the terminal", || {
            let text = self.joined()?;
            told = answer.captures(&text).map(|found| (found[1].to_owned(), found[2].to_owned()));
            Ok(told.is_some())
        })?;
        let (exit, state) = told.unwrap_or_default();
        ensure!(exit == code.to_string(), "it should exit with {code}, not {exit}");
        let words: Vec<&str> = state.split_whitespace().collect();
        ensure!(words.contains(&"icanon") && words.contains(&"echo"), "a changed terminal: {state}");
        Ok(())
    }

    /// Makes the screen empty, and forgets what was on it.
    pub fn wipes(&self) -> Result<()> {
        self.tmux(&["send-keys", "-R", ";", "clear-history"]).map(drop)
    }

    /// Closes the window, as a person would: whatever runs there loses its terminal.
    pub fn closes(mut self) -> Result<()> {
        self.tmux(&["kill-server"])?;
        self.server.wait()?;
        Ok(())
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_file(self.stage.path("terminal").join("socket"));
    }
}
