//! Becoming a container: its root, its rights, its program. Runs in a process of its own, which has one thread.

mod root;

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal, umask};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};
use rustix::thread::{clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities};
use rustix::thread::{
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::recipe::{Recipe, Rights};
use super::seccomp;

/// Starts the container of this recipe as the first process of a new process namespace, which the caller has made for
/// its children, and waits for its end. Returns its exit code, 128 and more for a signal.
///
/// # Errors
/// When it cannot be started.
pub fn guard(recipe: &Path) -> Result<u8> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Opened now: the container is about to put another root under this process too.
    let mut note = File::create(recipe.with_file_name("pid"))?;
    let mut container = Command::new("/proc/self/exe");
    let mut container = container.arg("become").arg(recipe).spawn().context("cannot start the container")?;
    writeln!(note, "{}", container.id())?;
    let status = container.wait()?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// Turns the calling process into the container of this recipe.
///
/// # Errors
/// When the kernel refuses a step, or the program does not exist.
pub fn become_container(recipe: &Path) -> Result<Infallible> {
    let recipe: Recipe = serde_json::from_slice(&fs::read(recipe)?).context("the recipe cannot be read")?;
    rustix::system::sethostname(recipe.hostname.as_bytes())?;
    root::enter(&recipe).context("cannot make the container's root")?;
    rustix::process::chdir(&recipe.directory).context("cannot enter the working directory")?;
    restrict(&recipe.rights).context("cannot give up rights")?;
    let (program, arguments) = recipe.arguments.split_first().context("the container has no command")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(recipe.variables.iter().cloned());
    Err(command.exec()).with_context(|| format!("cannot run {program}"))
}

/// Leaves exactly these rights. Like container runtimes, it leaves no ambient capabilities: a user other than root has
/// none after the program has started, whatever the Pod adds.
fn restrict(rights: &Rights) -> Result<()> {
    umask(rustix::fs::Mode::from_raw_mode(0o022));
    // A privileged container gets all that there is to give: the machine itself may have been given less than all.
    let own = rustix::thread::capabilities(None)?.permitted;
    let held = CapabilitySet::from_bits_retain(rights.capabilities);
    let held = if rights.privileged { held & own } else { held };
    let last: u32 = fs::read_to_string("/proc/sys/kernel/cap_last_cap")?.trim().parse()?;
    for one in (0..=last).map(|bit| CapabilitySet::from_bits_retain(1 << bit)).filter(|one| !held.contains(*one)) {
        remove_capability_from_bounding_set(one)?;
    }
    if rights.no_new_privs {
        set_no_new_privs(true)?;
    }
    set_keep_capabilities(true)?;
    let (uid, gid) = (Uid::from_raw(rights.uid), Gid::from_raw(rights.gid));
    set_thread_groups(&rights.groups.iter().map(|group| Gid::from_raw(*group)).collect::<Vec<_>>())?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: held, permitted: held, inheritable: none })?;
    clear_ambient_capability_set()?;
    // A change of user makes the kernel forget this, so it comes after.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if rights.confined {
        seccomp::confine()?;
    }
    Ok(())
}
