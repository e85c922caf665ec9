//! The state of every (limit, key), and the decision over all charges of a request at once.
//!
//! A state outlives the policy that made it. Not here: which limits apply (policy), their arithmetic (limit),
//! requests that wait (gate), and the stores that replicas share (`crate::fleet::stores`).

mod batch;
mod table;

mod bans;
mod client_usage;
mod lease;
mod remote;
mod returned;
mod tokens;

pub mod backend;
pub mod snapshot;
pub mod stream;

pub use backend::RemoteStore;
pub use bans::{BanNews, Bans, KeyBan};
pub use batch::{Batch, Charge, LocalDecision};
pub use client_usage::{ClientUsage, Usage};
pub use lease::{Call, Grant, INTERVAL_NS, InFlight, LEASE_NS, Leases, Spend, SpentUnits, Supply, Taken};
pub use remote::{Borrowed, RemoteLimit};
pub use returned::Returned;
pub use table::{Receipt, Table};
pub use tokens::{MAX_TOKEN_AGE_NS, TokenCache};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
