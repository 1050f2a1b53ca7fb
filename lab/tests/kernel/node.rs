//! A node of the tests: a namespace, the agent's kernel thread in it, and eyes from outside.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use purelb::agent::clock::Clock;
use purelb::agent::kernel::{self, Kernel, KernelNews, Order, StepError};
use purelb_core::links::{LinkNews, Links};
use purelb_core::plan::{Step, Why};
use purelb_lab::net::Namespace;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// The virtual interface.
pub const LB: &str = "kube-lb0";

/// What became of some steps.
pub type Results = Vec<(Step, Result<(), StepError>)>;

/// A node.
pub struct Node {
    /// Its namespace.
    pub namespace: Namespace,
    /// What its kernel thread has told so far, added up.
    pub links: Links,
    /// News that are not about links, since they were last taken.
    pub others: Vec<KernelNews>,
    /// How often everything was told.
    pub dumps: usize,
    kernel: Kernel,
    clock: Clock,
    runtime: Runtime,
}

impl Node {
    /// A node with nothing but a loopback.
    pub fn new() -> Result<Self> {
        Self::inside(&Namespace::new("node")?)
    }

    /// A node with the virtual interface made and on.
    pub fn with_virtual_link() -> Result<(Self, u32)> {
        let mut node = Self::new()?;
        node.must(vec![Step::MakeLink { name: LB.into() }])?;
        let link = node.index(LB)?;
        node.must(vec![Step::SetUp { link }])?;
        Ok((node, link))
    }

    /// The agent's kernel thread in a namespace that is there already; returns when it has told everything.
    pub fn inside(namespace: &Namespace) -> Result<Self> {
        let clock = Clock::new();
        Self::of(namespace, namespace.run(|| kernel::start(clock))?, clock)
    }

    /// As [`Node::inside`], with this kernel thread, which goes by this clock.
    pub fn of(namespace: &Namespace, kernel: Kernel, clock: Clock) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (links, others) = (Links::default(), Vec::new());
        let mut node = Self { namespace: namespace.clone(), links, others, dumps: 0, kernel, clock, runtime };
        node.wait("everything", |node| node.dumps > 0)?;
        Ok(node)
    }

    /// Gives an order and does not wait.
    pub fn give(&self, order: Order) {
        self.kernel.orders.give(order);
    }

    /// Takes in the next piece of news.
    pub fn hear(&mut self) -> Result<()> {
        let next = self.runtime.block_on(async { timeout(PATIENCE, self.kernel.news.recv()).await });
        match next.context("no news")?.context("the kernel thread has ended")? {
            KernelNews::Links(news) => {
                self.dumps += usize::from(matches!(news, LinkNews::Everything(_)));
                self.links.hear(news);
            }
            other => self.others.push(other),
        }
        Ok(())
    }

    /// Takes in news until something is so.
    pub fn wait(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        while !is_so(self) {
            self.hear().with_context(|| format!("waited for {what}; the links are {:#?}", self.links))?;
        }
        Ok(())
    }

    /// Does steps, with all the news up to their end taken in and no more.
    pub fn apply(&mut self, steps: Vec<Step>) -> Result<Results> {
        self.apply_late(steps, Duration::ZERO)
    }

    /// The same with steps that were decided this long ago, as by an agent that was stopped since.
    pub fn apply_late(&mut self, steps: Vec<Step>, ago: Duration) -> Result<Results> {
        let (count, mut results) = (steps.len(), Vec::new());
        // The clock has to have been running for that long.
        while self.clock.now().0 < ago {
            std::thread::sleep(ago.saturating_sub(self.clock.now().0));
        }
        let decided = self.clock.now() - ago;
        self.give(Order::Apply { steps, decided });
        while results.len() < count {
            self.hear()?;
            self.others.retain(|other| {
                if let KernelNews::Applied(some) = other {
                    results.extend(some.iter().cloned());
                }
                !matches!(other, KernelNews::Applied(_))
            });
        }
        Ok(results)
    }

    /// Does steps that must succeed.
    pub fn must(&mut self, steps: Vec<Step>) -> Result<()> {
        for (step, result) in self.apply(steps)? {
            result.with_context(|| format!("{step:?}"))?;
        }
        Ok(())
    }

    /// The index of an interface, as `ip` tells it.
    pub fn index(&self, link: &str) -> Result<u32> {
        let shown = self.namespace.ip(&["-j", "link", "show", "dev", link])?;
        let index = shown[0]["ifindex"].as_u64().with_context(|| format!("no index of {link}"))?;
        Ok(u32::try_from(index)?)
    }

    /// Whether `ip` shows an interface of this name.
    pub fn has_link(&self, link: &str) -> Result<bool> {
        let shown = self.namespace.ip(&["-j", "link", "show"])?;
        Ok(shown.as_array().into_iter().flatten().any(|shown| shown["ifname"] == link))
    }

    /// The addresses that `ip` shows on an interface, without the kernel's own link-local one, as `address/prefix`.
    pub fn shown(&self, link: &str) -> Result<BTreeMap<String, Value>> {
        let shown = self.namespace.ip(&["-j", "addr", "show", "dev", link])?;
        let all = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
        let global = all.into_iter().filter(|addr| addr["scope"] != "link" && addr["local"].is_string());
        let named = |addr: Value| (format!("{}/{}", addr["local"].as_str().unwrap_or("?"), addr["prefixlen"]), addr);
        Ok(global.map(named).collect())
    }

    /// The `address/prefix` pairs that `ip` shows on an interface.
    pub fn pairs(&self, link: &str) -> Result<Vec<String>> {
        Ok(self.shown(link)?.into_keys().collect())
    }

    /// One address as `ip` shows it.
    pub fn one(&self, link: &str, pair: &str) -> Result<Value> {
        match self.shown(link)?.remove(pair) {
            Some(addr) => Ok(addr),
            None => bail!("{pair} is not on {link}: {:?}", self.pairs(link)?),
        }
    }

    /// The `address/prefix` pairs on an interface according to the news, link-local ones left out, sorted.
    pub fn told(&self, link: &str) -> Vec<String> {
        let link = self.links.named(link).map(|(_, link)| link.addrs.clone()).unwrap_or_default();
        let global = link.iter().filter(|held| !held.addr.to_string().starts_with("fe80"));
        let mut pairs: Vec<_> = global.map(|held| format!("{}/{}", held.addr, held.prefix)).collect();
        pairs.sort();
        pairs
    }
}

/// A plain address for ever, as on the virtual interface.
pub fn put(link: u32, pair: &str) -> Step {
    let (addr, prefix) = split(pair);
    let (no_prefix_route, no_dad, refresh) = (false, false, false);
    Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid: None, preferred: 0, refresh }
}

/// A local address, with a lifetime and without a route.
pub fn put_local(link: u32, pair: &str, seconds: u32) -> Step {
    let (addr, prefix) = split(pair);
    let preferred = if addr.is_ipv4() { seconds } else { 0 };
    let (no_prefix_route, no_dad, refresh) = (true, false, false);
    Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid: Some(seconds), preferred, refresh }
}

/// Takes an address off.
pub fn drop_addr(link: u32, pair: &str) -> Step {
    let (addr, prefix) = split(pair);
    Step::DropAddr { link, addr, prefix, why: Why::NoService }
}

fn split(pair: &str) -> (IpAddr, u8) {
    let (addr, prefix) = pair.split_once('/').expect("address/prefix");
    (addr.parse().expect("an address"), prefix.parse().expect("a prefix length"))
}
