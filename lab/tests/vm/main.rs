//! Agents on the kernel of a distribution, in a virtual machine: interfaces, IPVS and trouble that the kernel of the test
//! machine does not have.
//!
//! Everything else is outside: the API server, the allocator and clients share a segment with the machines.

mod bond;
mod dummy;
mod harness;
mod ipvs;
mod loss;
mod site;
mod vlan;
