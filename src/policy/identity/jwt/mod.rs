//! Who a JSON Web Token says it is from, once its signature is verified (RFC 7519, RFC 7515, RFC 8725).
//!
//! The algorithm is decided by the configuration and by the type of each key, never by the token: the token
//! may only name one of those listed, and each key verifies exactly one (RFC 8725, 3.1). Times are checked
//! against the `now` of the caller.
//!
//! Not here: fetching keys, caching verified tokens, encrypted tokens, extensions named by `crit`.

mod algorithm;
mod claims;
mod fetched;
mod keys;
mod problems;
mod strength;
mod verifier;

#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use fetched::FetchedKeys;
pub use keys::{KeyMaterial, SkippedKeys};
pub use problems::{KeyError, KeyProblem, TOKEN_BYTES_MAX, TokenError};
pub use verifier::{Claimed, Verified, Verifier, VerifierSpec};
