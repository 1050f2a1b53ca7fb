//! Who holds which address, in memory and on disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::path::{self, Path, PathBuf};

use anyhow::{Context, Result};
use purelb_core::addr::Family;
use purelb_core::group::Ranges;
use purelb_core::pool::{Claim, Pool};
use purelb_core::reason::Reason;
use serde::{Deserialize, Serialize};

/// A Service of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The ServiceGroup.
    pub pool: String,
    /// The Service, as `namespace/name`.
    pub service: String,
}

/// All addresses and their holders. One for all pools, because an address has one holder over all of them.
#[derive(Debug)]
pub struct Ledger {
    ranges: Ranges,
    file: PathBuf,
    held: BTreeMap<IpAddr, Holder>,
}

/// Why nothing was given.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The address or the family cannot be had.
    #[error(transparent)]
    Reason(Box<Reason>),
    /// It could be had, but could not be remembered.
    #[error("cannot write the state file, so nothing was changed: {0}")]
    Unsaved(#[from] io::Error),
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::Reason(reason.into())
    }
}

impl Ledger {
    /// Reads the file, if there is one. One that cannot be read is an error: to forget a holder is to give its address
    /// to somebody else.
    pub fn open(ranges: Ranges, file: &Path) -> Result<Self> {
        let file = path::absolute(file)?;
        let folder = file.with_file_name("");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let held = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is damaged; restore it before anything is given out", file.display()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        Ok(Self { ranges, file, held })
    }

    /// One address of each family: the one the holder has, or else a free one.
    pub fn allocate(&mut self, holder: &Holder, families: &[Family]) -> Result<Vec<IpAddr>, Refusal> {
        let mut pool = self.pool(holder);
        let next = |family| match self.held.iter().find(|(addr, by)| *by == holder && Family::of(**addr) == family) {
            Some((addr, _)) => Ok(*addr),
            None => pool.take_next(family, &claim(holder)).map_err(Refusal::from),
        };
        let addrs = families.iter().copied().map(next).collect::<Result<Vec<_>, _>>()?;
        self.enter(holder, &addrs)?;
        Ok(addrs)
    }

    /// These addresses, beside what the holder has: it may be using the old ones until it releases them.
    pub fn allocate_these(&mut self, holder: &Holder, addrs: &[IpAddr]) -> Result<(), Refusal> {
        let mut pool = self.pool(holder);
        for addr in addrs.iter().filter(|addr| self.held.get(addr) != Some(holder)) {
            pool.take(*addr, &claim(holder))?;
        }
        Ok(self.enter(holder, addrs)?)
    }

    /// Takes one address, or all of them, from a holder.
    pub fn release(&mut self, holder: &Holder, only: Option<IpAddr>) -> io::Result<()> {
        let mut held = self.held.clone();
        held.retain(|addr, by| by != holder || only.is_some_and(|only| only != *addr));
        self.save(held)
    }

    /// How many addresses of a family a pool has given out.
    pub fn in_use(&self, pool: &str, family: Family) -> u64 {
        self.held.iter().filter(|(addr, by)| by.pool == pool && Family::of(**addr) == family).count() as u64
    }

    /// How many addresses of a family there are, as far as a u64 can tell.
    pub fn size(&self, family: Family) -> u64 {
        let size = Pool::new("", &self.ranges).size(family);
        u64::try_from(size).unwrap_or(u64::MAX)
    }

    /// The ranges with everything that is held, under the name of the pool that asks.
    fn pool(&self, asks: &Holder) -> Pool {
        let mut pool = Pool::new(&asks.pool, &self.ranges);
        for (addr, holder) in &self.held {
            // What lies outside of the ranges as they are now stays held, and there is nobody to keep it from.
            let _ = pool.adopt(*addr, &claim(holder));
        }
        pool
    }

    fn enter(&mut self, holder: &Holder, addrs: &[IpAddr]) -> io::Result<()> {
        let mut held = self.held.clone();
        held.extend(addrs.iter().map(|addr| (*addr, holder.clone())));
        self.save(held)
    }

    /// Makes a change count, once it is on disk. A new file takes the place of the old one, so that a crash leaves one
    /// or the other.
    fn save(&mut self, held: BTreeMap<IpAddr, Holder>) -> io::Result<()> {
        if held != self.held {
            let new = self.file.with_extension("new");
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec_pretty(&held)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.file)?;
            File::open(self.file.with_file_name(""))?.sync_all()?;
            self.held = held;
        }
        Ok(())
    }
}

/// Sharing is not this sidecar's business, so there is no key and ports do not matter.
fn claim(holder: &Holder) -> Claim {
    Claim { service: format!("{} of {}", holder.service, holder.pool).into(), key: None, ports: Vec::new() }
}
