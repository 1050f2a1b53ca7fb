//! The lab: a real Kubernetes API server for the tests, and the API stories that it and kubelite must both pass.

pub mod control_plane;
pub mod stories;

pub use control_plane::ControlPlane;
pub use stories::Ground;
