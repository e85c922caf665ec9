//! The result of an import: the configuration, and a report of all lines that it does not translate exactly.

use std::fmt;

use crate::engine::policy::api_keys::KeyOwner;

/// A translated configuration.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The text of a valid configuration.
    pub config: String,
    /// The report, in the order of the lines.
    pub findings: Vec<Finding>,
    /// The owners of API keys that the original knows.
    pub api_keys: Vec<KeyOwner>,
}

impl Imported {
    /// Whether the configuration decides about requests as the original does.
    pub fn is_exact(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind == Kind::NotNeeded)
    }
}

/// The way in which a line is not translated exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The configuration has nothing of the line.
    LeftOut,
    /// The configuration has something else in its place.
    Differs,
    /// The line changes no decision about requests.
    NotNeeded,
}

/// The reason for a refusal of the original that Weir does not have.
pub(super) const OPEN: &str = "set `[access]` by hand: Weir refuses nothing for it";

/// A line that is not translated exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// The file.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The text of the line.
    pub text: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::LeftOut => "left out",
            Kind::Differs => "differs",
            Kind::NotNeeded => "not needed",
        };
        match self.line {
            0 => write!(f, "{}: {kind}: {}", self.file, self.why),
            line => write!(f, "{}:{line}: {kind}: `{}`: {}", self.file, self.text, self.why),
        }
    }
}

/// The reason why a file cannot be translated, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImportError(pub(super) String);
