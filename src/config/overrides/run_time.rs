//! The overrides in a configuration, as the rest of Weir sees them.

use super::in_force::OverridesInForce;
use crate::config::diagnostics::Diagnostics;
use crate::engine::policy::overrides::Override;

/// The overrides set at run time, including overrides that do not apply.
#[derive(Debug, Default)]
pub struct RunTimeOverrides {
    /// Their place, and their text.
    pub kept: OverridesInForce,
    /// All overrides, in the order of the text.
    pub overrides: Vec<Override>,
    /// Why some are left out.
    pub problems: Option<Diagnostics>,
    /// Whether the text has overrides that have ended. They are not among `overrides`.
    pub has_ended: bool,
    /// How many are left out; 1 if the file as a whole cannot be read.
    pub rejected_count: usize,
}
