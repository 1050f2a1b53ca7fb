//! What a burst costs: the time it takes, and the processor time of everybody who has a part in it.
//!
//! On a machine that does other things as well, the time tells little and the processor time still tells who has how much
//! to do: the API server, etcd, the allocator, and this process with its watch and its raw client.

use std::fs;
use std::time::{Duration, Instant};

/// How many units of processor time /proc counts in a second; the kernel has shown no other number for decades.
const TICKS: f64 = 100.0;

/// A burst under way.
pub struct Effort {
    begun: Instant,
    processor: f64,
}

impl Effort {
    pub fn begin() -> Self {
        Self { begun: Instant::now(), processor: processor() }
    }

    /// How long it took until then, and the seconds of processor time.
    pub fn until(&self, end: Instant) -> (Duration, f64) {
        (end.duration_since(self.begun), processor() - self.processor)
    }
}

/// Seconds of processor time that this process and its children have taken.
fn processor() -> f64 {
    let own = std::process::id();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let ticks = numbers.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // What follows the name: the state, the parent, and as the 12th and 13th user and system time.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        (pid == own || number(1)? == u64::from(own)).then_some(number(11)? + number(12)?)
    });
    ticks.sum::<u64>() as f64 / TICKS
}
