//! The allocator against a real API server, beside a raw client that does the same writes in the same run.
//!
//! `cargo bench -p purelb-lab --bench allocator_e2e` measures everything; words after `--` choose parts of it:
//! `latency`, `waiting`, `new`, `size`, `handover`. Lines that begin with `target:` say what was promised and whether it is kept; one
//! that is not fails the run. The allocator is the program of the image,
//! which is built if need be.

mod burst;
mod cluster;
mod daemon;
mod effort;
mod handover;
mod latency;
mod numbers;
mod size;
mod witness;

use anyhow::{Result, ensure};

use cluster::Cluster;
use numbers::Promise;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let (cluster, mut promises) = (Cluster::start().await?, Vec::new());
    if chosen("latency") {
        promises.extend(latency::measure(&cluster).await?);
    }
    if chosen("waiting") {
        promises.extend(burst::measure_waiting(&cluster).await?);
    }
    if chosen("new") {
        promises.extend(burst::measure_new(&cluster).await?);
    }
    if chosen("size") {
        promises.extend(size::measure(&cluster).await?);
    }
    if chosen("handover") {
        promises.extend(handover::measure(&cluster).await?);
    }
    let broken: Vec<String> = promises.iter().filter(|promise| !promise.is_kept()).map(Promise::to_string).collect();
    ensure!(broken.is_empty(), "not kept: {}", broken.join("; "));
    Ok(())
}
