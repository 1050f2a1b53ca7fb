//! The allocator as a process, with the rights it is shipped with, against a real API server.

mod addresses;
mod agents;
mod bgp;
mod chaos;
mod cluster;
mod ending;
mod external;
mod fleet;
mod groups;
mod judge;
mod observer;
mod operator;
mod proxy;
mod rights;
mod secrets;
mod trouble;
mod user;
mod wire;
