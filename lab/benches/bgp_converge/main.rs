//! How fast routers learn, beside BIRD doing the same in the same run.
//!
//! `cargo bench -p purelb-lab --bench bgp_converge` measures everything; words after `--` choose parts of it: `service`
//! (a Service's status is written, and the route is in a router's kernel), `many` (a thousand routes come and go), `size`
//! (memory per peer). For `service` the release build of `purelb` must be there: `cargo build --release -p purelb`.

mod bird;
mod ear;
mod many;
#[path = "../agent_e2e/numbers.rs"]
mod numbers;
mod service;
mod size;

use anyhow::Result;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    if chosen("service") {
        service::measure().await?;
    }
    if chosen("many") {
        many::measure()?;
    }
    if chosen("size") {
        size::measure()?;
    }
    Ok(())
}
