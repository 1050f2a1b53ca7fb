//! Which pods answer: asked all the time from where the API server is, as a kubelet asks from its node.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use purelb_net::Namespace;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::ask::{PORT, ask};

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// So many times in a row a pod must not answer before it counts as gone.
const FAILURES: u32 = 2;

/// How often in a row a pod has not answered at an address; nothing before it first did.
type Failures = BTreeMap<IpAddr, Option<u32>>;

/// The one who asks.
pub struct Prober {
    failures: Arc<Mutex<Failures>>,
}

impl Prober {
    /// Begins to ask, as long as the process runs.
    pub fn start(from: &Namespace) -> Result<Self> {
        let failures: Arc<Mutex<Failures>> = Arc::default();
        let (from, book) = (from.clone(), Arc::clone(&failures));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || {
            if from.step_in().is_ok() {
                runtime.block_on(probe(&book));
            }
        });
        Ok(Self { failures })
    }

    /// Whom to ask from now on.
    pub fn aim(&self, addresses: impl Iterator<Item = IpAddr>) {
        let mut book = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *book);
        book.extend(addresses.map(|address| (address, before.get(&address).copied().flatten())));
    }

    /// Whether a pod answers at this address.
    pub fn is_ready(&self, address: IpAddr) -> bool {
        let book = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        book.get(&address).copied().flatten().is_some_and(|failures| failures < FAILURES)
    }
}

async fn probe(book: &Mutex<Failures>) {
    loop {
        let targets: Vec<IpAddr> = book.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        let mut round = JoinSet::new();
        for target in targets {
            round.spawn(async move { (target, ask(SocketAddr::new(target, PORT), PATIENCE).await.is_ok()) });
        }
        while let Some(Ok((target, answered))) = round.join_next().await {
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(failures) = book.get_mut(&target) {
                *failures = if answered { Some(0) } else { failures.map(|failures| failures + 1) };
            }
        }
        sleep(PAUSE).await;
    }
}
