//! The messages of the folder `proto/etcd`, which `build.rs` generates.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("OUT_DIR"), "/etcd_messages/mod.rs"));
