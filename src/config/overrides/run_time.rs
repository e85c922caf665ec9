//! What was set at run time, and what of it is left out.

use std::path::PathBuf;

use crate::admin::Override;
use crate::config::diagnostics::Diagnostics;

/// What was set at run time.
#[derive(Debug, Default)]
pub struct RunTime {
    /// The file that says it; none if nothing can be set.
    pub file: Option<PathBuf>,
    /// What it says, in its order.
    pub overrides: Vec<Override>,
    /// What is wrong with those that are left out.
    pub left_out: Option<Diagnostics>,
    /// How many are; one if the file as a whole cannot be read.
    pub left_out_count: usize,
    /// The file's text, if it is TOML.
    pub(super) text: Option<String>,
}

impl RunTime {
    /// The text of the file; none if there is none that could be read.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The same, of which as much is wrong as with `other`.
    pub fn as_wrong_as(self, other: Self) -> Self {
        Self { left_out: other.left_out, left_out_count: other.left_out_count, ..self }
    }
}

impl RunTime {
    /// What is set for this key of a limit, if anything is.
    pub(super) fn find(&self, limit: &str, text: &str) -> Option<&Override> {
        self.overrides.iter().find(|set| *set.limit == *limit && *set.text == *text)
    }
}
