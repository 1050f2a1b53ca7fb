//! The lab: a real Kubernetes for the tests and for developers, and the API stories that it and kubelite must both pass.

pub mod audit;
pub mod cluster;
pub mod control_plane;
pub mod daemon;
pub mod image;
pub mod net;
pub mod router;
pub mod runner;
pub mod stories;
pub mod tested;
pub mod vm;

pub use cluster::Cluster;
pub use control_plane::ControlPlane;
pub use daemon::Daemon;
pub use stories::Ground;
