//! API keys that Weir itself gives out and verifies, and keys of other systems that it adopts.
//!
//! Only digests of keys are known here, in a map by digest: a lookup compares digests, so its time tells nothing about
//! the keys. Not here: the file of the keys (`config`), and randomness.

mod edit;
mod format;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use edit::{EditedKeys, KeyChange, KeyEdit, KeyEditError, is_name};
pub use format::{Digest, RANDOM_BYTES, digest_of, is_adoptable, is_well_formed, key_of};

use crate::base::time::Timestamp;

const HOUR_NS: u64 = 3_600_000_000_000;

/// An owner of API keys: its name is the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The name.
    pub name: Arc<str>,
    /// The plan of its requests.
    pub plan: Option<Arc<str>>,
    /// Whether all of its keys are refused.
    pub is_disabled: bool,
    /// Its keys: one, or two during a rotation.
    pub keys: Vec<ApiKey>,
}

/// An API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its digest.
    pub digest: Digest,
    /// When it was made.
    pub created: Timestamp,
    /// The end that it was made with; `None` if it is valid until it is revoked.
    pub expires: Option<Timestamp>,
    /// When it is refused because a rotation replaced it, unless it expires before.
    pub overlap_ends: Option<Timestamp>,
}

impl ApiKey {
    /// The first digits of its digest, by which operators name it.
    pub fn id(&self) -> String {
        let [a, b, c, d, ..] = self.digest;
        format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
    }

    /// The instant from which it is refused; `None` if it is valid until it is revoked.
    pub fn end(&self) -> Option<Timestamp> {
        self.expires.into_iter().chain(self.overlap_ends).min()
    }

    /// Whether it has expired at `now`.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.end().is_some_and(|end| end <= now)
    }
}

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    /// It is not in the file, and has not the form of a key.
    #[error("the API key is malformed")]
    Malformed,
    /// It is not in the file.
    #[error("the API key is unknown")]
    Unknown,
    /// It has expired.
    #[error("the API key has expired")]
    Expired,
    /// Its owner is disabled.
    #[error("the API key is disabled")]
    Disabled,
}

/// The API keys of one file.
#[derive(Debug)]
pub struct ApiKeys {
    file: PathBuf,
    owners: Vec<KeyOwner>,
    by_digest: HashMap<Digest, KeyEntry>,
}

/// The place of a key in `owners`, and its last use.
#[derive(Debug)]
struct KeyEntry {
    owner: usize,
    key: usize,
    /// The hour of its last use since the unix epoch; 0 if it was not used. Written once an hour at most.
    last_used: AtomicU32,
}

impl ApiKeys {
    /// The keys of `owners`, which `file` has. No two keys have the same digest.
    pub fn new(file: PathBuf, owners: Vec<KeyOwner>) -> Self {
        let entry = |owner: usize, key: usize| KeyEntry { owner, key, last_used: AtomicU32::new(0) };
        let keys = owners.iter().enumerate().flat_map(|(owner, one)| {
            one.keys.iter().enumerate().map(move |(key, one)| (one.digest, entry(owner, key)))
        });
        Self { file, by_digest: keys.collect(), owners }
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The owners, in the order of the file.
    pub fn owners(&self) -> &[KeyOwner] {
        &self.owners
    }

    /// The owner of `key`. Notes its use.
    ///
    /// # Errors
    /// Why the key is refused.
    pub fn verify(&self, key: &[u8], now: Timestamp) -> Result<&KeyOwner, ApiKeyError> {
        let known = is_adoptable(key).then(|| self.by_digest.get(&digest_of(key))).flatten();
        let unknown = || if is_well_formed(key) { ApiKeyError::Unknown } else { ApiKeyError::Malformed };
        let entry = known.ok_or_else(unknown)?;
        let owner = &self.owners[entry.owner];
        if owner.is_disabled {
            return Err(ApiKeyError::Disabled);
        }
        if owner.keys[entry.key].has_expired(now) {
            return Err(ApiKeyError::Expired);
        }
        let hour = u32::try_from(now.as_ns() / HOUR_NS).unwrap_or(u32::MAX);
        if entry.last_used.load(Ordering::Relaxed) != hour {
            entry.last_used.store(hour, Ordering::Relaxed);
        }
        Ok(owner)
    }

    /// The begin of the hour in which a key was last used; `None` if it was not used since the process began.
    pub fn last_used(&self, digest: &Digest) -> Option<Timestamp> {
        let hour = self.by_digest.get(digest)?.last_used.load(Ordering::Relaxed);
        (hour != 0).then(|| Timestamp::from_ns(u64::from(hour) * HOUR_NS))
    }

    /// Takes over the last uses of the keys that `before` knows, too.
    pub fn adopt_uses(&self, before: &Self) {
        for (digest, entry) in &self.by_digest {
            if let Some(earlier) = before.by_digest.get(digest) {
                entry.last_used.store(earlier.last_used.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// The names of owners that differ from those of `before`, or are in one of the two only.
    pub fn changed_names(&self, before: &Self) -> Vec<String> {
        let beyond = |one: &Self, other: &Self| {
            let others: HashMap<_, _> = other.owners.iter().map(|owner| (Arc::clone(&owner.name), owner)).collect();
            let differs = |owner: &&KeyOwner| others.get(&owner.name) != Some(owner);
            one.owners.iter().filter(differs).map(|owner| owner.name.to_string()).collect::<Vec<_>>()
        };
        let mut names = beyond(self, before);
        names.extend(beyond(before, self));
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests;
