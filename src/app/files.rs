//! Watches files for changes, including replaced files and replaced symlinks.
//!
//! An event is a hint. The caller reads the files to find out whether they changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::base::time::instant_now;

/// A watch of the folders of some files.
pub(super) struct FileWatch {
    changed: Arc<Notify>,
    /// Every path that is watched for.
    paths: Arc<BTreeSet<PathBuf>>,
    /// Watches until it is dropped; `None` if the system cannot watch.
    watcher: Option<RecommendedWatcher>,
    /// The end of the quiet period that has begun.
    due: Option<Instant>,
}

/// The time without a further change after which files are read, so that no half-written file is read.
pub(super) const QUIET: Duration = Duration::from_millis(300);

impl FileWatch {
    /// Watches every folder that contains one of `files`, or a symlink of its path.
    pub(super) fn new<'p>(files: impl Iterator<Item = &'p Path>) -> Self {
        Self::of(replaceable_paths(files))
    }

    /// Watches `files` instead. Keeps the watch if it is of the same paths: a new one takes a thread and the kernel's time.
    pub(super) fn follow<'p>(&mut self, files: impl Iterator<Item = &'p Path>) {
        let paths = replaceable_paths(files);
        if self.watcher.is_none() || paths != *self.paths {
            *self = Self { due: self.due, ..Self::of(paths) };
        }
    }

    fn of(paths: BTreeSet<PathBuf>) -> Self {
        let (changed, paths) = (Arc::new(Notify::new()), Arc::new(paths));
        let folders: BTreeSet<PathBuf> = paths.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        let on_event = {
            let (changed, paths) = (Arc::clone(&changed), Arc::clone(&paths));
            move |event: notify::Result<notify::Event>| {
                // An event without a path, such as an overflow of the event queue, counts as a change.
                let is_change = event.map_or(true, |event| {
                    let is_ours = event.paths.is_empty() || event.paths.iter().any(|path| paths.contains(path));
                    is_ours && !event.kind.is_access()
                });
                if is_change {
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
            tracing::warn!(%error, "cannot watch files; Weir polls them for changes");
        }
        Self { changed, paths, watcher: watcher.ok(), due: None }
    }

    /// Waits for a change, and until there was none for [`QUIET`]. A caller that is dropped meanwhile loses nothing.
    pub(super) async fn settled(&mut self) {
        loop {
            match self.due {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep_until(due) => {
                        self.due = None;
                        return;
                    }
                },
            }
            self.due = Some(instant_now() + QUIET);
        }
    }
}

/// Every path whose replacement can change one of `files`: the file, each symlink of its path, and the targets of the
/// symlinks.
fn replaceable_paths<'p>(files: impl Iterator<Item = &'p Path>) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    for file in files {
        let Ok(file) = std::path::absolute(file) else { continue };
        paths.extend(file.ancestors().filter(|path| path.is_symlink()).map(Path::to_owned));
        let mut link = file.clone();
        for _ in 0..LINKS_MAX {
            let Ok(target) = std::fs::read_link(&link) else { break };
            link = link.parent().unwrap_or(Path::new("/")).join(target);
            paths.extend(link.ancestors().filter(|path| path.is_symlink()).map(Path::to_owned));
            paths.insert(link.clone());
        }
        paths.extend(file.canonicalize());
        paths.insert(file);
    }
    paths
}

/// Consecutive symlinks that Linux follows in one path.
const LINKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_counts_once_the_files_are_quiet() {
        let mut watch = FileWatch::new(std::iter::empty());
        let (began, changed) = (instant_now(), Arc::clone(&watch.changed));
        // A writer that writes again and again; the caller drops each wait.
        for _ in 0..10 {
            changed.notify_one();
            assert!(timeout(QUIET / 2, watch.settled()).await.is_err());
        }
        changed.notify_one();
        watch.settled().await;
        assert_eq!(began.elapsed(), QUIET * 6);
        assert!(timeout(QUIET * 10, watch.settled()).await.is_err());
    }
}
