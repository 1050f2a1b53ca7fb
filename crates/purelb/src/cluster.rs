//! The door to the cluster: everything that reads or writes Kubernetes objects.

pub mod leader;
pub mod recorder;
pub mod watch;
