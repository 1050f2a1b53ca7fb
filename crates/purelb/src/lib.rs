//! What the PureLB daemons are made of: the cluster's door, the decisions' owners, and what operators see of them.

pub mod agent;
pub mod allocator;
pub mod cluster;
#[cfg(test)]
mod exposition;
pub mod http;
pub mod logs;
pub mod signals;
