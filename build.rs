//! Generates the messages and services of `proto` in Rust. Needs no `protoc`: protox compiles the files.

use std::path::PathBuf;
use std::{env, error, fs};

/// The interfaces that Weir serves. Callers see their descriptors by reflection.
const SERVED: [&str; 2] = ["proto/weir/v1/limiter.proto", "proto/envoy/service/ratelimit/v3/rls.proto"];

/// The interfaces that Weir only calls.
const CALLED: [&str; 1] = ["proto/etcd/rpc.proto"];

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(SERVED, ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("descriptors.bin"), protox::prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().include_file("services.rs").compile_fds(descriptors)?;
    let called = protox::compile(CALLED, ["proto"])?;
    tonic_prost_build::configure().build_server(false).include_file("etcd.rs").compile_fds(called)?;
    Ok(())
}
