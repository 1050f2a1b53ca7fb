//! What a node's wishes come to: the verdict on each address, what happened to it, and what the lease should say.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::moment::Moment;
use crate::plan::{Telling, Why};
use crate::pool::ServiceKey;
use crate::reason::Reason;

/// What became of one address on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This node should hold it on this NIC.
    Local {
        /// The name of the NIC.
        link: Arc<str>,
    },
    /// This node, like others, should hold it on the virtual interface.
    Virtual {
        /// The name of the virtual interface.
        link: Arc<str>,
    },
    /// Another node was elected.
    Elsewhere {
        /// That node.
        node: Arc<str>,
    },
    /// No live node serves its subnet, not even this one yet.
    NoWinner,
    /// externalTrafficPolicy is Local and no endpoint here is ready.
    NoEndpoints,
    /// This node was elected and lets the former holder go first.
    Waiting {
        /// When to look again at the latest.
        until: Moment,
    },
    /// It can or may not be announced from here.
    Nowhere(Reason),
    /// This node was elected, but its lease is not known to be live.
    Fenced,
    /// No LBNodeAgent is for this node.
    NoConfig,
    /// The agent stops.
    Leaving,
}

/// Something that happened and that users may want to hear of. Each is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The kernel shows an address where it should be.
    Taken {
        /// The address.
        addr: IpAddr,
        /// The name of the interface.
        link: Arc<str>,
        /// On a NIC of this node only, rather than on the virtual interface.
        local: bool,
        /// It was there already when the agent started.
        adopted: bool,
        /// What to tell the neighbours, if anything.
        tell: Option<Telling>,
    },
    /// An address that was there is not there any more.
    Lost {
        /// The address.
        addr: IpAddr,
        /// The name of the interface it was on.
        link: Arc<str>,
        /// It was on a NIC.
        local: bool,
        /// Why this node let it go; `None` if somebody else took it off.
        why: Option<Why>,
    },
    /// The kernel refused to hold an address; tried again with growing pauses. Told once for each new problem.
    Failed {
        /// The address.
        addr: IpAddr,
        /// The name of the interface.
        link: Arc<str>,
        /// What the kernel said, in a sentence.
        problem: String,
    },
    /// Somebody keeps taking an address off its interface; put back with growing pauses.
    Meddled {
        /// The address.
        addr: IpAddr,
        /// Which address and interface, in a sentence.
        reason: Reason,
    },
    /// The kernel refused to make, switch on or remove the virtual interface; tried again with growing pauses.
    LinkFailed {
        /// The name of the interface.
        link: String,
        /// What the kernel said, in a sentence.
        problem: String,
    },
    /// What the kernel refused to do to interfaces is done, or no longer needed.
    LinkRestored,
    /// Somebody keeps deleting the virtual interface; made again with growing pauses.
    LinkMeddled {
        /// Which interface, in a sentence.
        reason: Reason,
    },
    /// What to do about a Service's externalTrafficPolicy has changed.
    Policy {
        /// The Service.
        service: ServiceKey,
        /// What to do now.
        say: Option<PolicyWish>,
    },
}

/// What the holder of a local address does about `externalTrafficPolicy: Local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyWish {
    /// Set it to Cluster, mark the Service as rewritten, and say so.
    Rewrite,
    /// `purelb.io/allow-local` is there: keep it and say so.
    Allowed,
    /// Somebody set it back after PureLB had changed it: say so and leave it.
    SetBack,
}

/// What this node's lease should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseWish {
    /// Whether there should be a lease: this node is ready to take addresses.
    pub publish: bool,
    /// The subnets it can take local addresses in.
    pub subnets: BTreeSet<IpNet>,
    /// The addresses that it comes first for, because endpoints are here.
    pub claims: BTreeSet<IpAddr>,
    /// The version up to which this node has acted on what other leases say.
    pub saw: u64,
    /// Whether all nodes whose leases were deleted up to there have let go.
    pub settled: bool,
    /// Somebody waits for `saw` or for other subnets: do not wait for the next renewal.
    pub urgent: bool,
    /// From when on a renewal should go out early, because it would prove that a silent member is dead.
    pub renew_from: Option<Moment>,
}
