//! The node agent: makes the network bring traffic for the addresses of Services to this node.
//!
//! ```text
//! watches ─────┐                      ┌──▶ kernel (a thread of its own)
//! kernel ──────┤                      ├──▶ keeper of the lease (a task of its own)
//! keeper ──────┼──▶ one loop ─▶ desk ─┼──▶ BGP speaker (a thread of its own)
//! speaker ─────┤                      ├──▶ writes to Services, and this node's BGPNodeStatus
//! writes, stop ┘                      └──▶ Events
//! ```
//!
//! The loop takes whatever is queued, lets the desk decide, and hands out what it decided; it waits for nobody.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use purelb_core::members;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use crate::http::{Questions, Readiness};
use clock::Clock;
use guarded::Guarded;
use kernel::{KernelNews, Order};
use lease::WallClock;
use metrics::Metrics;
use stop::OnStop;

pub mod bgp;
pub mod cleanup;
pub mod clock;
pub mod command;
pub mod data_path;
pub mod desk;
pub mod event;
pub mod guarded;
pub mod inspect;
pub mod kernel;
pub mod lease;
pub mod metrics;
pub mod packet;
mod shift;
pub mod stop;
pub mod work;

pub use shift::run;

/// The component that Events come from.
pub const COMPONENT: &str = "purelb-lbnodeagent";

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace PureLB runs in: the leases are there.
    pub namespace: String,
    /// The name of this node.
    pub node: String,
    /// A name for this process that no other has.
    pub instance: String,
    /// A name for the kernel it works on that no other has.
    pub host: String,
    /// How its lease is timed.
    pub timing: Timing,
    /// What becomes of virtual addresses at the end.
    pub on_stop: OnStop,
}

/// What an agent lives in.
pub struct World {
    /// The cluster.
    pub client: Client,
    /// What the kernel says and does.
    pub kernel_news: UnboundedReceiver<KernelNews>,
    /// Where to give it orders.
    pub kernel_orders: Arc<dyn Fn(Order) + Send + Sync>,
    /// The time that decisions go by.
    pub clock: Clock,
    /// The time that is written into the lease.
    pub wall: WallClock,
    /// Addresses that must not be announced.
    pub guarded: watch::Receiver<Guarded>,
    /// Questions about the state.
    pub questions: Questions,
    /// What is counted.
    pub metrics: Metrics,
    /// What the agent waits for before it is ready.
    pub readiness: Readiness,
}

/// How the lease of a node is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long peers wait for a sign of life.
    pub lease: Duration,
    /// How long after its last renewal a node keeps its local addresses, at most.
    pub renew_deadline: Duration,
    /// How soon a failed renewal is repeated, at the latest.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self::SHIPPED
    }
}

impl Timing {
    /// A lease long enough that an API server which stands still for three seconds moves no address, and short enough that
    /// a dead node is replaced within eight. The other two are as PureLB has always had them.
    pub const SHIPPED: Self =
        Self { lease: Duration::from_secs(7), renew_deadline: Duration::from_secs(7), retry: Duration::from_secs(2) };

    /// The shortest lease: a node lets go a second before its end, and the kernel counts whole seconds.
    const SHORTEST: Duration = Duration::from_secs(3);

    /// A duration that a lease can have: whole seconds, and enough of them (B33).
    pub fn legal_lease(wished: Duration) -> Duration {
        Duration::from_secs(wished.as_secs()).max(Self::SHORTEST)
    }

    /// The same, as the election needs it.
    pub fn members(&self) -> members::Timing {
        members::Timing { duration: self.lease, renew_deadline: self.renew_deadline }
    }

    /// How long an address lives at least after a renewal was sent.
    ///
    /// The kernel counts lifetimes in whole seconds and is told the next lower one, so that an address lives up to a second
    /// shorter than it may.
    fn held(&self) -> Duration {
        self.members().hold().saturating_sub(Duration::from_secs(1))
    }

    /// How long after a renewal the next one is sent: a seventh of the lease, so that an API server may stand still for
    /// three of them and nothing moves.
    pub fn renew(&self) -> Duration {
        (self.lease / 7).min(self.held() / 2).max(Duration::from_millis(250))
    }

    /// How long each answer of the API server may take. Two that fail to come leave time for a third.
    pub fn patience(&self) -> Duration {
        self.retry.min(self.held() / 3)
    }

    /// How soon after its sending a failed renewal is repeated.
    pub fn again(&self) -> Duration {
        self.retry.min(self.renew() / 2)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing(0, 3)]
    #[case::less_than_a_second(400, 3)]
    #[case::short(2_999, 3)]
    #[case::whole(5_000, 5)]
    #[case::and_a_half(10_500, 10)]
    fn b33_a_lease_lasts_whole_seconds_and_enough_of_them(#[case] wished: u64, #[case] lasts: u64) {
        let lease = Timing::legal_lease(Duration::from_millis(wished));
        assert_eq!(lease, Duration::from_secs(lasts));
        let timing = Timing { lease, ..Timing::default() };
        assert!(timing.renew() + timing.patience() * 2 < timing.members().hold(), "two renewals may fail: {timing:?}");
    }

    #[test]
    fn the_shipped_lease_is_renewed_every_second_and_survives_three_seconds_of_silence() {
        let timing = Timing::default();
        assert_eq!(timing.renew(), Duration::from_secs(1));
        assert_eq!(timing.members().hold(), Duration::from_millis(5_600));
        assert!(timing.renew() + Duration::from_secs(3) < timing.held(), "with time for an answer");
        assert!(timing.lease < Duration::from_secs(8), "a dead node");
    }

    #[test]
    fn what_somebody_wrote_counts() {
        let seconds = Duration::from_secs;
        let timing = Timing { lease: seconds(10), renew_deadline: seconds(7), retry: seconds(2) };
        assert_eq!((timing.members().hold(), timing.patience()), (seconds(7), seconds(2)));
        assert!(timing.again() <= timing.retry && timing.renew() < timing.held() / 2);
    }
}
