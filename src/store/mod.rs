//! Where the state of every (limit, key) lives, and the decision over all charges of a request at once.
//!
//! A state outlives the policy that made it. Not here: which limits apply (policy), what they compute
//! (limit), and who waits (gate).

mod bans;
mod batch;
mod crowd;
mod group;
mod kept;
mod map;
mod memory;
mod overflow;
mod shards;
mod sketches;
mod slots;
mod table;
mod tokens;

pub mod snapshot;

pub use bans::Bans;
pub use batch::{Batch, Charge};
pub use crowd::{Crowd, Share};
pub use table::{Receipt, Table};
pub use tokens::{MAX_TOKEN_AGE_NS, TokenCache};

#[cfg(test)]
mod tests;
