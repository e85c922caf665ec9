//! The services of the folder `proto/etcd`, which `proto/generate` generates. Their messages are in `stores::etcd::proto`.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/generated/etcd.rs"));
