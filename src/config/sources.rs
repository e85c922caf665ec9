//! The files that a configuration was read from, with their contents.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::read_file;

/// The files of one reading. Clones are cheap.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Each path with its content; `None` if it could not be read.
    files: Vec<(PathBuf, Option<Arc<[u8]>>)>,
    /// A configuration that is in no file.
    bytes: Option<Arc<[u8]>>,
}

impl Sources {
    /// Records the content at `path`; `None` if it cannot be read. A second record of one path has no effect.
    pub(super) fn add(&mut self, path: &Path, found: Option<&[u8]>) {
        if self.files.iter().all(|(known, _)| known != path) {
            self.files.push((path.into(), found.map(Into::into)));
        }
    }

    /// Records a configuration that is in no file.
    pub(super) fn add_bytes(&mut self, bytes: &Arc<[u8]>) {
        self.bytes = Some(Arc::clone(bytes));
    }

    /// The content at `path` as it was read before. A path without a record is read now.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let known = self.files.iter().find(|(known, _)| known == path);
        known.and_then(|(_, found)| found.as_deref()).map_or_else(|| read_file(path), |found| Ok(found.to_vec()))
    }

    /// Takes the record of `path` from `newer`.
    pub fn renew(&mut self, path: &Path, newer: &Self) {
        self.files.retain(|(known, _)| known != path);
        self.files.extend(newer.files.iter().find(|(known, _)| known == path).cloned());
    }

    /// The paths. The first path is that of the configuration, if it is in a file.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// Whether all contents but that of the file at `path` are equal.
    pub fn differ_only_in(&self, other: &Self, path: Option<&Path>) -> bool {
        let rest = |of: &Self| {
            let others = of.files.iter().filter(|(known, _)| Some(known.as_path()) != path);
            others.cloned().collect::<Vec<_>>()
        };
        self.bytes == other.bytes && rest(self) == rest(other)
    }

    /// Whether a file was changed, removed or created. Reads all files.
    pub fn have_changed(&self) -> bool {
        self.files.iter().any(is_outdated)
    }

    /// Whether the file at `path` was changed, removed or created, or has no record.
    pub fn has_changed(&self, path: &Path) -> bool {
        let known = self.files.iter().find(|(known, _)| known == path);
        known.is_none_or(is_outdated)
    }

    /// Whether the file of the configuration was changed, removed or created.
    pub fn has_first_changed(&self) -> bool {
        self.files.first().is_some_and(|(path, _)| self.has_changed(path))
    }

    /// These files with their contents now.
    pub fn read_again(&self) -> Self {
        let now = |(path, _): &(PathBuf, _)| (path.clone(), read_file(path).ok().map(Into::into));
        Self { files: self.files.iter().map(now).collect(), bytes: self.bytes.clone() }
    }

    /// These files, behind the first one of `other`, as it was read there.
    pub fn behind_first_of(mut self, other: &Self) -> Self {
        let first = other.files.first().filter(|(path, _)| self.files.iter().all(|(known, _)| known != path));
        self.files.splice(0..0, first.cloned());
        self
    }
}

/// Whether the file at a path no longer has the recorded content. Reads it.
fn is_outdated((path, found): &(PathBuf, Option<Arc<[u8]>>)) -> bool {
    read_file(path).ok().as_deref() != found.as_deref()
}

/// Shows paths, because files may have secrets.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.paths()).finish()
    }
}
