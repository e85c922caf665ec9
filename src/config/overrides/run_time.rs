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
    /// The file's text; none if it cannot be read.
    pub(super) text: Option<String>,
}

impl RunTimeOverrides {
    /// The text of the file; none if it cannot be read.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// These overrides with the problems of `other`.
    pub fn with_problems_of(self, other: Self) -> Self {
        Self { problems: other.problems, rejected_count: other.rejected_count, ..self }
    }

    /// The override of one key, if there is one.
    pub(in crate::config) fn find(&self, limit: &str, key: &str) -> Option<&Override> {
        self.overrides.iter().find(|found| *found.limit == *limit && *found.key == *key)
    }
}
