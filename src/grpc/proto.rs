//! The messages and services of the folder `proto`, which `build.rs` generates.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("OUT_DIR"), "/services.rs"));

/// The files of `proto` in the form of `google.protobuf.FileDescriptorSet`.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
