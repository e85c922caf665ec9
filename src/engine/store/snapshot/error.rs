//! Errors of a snapshot, and the version that can be read.

use std::fmt;
use std::io;

/// The version of the format. To be raised with every change of the format, or of the hash of keys. Other versions are
/// not read.
pub(super) const VERSION: u32 = 2;

/// Why a snapshot cannot be restored.
#[derive(Debug)]
pub enum SnapshotError {
    /// Reading failed.
    Read(io::Error),
    /// The file has another version of the format.
    Version(u32),
    /// The file is not as it was written.
    Damaged(&'static str),
    /// Its keys are under another secret than those of the fleet.
    OtherSecret,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Version(version) => write!(f, "has version {version}, and only version {VERSION} is known"),
            Self::OtherSecret => f.write_str("has keys under another secret than `fleet.secret`"),
            Self::Damaged(how) => write!(f, "is damaged: {how}"),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}
