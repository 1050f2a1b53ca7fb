//! An advertise-only BGP-4 speaker: it tells routers which prefixes this machine serves, and keeps nothing of what they say.
//!
//! ```text
//! Handle::set(Wish) ──watch──> speaker ──watch──> peer task ──step──> Fsm     one task per peer, all on one thread
//!                                 │                 │    ^
//!                              listeners          writer reader               one pair per TCP connection
//!                                 └──accepted───────┘
//! Handle::reports() <──watch── every peer task
//! ```
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use purelb_bgp::{Global, Peer, Speaker, Wish, routes};
//!
//! let speaker = Speaker::start()?;
//! let router = Peer::new([192, 0, 2, 254].into(), 64512);
//! let routes = routes(["198.51.100.7/32".parse().expect("a prefix")]);
//! let global = Global::new(64513, [192, 0, 2, 1].into());
//! speaker.set(Wish { global, peers: vec![router], routes, complete: true });
//! # Ok(())
//! # }
//! ```
//!
//! [`fsm`] is pure: it reads no clock, rolls no dice and opens no socket. [`speaker`] runs it.

// Tests take the walk of the fuzz target, which knows the crate by its name.
#[cfg(test)]
extern crate self as purelb_bgp;

pub mod fault;
pub mod fsm;
pub mod message;
pub mod notification;
pub mod path;
mod peer;
pub mod report;
pub mod rib;
pub mod secret;
mod socket;
pub mod speaker;
pub mod wire;
pub mod wish;

pub use fault::Fault;
pub use report::{Direction, Listening, PeerReport, Report, State};
pub use secret::Secret;
pub use speaker::{Handle, Speaker};
pub use wish::{Advertise, Families, Family, Farewell, Global, Groups, Listen, Peer, Routes, Ttl, Wish, routes};
