//! Agents as processes on three nodes, with the rights they are shipped with, against a real API server and real kernels.
//!
//! Everything is asserted from outside: by `ip` on the nodes, by a client on their segment, by the objects in the API.

mod clocks;
mod configuration;
mod endpoints;
mod external;
mod failover;
mod groups;
mod local_addresses;
mod neighbours;
mod node;
mod outputs;
mod repair;
mod restart;
mod rights;
mod rollout;
mod shipped;
mod silence;
mod site;
mod story;
mod strangers;
mod virtual_addresses;
