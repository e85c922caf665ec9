//! Verified tokens, so that a signature is checked once and not on every request.
//!
//! Kept by the hash of the token, never its text. An entry lives until its token expires and at most
//! [`MAX_TOKEN_AGE_NS`]; at the bound new tokens are verified each time until others have gone.

use dashmap::DashMap;

use crate::limit::Key;
use crate::time::Timestamp;

/// Five minutes: long enough to be rare beside the requests of a client, short enough that a token without
/// `exp` does not hold its place for good.
pub const MAX_TOKEN_AGE_NS: u64 = 300 * 1_000_000_000;

/// What verified tokens say, each in a `V`.
#[derive(Debug)]
pub struct TokenCache<V> {
    tokens: DashMap<Key, Entry<V>>,
    max: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    until: Timestamp,
}

impl<V: Clone> TokenCache<V> {
    /// An empty cache of at most about `max` tokens (it may exceed it by one for each thread that inserts).
    pub fn new(max: usize) -> Self {
        Self { tokens: DashMap::new(), max }
    }

    /// What a token says that was verified before and is still good at `now`.
    pub fn find(&self, token: Key, now: Timestamp) -> Option<V> {
        let entry = self.tokens.get(&token)?;
        (entry.until > now).then(|| entry.value.clone())
    }

    /// Remembers a token that was verified at `now` and is good until `expires`.
    pub fn insert(&self, token: Key, value: V, expires: Option<Timestamp>, now: Timestamp) {
        if self.tokens.len() < self.max {
            let oldest = now.saturating_add_ns(MAX_TOKEN_AGE_NS);
            let until = expires.map_or(oldest, |expires| expires.min(oldest));
            self.tokens.insert(token, Entry { value, until });
        }
    }

    /// Drops the tokens that have expired.
    pub fn sweep(&self, now: Timestamp) {
        self.tokens.retain(|_, entry| entry.until > now);
    }

    /// Forgets all, so that each is verified anew.
    pub fn clear(&self) {
        self.tokens.clear();
    }

    /// Tokens remembered.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}
