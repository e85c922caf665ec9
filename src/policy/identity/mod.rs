//! Who a request is from: its client's address and its identities.
//!
//! Not here: verifying an identity for a request, and caching verified tokens (gate).

pub(super) mod certificates;
pub mod client_ip;
pub mod forwarded;
pub mod jwt;
pub(super) mod principal;
pub(super) mod sources;
