//! Nodes, clients and the wire between them: network namespaces, a bridge, and eyes to watch with.
//!
//! Nothing here has a name on the machine: a namespace is a file descriptor of the test process, and it is gone with that
//! process however that ends. The machine's own interfaces, routes and rules are never touched.
//!
//! To look inside while a test stands still, print [`Namespace::enter`]: it is a line such as
//! `nsenter --net=/proc/4711/fd/9 ip addr`, good for as long as the test runs.

pub mod capture;
pub mod probe;
pub mod relay;
pub mod witness;

pub use capture::Capture;
pub use probe::{Echo, Manner, Probe, Report};
pub use purelb_net::{Lan, Namespace, Plug};
pub use witness::Witness;
