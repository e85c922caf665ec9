//! Limits whose state is in Redis, so that several replicas share them.

pub mod settings;

mod charge;
mod failure;

pub mod script;

pub use charge::{Answers, Decided, Handling, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable, Units};
pub use failure::Failure;
