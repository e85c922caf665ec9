//! Limits whose state is in Redis, so that several replicas share them.

pub mod settings;

mod charge;

pub use charge::{Decided, Handling, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable, Units};
