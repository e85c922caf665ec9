//! What a replica knows of the keys of a store, for a server that has lost them.

use crate::engine::limit::{Algorithm, AnyState, Key};

/// What a replica knows of the keys of a store.
pub trait Mirrors: Send + Sync {
    /// Visits the keys of one part of all mirrors of the store that are not idle. Returns whether there are further parts.
    fn visit(&self, store: &str, part: usize, visit: &mut dyn FnMut(&Mirror<'_>)) -> bool;
}

/// What a replica knows of one key.
#[derive(Clone, Copy, Debug)]
pub struct Mirror<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The owner of the budget.
    pub key: Key,
    /// The whole rule.
    pub rule: &'a Algorithm,
    /// The state as of now.
    pub state: &'a AnyState,
}
