//! Overrides that operators set at run time: other numbers of a limit for one key.
//!
//! Plain data that `config` checks and applies, `admin` shows, and `app` passes between them. What an override makes of
//! a limit is in [`Allowed`](super::Allowed).

use serde_json::Value;

use crate::base::time::Timestamp;

/// One override set at run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The name of the limit.
    pub limit: Box<str>,
    /// The text of the key.
    pub key: Box<str>,
    /// What the limit allows to this key, as the configuration would write it.
    pub allowance: Value,
    /// The end by the wall clock; `None` if it has none.
    pub until: Option<Timestamp>,
    /// Why the override does not apply; `None` if it applies.
    pub rejection: Option<Box<str>>,
    /// How the override drops windows of its limit; `None` if it keeps them.
    pub dropped: Option<Box<str>>,
}

/// An override that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedOverride {
    /// The name of the limit.
    pub limit: String,
    /// The text of the key.
    pub key: String,
    /// The allowance and the end, as the file had them.
    pub allowance: Value,
}

/// A change of one override.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideEdit {
    /// The name of the limit.
    pub limit: String,
    /// The text of the key.
    pub key: String,
    /// The new allowance, as the file has it: with an end it is `{ "to": ..., "until": ... }`. `None` removes the override.
    pub allowance: Option<Value>,
    /// Whether the override may drop windows of its limit.
    pub replaces: bool,
}

/// Why a change was not made, or not everywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// The configuration allows none at run time.
    #[error("overrides cannot be set at run time: `admin.overrides` is `off`")]
    Off,
    /// The configuration on disk, or the file of overrides, is invalid.
    #[error("{0}")]
    InvalidOnDisk(String),
    /// An edit does not fit the configuration.
    #[error("{reason}")]
    Invalid {
        /// The index of the edit; `None` if the edits do not fit together.
        index: Option<usize>,
        /// Why it does not fit.
        reason: String,
    },
    /// The file of overrides cannot be written.
    #[error("nothing is changed: the file of `admin.overrides` cannot be written: {0}")]
    Write(String),
    /// The etcd of the fleet cannot be changed.
    #[error("nothing is changed: the overrides of the fleet are in etcd: {0}")]
    Fleet(String),
    /// The overrides in the etcd of the fleet are changed, but not those of this replica.
    #[error("other replicas apply it; this one will when the file of `admin.overrides` can be written: {reason}")]
    OnlyFleet {
        /// For each edit, the allowance before it.
        before: Vec<Option<Value>>,
        /// Why this replica does not have the change.
        reason: String,
    },
    /// The etcd of the fleet may have made the change, now or later: its answer is lost.
    #[error("the change may hold on all replicas, or not: the answer of etcd is lost: {reason}")]
    Unanswered {
        /// For each edit, the allowance before it.
        before: Vec<Option<Value>>,
        /// Why there is no answer.
        reason: String,
    },
    /// The change was not completed in time.
    #[error("the change timed out; it may still apply later")]
    Timeout,
}
