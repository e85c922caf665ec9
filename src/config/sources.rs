//! The files that a configuration was read from, and whether they have changed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use super::files::read_file;

/// The files of one reading, each with a digest of its content, or of its absence.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<(PathBuf, u64)>,
    /// A digest of a configuration that is in no file.
    bytes: Option<u64>,
}

impl Sources {
    /// Records the content at `path`; `None` if it cannot be read. A second record of one path has no effect.
    pub(super) fn add(&mut self, path: &Path, found: Option<&[u8]>) {
        if self.files.iter().all(|(known, _)| known != path) {
            self.files.push((path.into(), digest(found)));
        }
    }

    /// Records the content of a configuration that is in no file.
    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        self.bytes = Some(digest(Some(bytes)));
    }

    /// The paths. The first path is that of the configuration, if it is in a file.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// Whether all contents but that of the file at `path` are equal.
    pub fn differ_only_in(&self, other: &Self, path: Option<&Path>) -> bool {
        let is_other = |(known, _): &&(PathBuf, u64)| Some(known.as_path()) != path;
        let rest = |of: &Self| of.files.iter().filter(is_other).cloned().collect::<Vec<_>>();
        self.bytes == other.bytes && rest(self) == rest(other)
    }

    /// Whether a file was changed, removed or created. Reads all files.
    pub fn have_changed(&self) -> bool {
        self.files.iter().any(|(path, found)| digest(read_file(path).ok().as_deref()) != *found)
    }
}

fn digest(found: Option<&[u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    found.hash(&mut hasher);
    hasher.finish()
}
