//! A kernel that is busy with something else takes requests up late.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb::agent::kernel::StepError;
use purelb_lab::net::Namespace;

use crate::node::{LB, Node, put_local};

/// How long the kernel is to be busy, at the least.
const BUSY: Duration = Duration::from_secs(4);

/// The kernel's lock for everything that rtnetlink changes is one for all namespaces. Who deletes many interfaces at once
/// holds it until the last is gone.
#[test]
fn b22_a_kernel_that_is_busy_for_longer_than_an_address_may_be_held_does_not_hold_it_afterwards() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let crowd = Crowd::new(BUSY)?;
    let deletion = crowd.delete()?;
    let given = Instant::now();
    let results = node.apply(vec![
        put_local(link, "10.2.0.1/32", 2),
        put_local(link, "fd00:2::1/128", 2),
        put_local(link, "10.2.0.2/32", 60),
        put_local(link, "fd00:2::2/128", 60),
    ])?;
    let late = given.elapsed();
    let shown = node.shown(LB)?;
    deletion.wait()?;
    ensure!(late > Duration::from_millis(2500), "the kernel was busy for {late:?} only, which shows nothing");
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["10.2.0.2/32", "fd00:2::2/128"]);
    let done: Vec<_> = results.iter().map(|(_, result)| result.clone()).collect();
    assert_eq!(done, [Err(StepError::TooLate), Err(StepError::TooLate), Ok(()), Ok(())]);
    for (pair, addr) in shown {
        let left = addr["valid_life_time"].as_u64().context("a lifetime")?;
        assert!(Duration::from_secs(left) + late <= Duration::from_millis(60_500), "{pair}: {left} s after {late:?}");
    }
    Ok(())
}

/// Bridges in a namespace of their own: the kernel waits a moment for the end of each.
struct Crowd(Namespace);

/// So many say how long one takes.
const SAMPLE: u32 = 20;

impl Crowd {
    /// As many as keep the kernel busy for this long.
    fn new(busy: Duration) -> Result<Self> {
        let crowd = Self(Namespace::new("crowd")?);
        crowd.grow(SAMPLE)?;
        let begun = Instant::now();
        crowd.delete()?.wait()?;
        let each = begun.elapsed() / SAMPLE;
        // Not for ever, whatever is wrong.
        let count = u32::try_from(busy.as_nanos() / each.as_nanos().max(1))?.clamp(SAMPLE, 20_000);
        crowd.grow(count)?;
        Ok(crowd)
    }

    fn grow(&self, count: u32) -> Result<()> {
        let lines: String = (0..count).map(|n| format!("link add name b{n} group 7 type bridge\n")).collect();
        self.0.batch(&lines)
    }

    /// Begins to delete all at once; returns when the kernel is at it: it shows none any more long before the last is gone.
    fn delete(&self) -> Result<Deletion> {
        let mut command: Command = self.0.command("ip");
        let deletion = Deletion(command.args(["link", "delete", "group", "7"]).stdin(Stdio::null()).spawn()?);
        while self.0.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?.contains("b0:") {
            std::thread::yield_now();
        }
        Ok(deletion)
    }
}

struct Deletion(Child);

impl Deletion {
    fn wait(mut self) -> Result<()> {
        ensure!(self.0.wait()?.success(), "ip did not delete the interfaces");
        Ok(())
    }
}
