//! An agent on a node of its own against a real API server, beside the bare watch and the bare netlink message that it
//! cannot do without.
//!
//! `cargo bench -p purelb-lab --bench agent_e2e` measures everything; words after `--` choose parts of it: `latency`,
//! `size`. The agent is the program of the image, which is built if need be.

mod kernel;
mod latency;
mod numbers;
mod site;
mod size;

use anyhow::Result;

use site::Site;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let site = Site::start().await?;
    if chosen("latency") {
        latency::measure(&site).await?;
    }
    if chosen("size") {
        size::measure(&site).await?;
    }
    Ok(())
}
