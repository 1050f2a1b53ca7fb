//! The contract between PureLB and an external IPAM, and the client that speaks it.
//!
//! A ServiceGroup with `spec.external` takes its addresses from a sidecar: a program beside the allocator that answers
//! gRPC on a Unix socket. The contract is `proto/purelb/ipam/v1/ipam.proto`, with comments for those who implement it.
//!
//! - [`Ipam`]: asks a sidecar, and checks what it answers
//! - [`IpamError`]: everything that can go wrong, as sentences, with the gRPC code and whether to try again
//! - [`v1`]: the contract itself, generated; its server side needs the feature `server`

mod client;
mod error;
mod message;

pub use client::{Call, DEADLINE, Ipam};
pub use error::{IpamError, code_name};
pub use message::{MAX_IPS, Size, Stats, Wanted};

/// The messages and services of `purelb.ipam.v1`, generated from the `.proto` file.
#[allow(missing_docs, clippy::pedantic, clippy::unwrap_used)]
pub mod v1 {
    tonic::include_proto!("purelb.ipam.v1");
}
