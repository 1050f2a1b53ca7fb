//! Whatever a peer sends: reading it must not panic, hang or allocate beyond a message, and neither must the session.
#![no_main]

#[path = "../walk.rs"]
mod walk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| drop(walk::walk(bytes)));
