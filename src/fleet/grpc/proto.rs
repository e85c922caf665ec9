//! The messages and services of the folder `proto`, which `proto/generate` generates.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/generated/services.rs"));

/// The files of `proto` in the form of `google.protobuf.FileDescriptorSet`.
pub(super) const DESCRIPTORS: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/generated/descriptors.bin"));
