//! How fast routers learn, beside BIRD doing the same in the same run.
//!
//! `cargo bench -p purelb-lab --bench bgp_converge` measures everything; words after `--` choose parts of it: `service`
//! (a Service's status is written, and the route is in a router's kernel), `many` (a thousand routes come and go), `size`
//! (memory per peer). It fails, after all parts, when we are slower than BIRD by more than is promised.
//! The agent is the program of the image, which is built if need be.

mod bird;
mod ear;
mod many;
#[path = "../agent_e2e/numbers.rs"]
mod numbers;
mod service;
mod size;

use anyhow::{Result, ensure};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let mut broken = Vec::new();
    if chosen("service") {
        broken.extend(service::measure().await?);
    }
    if chosen("many") {
        broken.extend(many::measure()?);
    }
    if chosen("size") {
        size::measure()?;
    }
    ensure!(broken.is_empty(), "promises are broken: {}", broken.join("; "));
    Ok(())
}

/// The promise that a ratio to BIRD breaks, if it does.
fn broken(what: &str, ratio: f64, most: f64) -> Option<String> {
    // A ratio that is no number keeps no promise.
    let kept = ratio <= most;
    (!kept).then(|| format!("{what} takes {ratio:.2} times as long as with BIRD, and at most {most} are promised"))
}
