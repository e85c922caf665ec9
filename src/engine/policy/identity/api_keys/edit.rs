//! Edits of the keys of one owner: a first key, a rotation, and the end of keys.

use std::time::Duration;

use super::{ApiKey, Digest, KeyOwner, digest_of, is_adoptable};
use crate::base::time::{Timestamp, saturating_ns};
use crate::base::visible::is_hidden;

/// Keys of one owner that are valid at once: the new one and the old one of a rotation.
const VALID_MAX: usize = 2;
const NAME_BYTES_MAX: usize = 128;

/// An edit of the keys of one owner.
#[derive(Clone, Debug)]
pub struct KeyEdit {
    /// The name of the owner.
    pub name: String,
    /// The change.
    pub change: KeyChange,
}

/// A change of keys.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// Adds an owner with a key.
    New {
        /// The plan of the owner.
        plan: Option<String>,
        /// The life of the key; `None` without an end.
        lifetime: Option<Duration>,
    },
    /// Adds an owner with a key of another system.
    Adopt {
        /// The key.
        secret: String,
        /// The plan of the owner.
        plan: Option<String>,
    },
    /// Adds a key beside that of an owner.
    Rotate {
        /// The rest of the old key's life.
        overlap: Duration,
        /// The life of the new key; by default that of the newest one.
        lifetime: Option<Duration>,
    },
    /// Removes an owner, or one of its keys.
    Revoke {
        /// The id of the key.
        id: Option<String>,
    },
}

/// An edit that was made.
#[derive(Debug)]
pub struct EditedKeys {
    /// The new key. Nothing else has it.
    pub secret: Option<String>,
    /// The owner before.
    pub before: Option<KeyOwner>,
    /// The owner now; `None` if it was removed.
    pub after: Option<KeyOwner>,
}

/// Why no edit was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyEditError {
    /// The edit is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is no such owner or key.
    #[error("{0}")]
    Absent(String),
    /// The owner or its keys are in the way.
    #[error("{0}")]
    Conflict(String),
    /// The file is invalid, or cannot be read or written.
    #[error("{0}")]
    File(String),
}

/// Whether `text` can be the name of an owner or a plan: such a name can also be a key of `overrides` and a value of a field.
pub fn is_name(text: &str) -> bool {
    let is_plain = |character| !is_hidden(character) && character != '|';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.trim() == text && text.chars().all(is_plain)
}

impl KeyChange {
    /// Whether it makes a key.
    pub fn makes_key(&self) -> bool {
        matches!(self, Self::New { .. } | Self::Rotate { .. })
    }
}

impl KeyEdit {
    /// The owner after the edit, with a new key of this digest if the edit makes one. `before` is the owner before.
    ///
    /// # Errors
    /// The edit does not fit the owner.
    pub fn apply(
        &self,
        before: Option<&KeyOwner>,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<KeyOwner>, KeyEditError> {
        let name = &self.name;
        let owner = || before.ok_or_else(|| KeyEditError::Absent(format!("there is no API key of `{name}`")));
        // The file has whole seconds.
        let now = Timestamp::from_ns(now.as_secs() * 1_000_000_000);
        let after = |length: Duration| now.saturating_add_ns(saturating_ns(length));
        let key = |lifetime: Option<Duration>| ApiKey {
            digest,
            created: now,
            expires: lifetime.map(after),
            overlap_ends: None,
        };
        match &self.change {
            KeyChange::New { .. } | KeyChange::Adopt { .. } if before.is_some() => {
                Err(KeyEditError::Conflict(format!("`{name}` has an API key already; rotate it")))
            }
            KeyChange::New { plan, lifetime } => self.first(plan.as_deref(), key(*lifetime)).map(Some),
            KeyChange::Adopt { secret, .. } if !is_adoptable(secret.as_bytes()) => {
                let what = "an adopted key has 16 to 512 visible ASCII characters; make a new one instead";
                Err(KeyEditError::Invalid(what.to_owned()))
            }
            KeyChange::Adopt { secret, plan } => {
                let key = ApiKey { digest: digest_of(secret.as_bytes()), ..key(None) };
                self.first(plan.as_deref(), key).map(Some)
            }
            KeyChange::Rotate { overlap, lifetime } => {
                let mut owner = owner()?.clone();
                let newest = owner.keys.iter().max_by_key(|key| key.created);
                let usual = newest.and_then(|key| Some(Duration::from_nanos(key.expires?.ns_since(key.created))));
                let end = after(*overlap);
                owner.keys.retain(|key| !overlap.is_zero() && !key.has_expired(now));
                if owner.keys.len() >= VALID_MAX {
                    let what = "has two valid API keys already; wait for the end of one, revoke one by its id, or \
                                rotate with an overlap of 0s";
                    return Err(KeyEditError::Conflict(format!("`{name}` {what}")));
                }
                for old in &mut owner.keys {
                    old.overlap_ends = Some(old.overlap_ends.map_or(end, |before| before.min(end)));
                }
                owner.keys.push(key(lifetime.or(usual)));
                Ok(Some(owner))
            }
            KeyChange::Revoke { id: None } => owner().map(|_| None),
            KeyChange::Revoke { id: Some(id) } => {
                let mut owner = owner()?.clone();
                let count = owner.keys.len();
                owner.keys.retain(|key| key.id() != *id);
                if owner.keys.len() == count {
                    return Err(KeyEditError::Absent(format!("`{name}` has no API key with the id `{id}`")));
                }
                Ok(Some(owner).filter(|owner| !owner.keys.is_empty()))
            }
        }
    }

    /// An owner with its first key.
    fn first(&self, plan: Option<&str>, key: ApiKey) -> Result<KeyOwner, KeyEditError> {
        let texts = [Some(&*self.name), plan];
        if let Some(wrong) = texts.into_iter().flatten().find(|text| !is_name(text)) {
            let what = "a name has 1 to 128 bytes, no control characters, no `|`, and no spaces around it";
            return Err(KeyEditError::Invalid(format!("`{}`: {what}", wrong.escape_debug())));
        }
        Ok(KeyOwner {
            name: self.name.as_str().into(),
            plan: plan.map(Into::into),
            is_disabled: false,
            keys: vec![key],
        })
    }
}
