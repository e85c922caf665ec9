//! The engine decides: which limits apply to a request, what they allow, where their state is, and whether the request
//! passes, waits or is refused.
//!
//! Not here: connections of clients and services (`transport`), the stores that replicas share and the fleet's members
//! (`fleet`), and TOML (`config`). A decision may need the answer of a store, which the engine knows as a trait.

pub mod limit;
pub mod units;

pub mod policy;
pub mod store;

pub mod gate;
