//! The identity of a request: its client's address, and the identities that the configuration declares.
//!
//! Not here: the verification for a request, and the cache of verified tokens (gate).

pub mod api_keys;
pub mod bearer;
pub(super) mod certificates;
pub mod client_ip;
pub mod forwarded;
pub mod identity_header;
pub mod jwt;
pub(super) mod sources;
