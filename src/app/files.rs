//! Tells when something happened where given files are, also when a file is replaced or a symlink is swapped.
//!
//! It is a hint: what has changed, if anything, is found out by reading.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// A watch over the folders of some files.
pub(super) struct FileWatch {
    changed: Arc<Notify>,
    /// Watches until dropped; none if the system cannot.
    _watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    /// Watches every folder in which `files`, or a symlink on the way to one, stand.
    pub(super) fn new<'p>(files: impl Iterator<Item = &'p Path>) -> Self {
        let changed = Arc::new(Notify::new());
        let on_event = {
            let changed = Arc::clone(&changed);
            move |event: notify::Result<notify::Event>| {
                let is_read = event.is_ok_and(|event| event.kind.is_access());
                if !is_read {
                    changed.notify_one();
                }
            }
        };
        let watcher = notify::recommended_watcher(on_event).map(|mut watcher| {
            for folder in folders(files) {
                if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
                    tracing::debug!(folder = %folder.display(), %error, "cannot watch");
                }
            }
            watcher
        });
        if let Err(error) = &watcher {
            tracing::warn!(%error, "changed files are noticed later, because the system cannot watch them");
        }
        Self { changed, _watcher: watcher.ok() }
    }

    /// Waits for the next event.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The folders in which one of `files` can be exchanged for another.
fn folders<'p>(files: impl Iterator<Item = &'p Path>) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    for file in files {
        let Ok(file) = std::path::absolute(file) else { continue };
        let links = file.ancestors().filter(|path| path.is_symlink());
        folders.extend(links.filter_map(Path::parent).map(Path::to_owned));
        for file in [file.canonicalize().ok(), Some(file)].into_iter().flatten() {
            folders.extend(file.parent().map(Path::to_owned));
        }
    }
    folders
}
