//! Errors of a snapshot, and the version that can be read.

use std::io;

/// The version of the format. To be raised with every change of the format, or of the hash of keys. Other versions are
/// not read.
pub(super) const VERSION: u32 = 2;

/// Why a snapshot cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// The file has another version of the format.
    #[error("has version {0}, and only version {VERSION} is known")]
    Version(u32),
    /// The file is not as it was written.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// Its keys are under another secret than those of the fleet.
    #[error("has keys under another secret than `fleet.secret`")]
    OtherSecret,
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}
