//! The state of the fleet that operators have last seen.

use std::collections::BTreeSet;

/// The state that is in metrics and log lines.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) is_isolated: bool,
    /// The peers with series of metrics.
    pub(super) peers: BTreeSet<Box<str>>,
    /// The peers whose clocks differ too much.
    pub(super) skewed: BTreeSet<Box<str>>,
}
