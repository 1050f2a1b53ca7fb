//! The allocator against a real API server, beside a raw client that does the same writes in the same run.
//!
//! `cargo bench -p purelb-lab --bench allocator_e2e` measures everything; words after `--` choose parts of it:
//! `latency`, `waiting`, `new`, `size`. Lines that begin with `target:` say what was promised and whether it is kept. The release build of `purelb` must be there: `cargo build --release -p purelb`.

mod burst;
mod cluster;
mod daemon;
mod effort;
mod latency;
mod numbers;
mod size;
mod witness;

use anyhow::Result;

use cluster::Cluster;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let cluster = Cluster::start().await?;
    if chosen("latency") {
        latency::measure(&cluster).await?;
    }
    if chosen("waiting") {
        burst::measure_waiting(&cluster).await?;
    }
    if chosen("new") {
        burst::measure_new(&cluster).await?;
    }
    if chosen("size") {
        size::measure(&cluster).await?;
    }
    Ok(())
}
