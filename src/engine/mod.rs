//! The engine decides: which limits apply to a request, what they allow, where their state is, and whether the request
//! passes, waits or is refused.
//!
//! Not here: connections of clients and services (`transport`), replicas as members of a fleet (`fleet`), and TOML
//! (`config`). The stores that replicas share are here, because a decision may need their answer.

pub mod limit;

pub mod policy;
pub mod store;

pub mod gate;
