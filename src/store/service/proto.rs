//! The messages between a limiter and the Weirs that ask it, which `build.rs` generates from `proto/weir/v1/charges.proto`.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("OUT_DIR"), "/weir.v1.charges.rs"));
