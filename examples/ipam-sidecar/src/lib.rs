//! A small external IPAM for PureLB, to start your own from.
//!
//! - [`Config`]: what the environment says
//! - [`Ledger`]: who holds which address, in memory and on disk; replace it by your own IPAM
//! - [`Sidecar`]: the contract `purelb.ipam.v1` on a Unix socket, in front of the ledger

mod config;
mod ledger;
mod sidecar;

pub use config::Config;
pub use ledger::{Holder, Ledger, Refusal};
pub use sidecar::Sidecar;
