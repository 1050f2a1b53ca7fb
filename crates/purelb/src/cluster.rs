//! The door to the cluster: everything that reads or writes Kubernetes objects.

pub mod again;
pub mod connection;
pub mod known;
pub mod leader;
pub mod recorder;
pub mod scope;
pub mod watch;
