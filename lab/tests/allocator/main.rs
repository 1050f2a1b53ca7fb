//! The allocator as a process, with the rights it is shipped with, against a real API server.

mod addresses;
mod chaos;
mod cluster;
mod fleet;
mod groups;
mod judge;
mod observer;
mod operator;
mod rights;
mod user;
mod wire;
