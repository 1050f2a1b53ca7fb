//! What can go wrong with a peer, in one clear sentence each.

use std::net::{IpAddr, Ipv4Addr};

use crate::notification::Notification;
use crate::wish::Family;

/// Why a peer is not in session, or not all of its routes can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing answered.
    #[error(
        "no answer from {peer} port {port}: the router may be down, filtered, further away than allowed, or want a password"
    )]
    NoAnswer {
        /// The peer.
        peer: IpAddr,
        /// The port dialled.
        port: u16,
    },
    /// Nothing answered on a session with a password: the kernel of a peer with another one drops our packets silently.
    #[error(
        "no answer from {peer} port {port}: the passwords of the two sides may differ, or the router is down or filtered"
    )]
    NoAnswerWithPassword {
        /// The peer.
        peer: IpAddr,
        /// The port dialled.
        port: u16,
    },
    /// The peer took the connection, and nothing it says is let in.
    #[error(
        "nothing is heard from {peer} although it is connected: it may be further away than allowed, for ttlSecurity lets \
         in only packets with a TTL of {least} or more; switch TTL security on at the router, too, or correct the hops"
    )]
    TooFar {
        /// The peer.
        peer: IpAddr,
        /// The least TTL of its packets.
        least: u16,
    },
    /// The machine of the peer is there, its BGP is not.
    #[error(
        "{peer} port {port} refuses connections: BGP may not run there, or the router may not know us as a neighbour"
    )]
    Refused {
        /// The peer.
        peer: IpAddr,
        /// The port dialled.
        port: u16,
    },
    /// A router that should connect to us has not.
    #[error(
        "waiting for {peer} to connect, and it has not: the router may be down, filtered, wait for us as well, not know us \
         as a neighbour, or have another password"
    )]
    NotCalled {
        /// The peer.
        peer: IpAddr,
    },
    /// A router that should connect to us cannot.
    #[error(
        "waiting for {peer} to connect, but we do not listen: let us dial it (passiveMode: false), or set listenPort"
    )]
    NotListening {
        /// The peer.
        peer: IpAddr,
    },
    /// The kernel could not even try.
    #[error("cannot reach {peer}: {cause}")]
    Unreachable {
        /// The peer.
        peer: IpAddr,
        /// The kernel's words.
        cause: String,
    },
    /// A socket could not be made as asked.
    #[error("cannot open a session to {peer}: {cause}")]
    Socket {
        /// The peer.
        peer: IpAddr,
        /// What was asked, and the kernel's words.
        cause: String,
    },
    /// The peer has another AS.
    #[error("the peer says that its AS is {heard}, the configuration says {expected}")]
    WrongAs {
        /// From the configuration.
        expected: u32,
        /// From its OPEN.
        heard: u32,
    },
    /// Two speakers with one identifier.
    #[error("the peer has the router ID {0}, which is ours: give one of the two another router ID")]
    SameRouterId(Ipv4Addr),
    /// Nothing to talk about.
    #[error(
        "the peer offers no address family that is configured here: enable {wanted} for this neighbour on the router"
    )]
    NoCommonFamily {
        /// The families of the configuration, in words.
        wanted: String,
    },
    /// A session that works, but not for this family.
    #[error(
        "the peer does not speak {0}: routes of this family are not told; enable it for this neighbour on the router"
    )]
    FamilyNotSpoken(Family),
    /// Nothing that routers could send the traffic of this family to.
    #[error("{family} routes are not told: the interface of this session has no {family} address to be the next hop")]
    NoNextHop {
        /// The family.
        family: Family,
    },
    /// So many communities that no prefix fits beside them.
    #[error("routes are not told: their communities and other attributes leave no room in a BGP message")]
    AttributesTooLong,
    /// The peer told us why it closes.
    #[error("the peer closed the session with notification {0}")]
    Told(Notification),
    /// The peer did not tell us.
    #[error("the peer closed the connection without a notification{hint}")]
    Closed {
        /// What it may mean at this stage.
        hint: &'static str,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The peer sent what is not BGP, or not now.
    #[error("the peer sent a message that makes no sense, and was told so with notification {0}")]
    Nonsense(Notification),
    /// Silence.
    #[error("hold timer expired: nothing was heard from the peer for {0} s")]
    HoldExpired(u64),
    /// The peer takes nothing (RFC 9687).
    #[error("send hold timer expired: the peer has taken nothing for {0} s")]
    SendHoldExpired(u64),
    /// BFD, or whoever watches the path.
    #[error("the path to the peer is down")]
    PathDown,
    /// A defect of ours.
    #[error("an internal error closed this session; it will be opened again, and the log has the details")]
    Internal,
}
