//! Generates both sides of the contract from its `.proto` file, with no `protoc` on the machine.

use std::error::Error;

const CONTRACT: &str = "proto/purelb/ipam/v1/ipam.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={CONTRACT}");
    let contract = protox::compile([CONTRACT], ["proto"])?;
    tonic_prost_build::configure()
        .server_mod_attribute("purelb.ipam.v1", "#[cfg(feature = \"server\")]")
        // `connect` would dial TCP; the client has its own way to a Unix socket.
        .build_transport(false)
        .compile_fds(contract)?;
    Ok(())
}
