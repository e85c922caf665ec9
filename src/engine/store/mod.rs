//! The state of every (limit, key), and the decision over all charges of a request at once.
//!
//! A state outlives the policy that made it. Not here: which limits apply (policy), their arithmetic (limit), and
//! requests that wait (gate).

mod batch;
mod table;

mod bans;
mod client_usage;
mod lease;
mod remote;
mod returned;
mod tokens;

pub mod backend;
pub mod etcd;
pub mod redis;
pub mod service;
pub mod snapshot;
pub mod stream;

pub use bans::{BanNews, Bans, KeyBan};
pub use batch::{Batch, Charge, LocalDecision};
pub use client_usage::{ClientUsage, Usage};
pub use lease::{Call, Grant, INTERVAL_NS, InFlight, LEASE_NS, Leases, Spend, SpentUnits, Supply, Taken};
pub use remote::{Borrowed, RemoteLimit, RemoteSettings, RemoteStore};
pub use returned::Returned;
pub use table::{Receipt, Table};
pub use tokens::{MAX_TOKEN_AGE_NS, TokenCache};

#[cfg(test)]
mod tests;
