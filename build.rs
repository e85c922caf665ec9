//! Generates the messages and services of `proto` in Rust. Needs no `protoc`: protox compiles the files.

use std::path::{Path, PathBuf};
use std::{env, error, fs};

/// The interfaces that Weir serves. Callers see their descriptors by reflection.
const SERVED: [&str; 2] = ["proto/weir/v1/limiter.proto", "proto/envoy/service/ratelimit/v3/rls.proto"];

/// The interface of a limiter for other Weirs, which is served beside those.
const CHARGES: &str = "proto/weir/v1/charges.proto";

/// The interfaces that Weir only calls.
const CALLED: [&str; 1] = ["proto/etcd/rpc.proto"];

/// The interface between replicas.
const FLEET: [&str; 1] = ["proto/weir/v1/fleet.proto"];

/// The messages of `FLEET` that are written in Rust, and their names there.
const WRITTEN: [(&str, &str); 8] = [
    ("FleetMessage", "Message"),
    ("Received", "Received"),
    ("Echo", "Echo"),
    ("Charges", "Charges"),
    ("LimitCharges", "LimitCharges"),
    ("Cursor", "Cursor"),
    ("States", "States"),
    ("LimitStates", "LimitStates"),
];

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let seen: Vec<_> = SERVED.into_iter().chain([CHARGES]).collect();
    for (files, name) in [(&seen[..], "descriptors.bin"), (&FLEET[..], "fleet.bin")] {
        let descriptors = protox::compile(files, ["proto"])?;
        fs::write(out.join(name), protox::prost::Message::encode_to_vec(&descriptors))?;
    }
    let mut services = tonic_prost_build::configure().include_file("services.rs");
    for (message, name) in WRITTEN {
        services =
            services.extern_path(format!(".weir.v1.{message}"), format!("crate::store::stream::message::{name}"));
    }
    services.compile_fds(protox::compile(SERVED.iter().chain(&FLEET), ["proto"])?)?;
    let charges = protox::compile([CHARGES], ["proto"])?;
    tonic_prost_build::configure().build_client(false).compile_fds(charges)?;
    etcd(&out)
}

/// The messages of etcd, which stores use too, and the clients of its services.
fn etcd(out: &Path) -> Result<(), Box<dyn error::Error>> {
    let called = protox::compile(CALLED, ["proto"])?;
    let folder = out.join("etcd_messages");
    fs::create_dir_all(&folder)?;
    let messages = tonic_prost_build::configure().build_client(false).build_server(false);
    messages.out_dir(folder).include_file("mod.rs").compile_fds(called.clone())?;
    let mut clients = tonic_prost_build::configure().build_server(false).include_file("etcd.rs");
    for package in ["etcdserverpb", "mvccpb"] {
        clients = clients.extern_path(format!(".{package}"), format!("crate::store::etcd::proto::{package}"));
    }
    clients.compile_fds(called)?;
    Ok(())
}
