//! Generates the messages and services of `proto` in Rust, into `proto/generated`. Needs no `protoc`: protox compiles the
//! files.
//!
//! `cargo run --manifest-path proto/generate/Cargo.toml` after a change in `proto`. A test compares the checksums.

use std::path::{Path, PathBuf};
use std::{error, fs};

use protox::prost_reflect::prost_types::{FileDescriptorSet, field_descriptor_proto::Type};

/// The interfaces that Weir serves. Callers see their descriptors by reflection.
const SERVED: [&str; 2] = ["weir/v1/limiter.proto", "envoy/service/ratelimit/v3/rls.proto"];

/// The interface of a limiter for other Weirs, which is served beside those.
const CHARGES: &str = "weir/v1/charges.proto";

/// The interfaces that Weir only calls.
const CALLED: [&str; 1] = ["etcd/rpc.proto"];

/// The interface between replicas.
const FLEET: [&str; 1] = ["weir/v1/fleet.proto"];

/// The message whose texts clients of Envoy choose: its package, the message around it, and its name.
const OF_CLIENTS: (&str, &str, &str) = ("envoy.extensions.common.ratelimit.v3", "RateLimitDescriptor", "Entry");

/// The message of `FLEET` that only connections have.
const HELLO: &str = "Hello";

fn main() -> Result<(), Box<dyn error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no folder `proto`")?;
    let out = proto.join("generated");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let seen = protox::compile(SERVED.into_iter().chain([CHARGES]), [proto])?;
    fs::write(out.join("descriptors.bin"), protox::prost::Message::encode_to_vec(&seen))?;
    let messages = fleet_messages(proto, &out)?;
    let mut services = tonic_prost_build::configure().out_dir(&out).include_file("services.rs");
    for message in messages {
        services =
            services.extern_path(format!(".weir.v1.{message}"), format!("crate::engine::store::stream::message::{message}"));
    }
    let mut served = protox::compile(SERVED.iter().chain(&FLEET), [proto])?;
    texts_as_bytes(&mut served).ok_or("no message `OF_CLIENTS`")?;
    services.compile_fds(served)?;
    let charges = protox::compile([CHARGES], [proto])?;
    tonic_prost_build::configure().out_dir(&out).build_client(false).compile_fds(charges)?;
    etcd(proto, &out)?;
    let mut sums = String::new();
    for file in files_below(proto)? {
        let sum = crc32fast::hash(&fs::read(&file)?);
        sums.push_str(&format!("{sum:08x}  {}\n", file.strip_prefix(proto)?.display()));
    }
    fs::write(out.join("checksums"), sums)?;
    Ok(())
}

/// Turns the fields of `OF_CLIENTS` into `bytes`, which are the same on the wire: Envoy copies what its clients send, and a
/// `string` that is not UTF-8 would make the whole call undecodable. Callers still see the published types by reflection.
fn texts_as_bytes(served: &mut FileDescriptorSet) -> Option<()> {
    let (package, outer, name) = OF_CLIENTS;
    let file = served.file.iter_mut().find(|file| file.package() == package)?;
    let outer = file.message_type.iter_mut().find(|message| message.name() == outer)?;
    let message = outer.nested_type.iter_mut().find(|message| message.name() == name)?;
    message.field.iter_mut().for_each(|field| field.set_type(Type::Bytes));
    Some(())
}

/// The messages between replicas but their hellos. Returns their names.
fn fleet_messages(proto: &Path, out: &Path) -> Result<Vec<String>, Box<dyn error::Error>> {
    let fleet = protox::compile(FLEET, [proto])?;
    let names = fleet.file.iter().flat_map(|file| &file.message_type).map(|message| message.name().to_owned());
    let names = names.filter(|name| name != HELLO).collect();
    let folder = out.join("fleet_messages");
    fs::create_dir_all(&folder)?;
    let mut messages = tonic_prost_build::configure().build_client(false).build_server(false);
    messages = messages.bytes(".weir.v1.FleetMessage.charges").extern_path(format!(".weir.v1.{HELLO}"), HELLO);
    messages.out_dir(folder).compile_fds(fleet)?;
    Ok(names)
}

/// The messages of etcd, which stores use too, and the clients of its services.
fn etcd(proto: &Path, out: &Path) -> Result<(), Box<dyn error::Error>> {
    let called = protox::compile(CALLED, [proto])?;
    let folder = out.join("etcd_messages");
    fs::create_dir_all(&folder)?;
    let messages = tonic_prost_build::configure().build_client(false).build_server(false);
    messages.out_dir(folder).include_file("mod.rs").compile_fds(called.clone())?;
    let mut clients = tonic_prost_build::configure().out_dir(out).build_server(false).include_file("etcd.rs");
    for package in ["etcdserverpb", "mvccpb"] {
        clients = clients.extern_path(format!(".{package}"), format!("crate::fleet::stores::etcd::proto::{package}"));
    }
    clients.compile_fds(called)?;
    Ok(())
}

/// The `.proto` files and the generated files below `folder`, in the order of their paths.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn error::Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("generate") {
            files.extend(files_below(&path)?);
        } else if path.extension().is_some_and(|end| ["proto", "rs", "bin"].iter().any(|known| end == *known)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
