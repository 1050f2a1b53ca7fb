//! Machines and the wires between them on one computer: network namespaces and bridges, for the lab and the demo.
//!
//! Nothing here has a name on the machine: a namespace is a file descriptor of this process, and it is gone with the
//! process however that ends. The machine's own interfaces, routes and rules are never touched.

mod lan;
mod namespace;

pub use lan::{Lan, Plug};
pub use namespace::{Namespace, own_process};
