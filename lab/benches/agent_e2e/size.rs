//! Resident memory with none, a thousand and ten thousand Services, all of them announced.

use std::time::Duration;

use anyhow::{Result, ensure};
use purelb_lab::Daemon;

use crate::site::Site;

/// How often memory is looked at while it settles.
const PAUSE: Duration = Duration::from_millis(500);

pub async fn measure(site: &Site) -> Result<()> {
    println!("\nServices   after announcing them (peak)   after a restart (peak)   at most");
    let (mut there, mut above) = (0, Vec::new());
    for (count, most) in [(0, 12.0), (1000, 16.0), (9000, 40.0)] {
        let agent = site.agent().await?;
        site.fill(there, count).await?;
        there += count;
        site.applied(there as usize).await?;
        let grown = settled(&agent).await?;
        agent.kill();
        let fresh = site.agent().await?;
        let small = settled(&fresh).await?;
        fresh.kill();
        println!(
            "{there:>8} {:>14.1} MiB ({:>5.1} MiB) {:>11.1} MiB ({:>5.1} MiB) {most:>6.0} MiB",
            grown.0, grown.1, small.0, small.1
        );
        if grown.0.max(small.0) > most {
            above.push(there);
        }
    }
    site.clear().await?;
    ensure!(above.is_empty(), "more memory than promised with {above:?} Services");
    Ok(())
}

/// Resident memory in MiB once it no longer moves, and the most there ever was.
async fn settled(agent: &Daemon) -> Result<(f64, f64)> {
    let (mut before, mut calm) = (0.0, 0);
    while calm < 4 {
        tokio::time::sleep(PAUSE).await;
        let now = agent.memory("VmRSS")?;
        calm = if (now - before).abs() < 0.1 { calm + 1 } else { 0 };
        before = now;
    }
    Ok((before, agent.memory("VmHWM")?))
}
