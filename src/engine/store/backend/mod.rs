//! What stores of all kinds have in common: the charges that they decide, the breaker of each server, and the reports that
//! wait for a server.
//!
//! Not here: the protocols (`redis`, `service`, `etcd`).

mod settings;

mod failure;

mod charge;
mod mirrors;

mod breaker;
mod connect;
mod health;
mod link;

pub(super) mod grpc;
mod outage_log;

mod flush;
mod late_refunds;
mod outbox;
mod parts;
mod random;

pub use charge::{
    Answers, Decided, Handling, KeyServer, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable, Units,
};
pub(super) use connect::{CONNECT_MAX, ConnectError, connect};
pub use failure::Failure;
pub(super) use flush::{BATCH_MAX, BATCH_TIMEOUT, flush};
pub use grpc::MESSAGE_BYTES_MAX;
pub(super) use health::{Health, StoreContext};
pub(super) use late_refunds::REFUND_NS;
pub(super) use link::{Link, Opened, Server};
pub use mirrors::{Mirror, Mirrors};
pub(super) use outbox::{Batch, Outbox, Report, Settlement};
pub use parts::each;
pub(super) use parts::{Part, SendPart, all};
pub(super) use random::random_id;
pub use settings::{NodeAddress, OnFailure, OwnCertificate, StoreTls};
