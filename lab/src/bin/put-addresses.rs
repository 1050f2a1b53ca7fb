//! Puts addresses on a virtual interface with the agent's own hands and leaves them there: `put-addresses LINK A/N...`.

use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use purelb::agent::clock::Clock;
use purelb::agent::kernel::{self, Kernel, KernelNews, Order};
use purelb_core::links::Links;
use purelb_core::moment::Moment;
use purelb_core::plan::Step;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().context("usage: put-addresses LINK ADDRESS/PREFIX...")?;
    let clock = Clock::new();
    let mut kernel = kernel::start(clock)?;
    let mut apply = |steps| apply(&mut kernel, steps, clock.now());
    let links = apply(vec![Step::MakeLink { name: name.clone() }])?;
    let (link, _) = links.named(&name).context("the interface is not there")?;
    apply(vec![Step::SetUp { link }])?;
    apply(arguments.map(|pair| put(link, &pair)).collect::<Result<_>>()?)?;
    Ok(())
}

/// Does the steps; what the kernel has told up to their end.
fn apply(kernel: &mut Kernel, steps: Vec<Step>, decided: Moment) -> Result<Links> {
    let (mut links, mut left) = (Links::default(), steps.len());
    kernel.orders.give(Order::Dump);
    kernel.orders.give(Order::Apply { steps, decided });
    while left > 0 {
        match kernel.news.blocking_recv().context("the kernel thread has ended")? {
            KernelNews::Links(news) => links.hear(news),
            KernelNews::Applied(results) => {
                left -= results.len();
                results.into_iter().try_for_each(|(_, result)| result)?;
            }
            KernelNews::NoDummy { name } => bail!("{name} is not a dummy"),
            KernelNews::Told { .. } => {}
            KernelNews::Ended => bail!("the kernel thread has ended"),
        }
    }
    Ok(links)
}

fn put(link: u32, pair: &str) -> Result<Step> {
    let (addr, prefix) = pair.split_once('/').with_context(|| format!("{pair} has no prefix length"))?;
    let addr: IpAddr = addr.parse()?;
    let prefix = prefix.parse()?;
    ensure!(prefix <= if addr.is_ipv4() { 32 } else { 128 }, "{pair} has too long a prefix");
    let (no_prefix_route, no_dad, refresh) = (false, false, false);
    Ok(Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid: None, preferred: 0, refresh })
}
