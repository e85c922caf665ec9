//! Limits whose state is in Redis, so that several replicas share them.
//!
//! A worker asks a node with one call of a script for all limits of a request (`worker`, `call`, `script`). Calls share one
//! connection for each worker and node. A node that fails is left alone until a probe succeeds (`node`, `monitor`). Refunds
//! and settlements are sent later (`flush`).
//!
//! Not here: decisions without a store, and the tables that mirror it (gate, `store::table`).

mod failure;

mod generation;

pub mod script;

mod connection;
mod node;

mod routes;
mod topology;

mod flights;
mod store;

mod call;
mod worker;

mod flush;

mod background;
mod monitor;

#[cfg(test)]
mod models;
#[cfg(test)]
mod testing;

pub(super) use store::Store;
