//! The path under which clients see their own limits.

use crate::engine::limit::Algorithm;

/// The path, and how often a client may ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientApi {
    /// The path in its normal form.
    pub path: Box<str>,
    /// The rate of each client address.
    pub rate: Algorithm,
}
