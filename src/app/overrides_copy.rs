//! The copy of a fleet's overrides at this replica. A text that cannot be written is tried again until it is written, or
//! until a newer text replaces it.

use std::future::pending;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::base::time::instant_now;
use crate::config::{OverridesInForce, OverridesPlace};
use crate::engine::store::snapshot::file;
use crate::fleet::etcd::Backoff;

/// The newest text, and the attempts to write it.
pub(super) struct OverridesCopy {
    /// The key of the text in etcd.
    key: String,
    texts: watch::Receiver<Arc<str>>,
    backoff: Backoff,
    /// The instant of the next attempt, if the last one failed.
    due: Option<Instant>,
}

impl OverridesCopy {
    pub(super) fn new(key: String, texts: watch::Receiver<Arc<str>>) -> Self {
        Self { key, texts, backoff: Backoff::default(), due: None }
    }

    /// Waits for the next text, or until an attempt to write the newest one is due.
    pub(super) async fn next(&mut self) -> Arc<str> {
        tokio::select! {
            Ok(()) = self.texts.changed() => {}
            () = at(self.due) => {}
        }
        Arc::clone(&self.texts.borrow_and_update())
    }

    /// Writes `text` to the place of `kept`. Returns whether it differs from the text before. A text that is not TOML is
    /// not written.
    pub(super) async fn write(&mut self, text: Arc<str>, kept: &mut OverridesInForce) -> bool {
        if let Err(problems) = OverridesInForce::check(&self.key, &text) {
            let key = &self.key;
            tracing::error!(key, "the overrides of the fleet in etcd cannot be read; those before stay\n{problems}");
            self.due = None;
            return false;
        }
        let written = match kept.place.clone() {
            OverridesPlace::Off => return false,
            OverridesPlace::Memory { .. } => Ok(kept.replace_text(text)),
            OverridesPlace::File(file) => {
                let written = spawn_blocking(move || write_if_new(&file, &text)).await;
                written.map_err(io::Error::other).flatten()
            }
        };
        self.attempted(written.as_ref().err());
        written.unwrap_or(false)
    }

    /// Tries a last time to write a text that could not be written.
    pub(super) async fn write_last(&mut self, kept: &mut OverridesInForce) {
        if self.due.is_some() {
            let newest = Arc::clone(&self.texts.borrow_and_update());
            self.write(newest, kept).await;
        }
    }

    /// Notes that an attempt has ended, with this error if it failed. Logs the first failure, and the success after it.
    pub(super) fn attempted(&mut self, error: Option<&io::Error>) {
        let had_failed = self.due.is_some();
        self.due = error.map(|_| instant_now() + self.backoff.pause());
        match error {
            Some(error) if !had_failed => {
                tracing::error!(%error, "the overrides of the fleet cannot be written to their file; Weir tries again");
            }
            None if had_failed => {
                self.backoff.reset();
                tracing::info!("the overrides of the fleet are written to their file again");
            }
            _ => {}
        }
    }
}

/// Waits until `due`; forever without an instant.
async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Writes `text` to the file at `path`, unless the file has it already. Returns whether it did.
fn write_if_new(path: &Path, text: &str) -> io::Result<bool> {
    let known = match std::fs::read(path) {
        Ok(known) => known,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    if known == text.as_bytes() {
        return Ok(false);
    }
    file::replace(path, |to| to.write_all(text.as_bytes())).map(|_| true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_copy_keeps_its_text_until_the_next_valid_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("overrides.toml");
        for place in [OverridesPlace::Memory { no_file: None }, OverridesPlace::File(file.clone())] {
            let mut kept = OverridesInForce { place, text: None };
            let (_sender, texts) = watch::channel(Arc::from(""));
            let mut copy = OverridesCopy::new("key".to_owned(), texts);
            for (text, is_new, expected) in [
                ("[a", false, None),
                ("[a]", true, Some("[a]")),
                ("[a]", false, Some("[a]")),
                ("[b", false, Some("[a]")),
                ("[b]", true, Some("[b]")),
                ("", true, Some("")),
            ] {
                let written = copy.write(text.into(), &mut kept).await;
                let known = if kept.place.is_memory() {
                    kept.text.as_deref().map(str::to_owned)
                } else {
                    fs::read_to_string(&file).ok()
                };
                assert_eq!((written, known.as_deref()), (is_new, expected), "{text}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_is_tried_until_it_is_written_or_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("overrides.toml");
        let mut kept = OverridesInForce { place: OverridesPlace::File(path.clone()), text: None };
        let (sender, texts) = watch::channel(Arc::from(""));
        let mut copy = OverridesCopy::new("key".to_owned(), texts);
        // No file can replace a folder.
        fs::create_dir(&path).unwrap();
        sender.send("[one]".into()).unwrap();
        let mut last = instant_now();
        for pause_ms in [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let text = copy.next().await;
            let (pause, whole) = (instant_now() - last, Duration::from_millis(pause_ms));
            // The timer of tokio counts whole milliseconds.
            assert!(whole <= pause && pause <= whole * 3 / 2 + Duration::from_millis(1), "{pause_ms}: {pause:?}");
            assert_eq!((&*text, copy.write(text.clone(), &mut kept).await), ("[one]", false));
            last = instant_now();
        }
        // A newer text does not wait, and replaces the older one.
        sender.send("[two]".into()).unwrap();
        let text = copy.next().await;
        assert_eq!((&*text, copy.write(text.clone(), &mut kept).await), ("[two]", false));
        assert_eq!(instant_now(), last);
        fs::remove_dir(&path).unwrap();
        let text = copy.next().await;
        assert_eq!((&*text, copy.write(text.clone(), &mut kept).await), ("[two]", true));
        assert_eq!(fs::read_to_string(&path).unwrap(), "[two]");
        // No more attempts.
        assert!(timeout(Duration::from_hours(1), copy.next()).await.is_err());
        copy.write_last(&mut kept).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), "[two]");
        // Pauses begin anew after a success, and a stop does not wait for the next one.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        sender.send("[three]".into()).unwrap();
        let text = copy.next().await;
        assert!(!copy.write(text, &mut kept).await);
        assert!(timeout(Duration::from_millis(151), copy.next()).await.is_ok());
        fs::remove_dir(&path).unwrap();
        copy.write_last(&mut kept).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), "[three]");
    }
}
