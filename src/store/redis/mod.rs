//! Limits whose state is in Redis, so that several replicas share them.
//!
//! A worker asks a node with one call of a script for all limits of a request (`worker`, `call`, `script`). Calls share one
//! connection for each worker and node (`link`). A node that fails is left alone until a probe succeeds (`breaker`, `node`,
//! `monitor`). Refunds and settlements are sent later (`outbox`, `flush`).
//!
//! Not here: decisions without a store, and the tables that mirror it (gate, `store::table`).

pub mod settings;

mod charge;
mod failure;

mod breaker;
mod generation;
mod outage_log;

pub mod script;

mod connection;
mod node;

mod link;

mod routes;
mod topology;
mod view;

mod flights;
mod outbox;
mod store;

mod call;
mod parts;
mod worker;

mod flush;
mod monitor;

mod background;
mod server;

#[cfg(test)]
pub(crate) mod testing;

pub use charge::{Answers, Decided, Handling, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable, Units};
pub use failure::Failure;
pub use generation::Generation;
pub use monitor::{Mirror, Mirrors};
pub use parts::each;
pub use server::KeyServer;
pub use settings::OnFailure;
pub use store::Store;
pub use worker::WorkerStore;
