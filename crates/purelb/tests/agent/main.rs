//! Agents as a cluster sees them: real daemons with pretended kernels on an API server in memory, in a time that only
//! passes when everybody waits.

mod bgp;
mod chaos;
mod leases;
mod leaving;
mod line;
mod objects;
mod outputs;
mod paused;
mod replay;
mod seeds;
mod stories;
mod town;
