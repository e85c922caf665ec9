//! The state of the fleet that operators have last seen.

use std::collections::BTreeSet;

use crate::base::time::Timestamp;

/// The state that is in metrics and log lines.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// The replicas that do not hear this one.
    pub(super) absent: u64,
    /// The replicas, and when their number grew last: a new one may take a while to answer.
    pub(super) replicas: u64,
    pub(super) grown_at: Timestamp,
    /// Whether a line has said that the number of replicas is unknown.
    pub(super) is_unknown_logged: bool,
    /// The peers with series of metrics.
    pub(super) peers: BTreeSet<Box<str>>,
    /// The peers whose clocks differ too much.
    pub(super) skewed: BTreeSet<Box<str>>,
}
