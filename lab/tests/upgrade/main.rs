//! CRDs replaced in place on a real API server: from PureLB 0.13, from 0.17, and back.

mod back;
mod cluster;
mod documented;
mod from_0_13;
mod from_0_17;
