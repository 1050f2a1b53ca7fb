//! The lab: a real Kubernetes API server for the tests, and the API stories that it and kubelite must both pass.

pub mod control_plane;
pub mod daemon;
pub mod net;
pub mod router;
pub mod stories;

pub use control_plane::ControlPlane;
pub use daemon::Daemon;
pub use stories::Ground;
