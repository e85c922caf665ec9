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
        let places = places(files);
        let folders: BTreeSet<PathBuf> = places.iter().filter_map(|place| place.parent()).map(Path::to_owned).collect();
        let on_event = {
            let changed = Arc::clone(&changed);
            move |event: notify::Result<notify::Event>| {
                // What cannot be told apart, such as a lost event, counts as a change.
                let concerns_us = event.map_or(true, |event| {
                    let is_ours = event.paths.is_empty() || event.paths.iter().any(|path| places.contains(path));
                    is_ours && !event.kind.is_access()
                });
                if concerns_us {
                    changed.notify_one();
                }
            }
        };
        let watcher = notify::recommended_watcher(on_event).map(|mut watcher| {
            for folder in folders {
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

/// Every path at which one of `files` can be exchanged for another: itself, each symlink on the way to it, and
/// where those lead.
fn places<'p>(files: impl Iterator<Item = &'p Path>) -> BTreeSet<PathBuf> {
    let mut places = BTreeSet::new();
    for file in files {
        let Ok(file) = std::path::absolute(file) else { continue };
        places.extend(file.ancestors().filter(|path| path.is_symlink()).map(Path::to_owned));
        let mut link = file.clone();
        for _ in 0..LINKS_MAX {
            let Ok(target) = std::fs::read_link(&link) else { break };
            link = link.parent().unwrap_or(Path::new("/")).join(target);
            places.extend(link.ancestors().filter(|path| path.is_symlink()).map(Path::to_owned));
            places.insert(link.clone());
        }
        places.extend(file.canonicalize());
        places.insert(file);
    }
    places
}

/// As many links in a row as the system follows.
const LINKS_MAX: usize = 40;
