//! The messages of the folder `proto/etcd`, which `proto/generate` generates.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/generated/etcd_messages/mod.rs"));
