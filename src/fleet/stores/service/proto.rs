//! The messages between a limiter and the Weirs that ask it, which `proto/generate` generates from `charges.proto`.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/generated/weir.v1.charges.rs"));
