//! Ends programs and removes their folder when the process that started them ends, even by `kill -9`.
//!
//! A small shell reads a pipe whose only writing end is ours. The kernel closes that end whatever ends us, and the
//! shell then kills what it was told about and removes the folder. Dropping the handle does the same, so the way out
//! after a crash is the way out of every test.

use std::ffi::OsString;
use std::io::{PipeWriter, pipe};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result};

/// Lines are process ids; the end of the input is the end of their parent. A killed program may still create a file
/// while the folder is being removed, hence the second and later tries.
const WATCH: &str = r#"
trap '' HUP INT TERM
pids=
while read -r pid; do pids="$pids $pid"; done
[ -z "$pids" ] || kill -KILL $pids 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf -- "$1" 2>/dev/null && exit 0
  sleep 0.1
done
exit 1
"#;

/// Tells the watchdog its process id, then becomes the program: no moment in which a program runs unwatched.
const BECOME: &str = r#"echo $$ && exec "$@" >"$0" 2>&1"#;

/// The shell on guard and the programs it guards.
pub struct Watchdog {
    leash: Option<PipeWriter>,
    shell: Child,
    programs: Mutex<Vec<Child>>,
}

impl Watchdog {
    /// Puts `folder` under guard: it is removed when this value, or this process, is gone.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn guard(folder: &Path) -> Result<Self> {
        let (end, leash) = pipe().context("cannot make a pipe for the watchdog")?;
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "watchdog"]).arg(folder).stdin(end).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: Ctrl-C on the terminal ends the tests and leaves the watchdog to tidy up.
        let shell = shell.process_group(0).spawn().context("cannot start the watchdog shell")?;
        Ok(Self { leash: Some(leash), shell, programs: Mutex::default() })
    }

    /// Starts a program under guard, with its output in the file `log`, and returns its process id.
    ///
    /// # Errors
    /// When it cannot be started. That the program itself is missing is seen in the log.
    pub fn start(&mut self, program: &Path, log: &Path, arguments: Vec<OsString>) -> Result<u32> {
        let leash = self.leash.as_ref().expect("the leash is let go only on drop").try_clone()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", BECOME]).arg(log).arg(program).args(arguments);
        shell.stdin(Stdio::null()).stdout(leash).stderr(Stdio::null()).process_group(0);
        let child = shell.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id();
        self.programs.lock().expect("nobody panics while holding it").push(child);
        Ok(pid)
    }

    /// How the first program that has ended by itself ended.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        let mut programs = self.programs.lock().expect("nobody panics while holding it");
        programs.iter_mut().find_map(|program| program.try_wait().ok().flatten())
    }

    /// Whether one of the programs has ended by itself.
    #[must_use]
    pub fn any_ended(&self) -> bool {
        let mut programs = self.programs.lock().expect("nobody panics while holding it");
        programs.iter_mut().any(|program| !matches!(program.try_wait(), Ok(None)))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.leash.take());
        // Nothing to be done about a failure here: the programs are killed or were gone already.
        let _ = self.shell.wait();
        for program in self.programs.get_mut().expect("nobody panics while holding it") {
            let _ = program.wait();
        }
    }
}
