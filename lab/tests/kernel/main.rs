//! The agent's hands on a real kernel, each node a network namespace, seen from outside with `ip` and `tcpdump`.

mod addresses;
mod busy;
mod cleanup;
mod links;
mod marks;
mod model;
mod news;
mod node;
mod packets;
mod quirks;
mod routes;
