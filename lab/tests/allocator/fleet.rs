//! Three allocators, each on a wire of its own, and everything that can happen to them.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_lab::Daemon;
use purelb_lab::daemon::Account;

use crate::cluster::{Cluster, HOME, ips, start};
use crate::user::Dice;
use crate::wire::Wire;

/// How many of the last log lines a failure shows.
const TAIL: usize = 25;
/// How much of each.
const WIDTH: usize = 300;

/// How many requests of a leader are to be on the wire before it stands still: a renewal of its lease, and writes.
const SENT: usize = 5;
/// How long that is waited for: a leader that may no longer write, or that nobody asks for anything, sends no more.
const SENDING: Duration = Duration::from_secs(1);

/// How long a new leader has for its first address.
const BEGINNING: Duration = Duration::from_secs(2);

struct Member {
    name: String,
    account: Account,
    wire: Wire,
    daemon: Option<Daemon>,
    frozen: bool,
}

impl Member {
    fn is_well(&self) -> bool {
        !self.frozen && !self.wire.is_held()
    }

    fn recover(&mut self) -> Result<()> {
        self.wire.let_go();
        if std::mem::take(&mut self.frozen) {
            self.running()?.thaw()?;
        }
        Ok(())
    }

    fn running(&self) -> Result<&Daemon> {
        self.daemon.as_ref().context("it is running between restarts")
    }

    async fn restart(&mut self, politely: bool) -> Result<()> {
        if let Some(old) = self.daemon.take() {
            // Nobody who stands still, or is alone on a dead wire, can be asked to go.
            if politely && self.is_well() {
                old.stop().await?;
            } else {
                old.kill();
            }
        }
        self.frozen = false;
        self.daemon = Some(start(&self.account, &self.name, 0)?);
        Ok(())
    }
}

/// The allocators.
pub struct Fleet {
    members: Vec<Member>,
    /// How much has happened to them.
    pub mishaps: usize,
    /// How often writes of a leader were on the wire when it lost the lease.
    pub ambushes: usize,
}

impl Fleet {
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let mut members = Vec::new();
        for number in 0..3 {
            let wire = Wire::to(cluster.account.server().to_owned()).await?;
            let account = cluster.account.through(wire.port);
            let name = format!("allocator-{number}");
            let daemon = Some(start(&account, &name, 0)?);
            members.push(Member { name, account, wire, daemon, frozen: false });
        }
        Ok(Self { members, mishaps: 0, ambushes: 0 })
    }

    /// Something happens to one of them, more often than not to the leader. One is always left in peace.
    pub async fn mishap(&mut self, cluster: &Cluster, dice: &mut Dice) -> Result<()> {
        let by_chance = usize::try_from(dice.roll(3)).expect("an index fits");
        let at_leader = dice.roll(2) == 0;
        let index = if at_leader { self.leader(cluster).await?.unwrap_or(by_chance) } else { by_chance };
        let roll = dice.roll(10);
        let alone = self.members.iter().enumerate().all(|(other, member)| other == index || !member.is_well());
        let member = &mut self.members[index];
        self.mishaps += 1;
        match roll {
            _ if !member.is_well() => member.recover(),
            0 => member.restart(false).await,
            1 => member.restart(true).await,
            _ if alone => Ok(()),
            2..=5 => {
                member.frozen = true;
                member.running()?.freeze()
            }
            _ => {
                member.wire.hold();
                Ok(())
            }
        }
    }

    /// The leader's writes stay on the wire while it loses the lease to another, and arrive when that one has begun.
    pub async fn ambush(&mut self, cluster: &Cluster, burst: impl Future<Output = Result<()>>) -> Result<()> {
        self.recover()?;
        let Some(old) = self.leader(cluster).await? else { return burst.await };
        self.mishaps += 1;
        self.members[old].wire.hold();
        // It stands still with its writes on the wire, before it notices that it has lost the lease and takes them back.
        let (daemon, wire) = (self.members[old].running()?, &self.members[old].wire);
        let freeze = async {
            let sent = tokio::time::timeout(SENDING, wire.holds(SENT)).await;
            daemon.freeze()?;
            Ok(usize::from(sent.is_ok()))
        };
        let ((), sent) = tokio::try_join!(burst, freeze)?;
        self.ambushes += sent;
        self.members[old].frozen = true;
        cluster
            .until("another leads", async || {
                let leader = self.leader(cluster).await?;
                Ok(if leader.is_some_and(|leader| leader != old) { Ok(()) } else { Err(leader.into()) })
            })
            .await?;
        let before = given(cluster).await?;
        let begun = async {
            while given(cluster).await? <= before {}
            anyhow::Ok(())
        };
        // The other may have nothing to give; then there is nothing to wait for.
        if let Ok(begun) = tokio::time::timeout(BEGINNING, begun).await {
            begun?;
        }
        self.members[old].wire.let_go();
        Ok(())
    }

    async fn leader(&self, cluster: &Cluster) -> Result<Option<usize>> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/purelb-allocator");
        let Ok(lease) = cluster.ground.get(&path).await else { return Ok(None) };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        Ok(self.members.iter().position(|member| holder.starts_with(&member.name)))
    }

    /// All are well again.
    pub fn recover(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(Member::recover)
    }

    /// The last words of each.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for member in &self.members {
            let log = member.daemon.as_ref().map(Daemon::log).unwrap_or_default();
            let skipped = log.lines().count().saturating_sub(TAIL);
            let last = log.lines().skip(skipped).map(|line| line.chars().take(WIDTH).collect::<String>());
            let _ = write!(text, "--- {}\n{}\n", member.name, last.collect::<Vec<_>>().join("\n"));
        }
        text
    }

    /// Ends them one after the other, politely.
    pub async fn stop(mut self) -> Result<()> {
        self.recover()?;
        for member in &mut self.members {
            if let Some(daemon) = member.daemon.take() {
                daemon.stop().await?;
            }
        }
        Ok(())
    }
}

/// How many addresses there are in the status of Services.
async fn given(cluster: &Cluster) -> Result<usize> {
    let list = cluster.ground.get(&cluster.ground.core("services")).await?;
    Ok(list["items"].as_array().into_iter().flatten().map(|service| ips(service).len()).sum())
}
