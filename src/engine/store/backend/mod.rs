//! The language between the engine and the stores that replicas share: charges and their answers, receipts, failures, and
//! what a store is.
//!
//! Not here: the stores themselves, which ask other processes (`crate::fleet::stores`).

mod failure;

mod receipt;

mod charge;
mod mirrors;
mod parts;
mod settlement;

mod store;

pub use charge::{Answers, Handling, KeyServer, OnFailure, RemoteCharge, RemoteOutcome, Unavailable, Units};
pub use failure::Failure;
pub use mirrors::{Mirror, Mirrors};
pub use parts::{Part, SendPart, all, each};
pub use receipt::{CallId, EtcdReceipt, LimiterReceipt, RateReceipt, RedisReceipt, RemoteReceipt};
pub use settlement::Settlement;
pub use store::{Backend, Connections, REFUND_NS, RemoteStore};
