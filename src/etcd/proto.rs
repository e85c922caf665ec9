//! The services of the folder `proto/etcd`, which `build.rs` generates. Their messages are in `store::etcd::proto`.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("OUT_DIR"), "/etcd.rs"));
