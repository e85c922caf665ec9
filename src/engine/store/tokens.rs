//! Verified tokens, so that a signature is checked once and not on every request.
//!
//! The key of an entry is the hash of the token, never its text. An entry lives until its token expires, and at most
//! [`MAX_TOKEN_AGE_NS`]. At the bound new tokens are verified on every request, until other entries are gone.

use dashmap::DashMap;

use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// Five minutes: long enough that verifications are rare, short enough that a token without `exp` does not stay for good.
pub const MAX_TOKEN_AGE_NS: u64 = 300 * 1_000_000_000;

/// The claims of verified tokens, each a `V`.
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

    /// The claims of a token that was verified before, if it is valid at `now`.
    pub fn find(&self, token: Key, now: Timestamp) -> Option<V> {
        let entry = self.tokens.get(&token)?;
        (entry.until > now).then(|| entry.value.clone())
    }

    /// Adds a token that was verified at `now` and is valid until `expires`.
    pub fn insert(&self, token: Key, value: V, expires: Option<Timestamp>, now: Timestamp) {
        if self.tokens.len() < self.max {
            let oldest = now.saturating_add_ns(MAX_TOKEN_AGE_NS);
            let until = expires.map_or(oldest, |expires| expires.min(oldest));
            self.tokens.insert(token, Entry { value, until });
        }
    }

    /// Drops expired tokens.
    pub fn sweep(&self, now: Timestamp) {
        self.tokens.retain(|_, entry| entry.until > now);
    }

    /// Drops all tokens, so that each is verified again.
    pub fn clear(&self) {
        self.tokens.clear();
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}
