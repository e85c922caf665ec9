//! Identities from JSON Web Tokens with verified signatures (RFC 7519, RFC 7515, RFC 8725).
//!
//! The configuration and the type of each key decide the algorithm, never the token: the token may only name a
//! configured algorithm, and each key verifies exactly one (RFC 8725, 3.1). The caller passes the time in `now`.
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
pub(crate) mod tests;

pub use algorithm::Algorithm;
pub use fetched::FetchedKeys;
pub use keys::{KeyMaterial, SkippedKeys};
pub use problems::{KeyError, KeyProblem, TOKEN_BYTES_MAX, TokenError};
pub use verifier::{Claimed, Verified, Verifier, VerifierSpec};
