//! The overrides in a configuration, as the rest of Weir sees them.

use std::path::PathBuf;

use crate::config::diagnostics::Diagnostics;
use crate::policy::overrides::Override;

/// The overrides set at run time, including overrides that do not apply.
#[derive(Debug, Default)]
pub struct RunTimeOverrides {
    /// The file that has them; none if the configuration names no file.
    pub file: Option<PathBuf>,
    /// All overrides, in the order of the file.
    pub overrides: Vec<Override>,
    /// Why some are left out.
    pub problems: Option<Diagnostics>,
    /// How many are left out; 1 if the file as a whole cannot be read.
    pub rejected_count: usize,
    /// The text in force; none if the file cannot be read.
    pub(super) text: Option<String>,
}

impl RunTimeOverrides {
    /// The text in force: of the file, or of the file before if it cannot be read now. None without either.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}
