//! Limits whose state is in Redis, so that several replicas share them.

pub mod settings;
