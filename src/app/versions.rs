//! The last configurations in force, so that operators can return to one.
//!
//! They are in memory, and in a file of the state folder if there is one. Not here: putting one in force (`reload`).

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::remote::StateFile;
use crate::engine::store::snapshot::file;

/// Most configurations that are kept, with the one in force.
const KEPT_MAX: usize = 10;
/// Most bytes of their texts together. The one in force stays whatever its length.
const BYTES_MAX: usize = 16 << 20;

/// A configuration that was put in force.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Version {
    /// Counts the configurations of one address from 1.
    pub(super) number: u64,
    /// The time at which it was put in force.
    pub(super) at: String,
    /// The number of the configuration that was in force before it.
    before: Option<u64>,
    /// The revision of a remote configuration.
    pub(super) revision: Option<String>,
    /// The number of its limits.
    pub(super) limits: usize,
    /// Its text.
    pub(super) text: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct History {
    /// The owner of the file.
    owner: String,
    in_force: Option<u64>,
    /// The oldest first.
    versions: VecDeque<Version>,
}

/// The configurations that are kept.
#[derive(Debug)]
pub(super) struct Versions {
    /// Locked for moments, and while the file is written. No request of a client waits for it.
    kept: Mutex<History>,
    file: Option<StateFile>,
    /// Why those in the file cannot be used.
    damage: Option<String>,
    /// Whether the last writing failed.
    has_failed: AtomicBool,
}

impl Versions {
    /// Reads the configurations in `file`. A file that cannot be read, or is that of another address, is replaced later.
    pub(super) fn open(file: Option<StateFile>) -> Self {
        let (read, damage) = match file.as_ref().map(read).transpose() {
            Ok(read) => (read.flatten(), None),
            Err(reason) => (None, Some(reason)),
        };
        let owner = file.as_ref().map(|file| file.owner.clone()).unwrap_or_default();
        let kept = read.unwrap_or_else(|| History { owner, ..History::default() });
        Self { kept: Mutex::new(kept), file, damage, has_failed: AtomicBool::new(false) }
    }

    /// Logs why those in the file cannot be used.
    pub(super) fn log(&self) {
        if let (Some(file), Some(reason)) = (&self.file, &self.damage) {
            let file = file.path.display();
            tracing::warn!(%file, reason, "the earlier configurations in this file cannot be used");
        }
    }

    /// The configuration with `text` is in force since `at`.
    pub(super) fn put_in_force(&self, text: &str, at: String, revision: Option<&str>, limits: usize) {
        let mut kept = self.lock();
        let before = kept.in_force;
        if kept.versions.iter().any(|one| Some(one.number) == before && one.text == text) {
            return;
        }
        let number = kept.versions.iter().map(|one| one.number).max().unwrap_or(0) + 1;
        let revision = revision.map(str::to_owned);
        kept.versions.push_back(Version { number, at, before, revision, limits, text: text.to_owned() });
        kept.in_force = Some(number);
        let bytes = |kept: &History| kept.versions.iter().map(|one| one.text.len()).sum::<usize>();
        while kept.versions.len() > KEPT_MAX || kept.versions.len() > 1 && bytes(&kept) > BYTES_MAX {
            // The one to return to stays, however old it is.
            let is_before = kept.versions.front().is_some_and(|one| Some(one.number) == before);
            let oldest = usize::from(is_before && kept.versions.len() > 2);
            kept.versions.remove(oldest);
        }
        self.write(&kept);
    }

    /// The earlier configuration `number` is in force again.
    pub(super) fn returned_to(&self, number: u64) {
        let mut kept = self.lock();
        kept.in_force = Some(number);
        self.write(&kept);
    }

    /// The configuration `number`, or the one that was in force before that of now.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn earlier(&self, number: Option<u64>) -> Result<Version, String> {
        let kept = self.lock();
        let find = |number| kept.versions.iter().find(|one| Some(one.number) == number);
        let wanted = number.or_else(|| find(kept.in_force)?.before);
        match (find(wanted), number) {
            (Some(version), _) if wanted != kept.in_force => Ok(version.clone()),
            (Some(_), _) => Err("this configuration is in force".to_owned()),
            (None, Some(number)) => Err(format!("no configuration has the number {number}")),
            (None, None) => Err("no earlier configuration is kept".to_owned()),
        }
    }

    /// The configurations, the newest first, each with whether it is in force.
    pub(super) fn list(&self) -> Vec<(Version, bool)> {
        let kept = self.lock();
        kept.versions.iter().rev().map(|one| (one.clone(), Some(one.number) == kept.in_force)).collect()
    }

    /// The file, if the configurations outlive the process.
    pub(super) fn file(&self) -> Option<String> {
        let file = self.file.as_ref().filter(|_| !self.has_failed.load(Ordering::Relaxed));
        file.map(|file| file.path.display().to_string())
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file. Only its owner can read it, because a configuration may have secrets.
    fn write(&self, kept: &History) {
        let Some(StateFile { path, .. }) = &self.file else { return };
        if let Some(folder) = path.parent() {
            let _ = fs::create_dir_all(folder); // the next step fails without it
        }
        let _ = file::clear(path); // temporary files of earlier processes do no harm if they stay
        let written = file::replace(path, |to| serde_json::to_writer(to, kept).map_err(Into::into));
        let had_failed = self.has_failed.swap(written.is_err(), Ordering::Relaxed);
        if let Err(error) = written
            && !had_failed
        {
            let file = path.display();
            tracing::warn!(%file, %error, "earlier configurations are kept in memory only");
        }
    }
}

/// The configurations in a file; `None` without a file.
fn read(file: &StateFile) -> Result<Option<History>, String> {
    let Some(bytes) = file.read()? else { return Ok(None) };
    let kept: History = serde_json::from_slice(&bytes).map_err(|_| "it is damaged")?;
    if kept.owner == file.owner { Ok(Some(kept)) } else { Err("it belongs to another address".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn state_file(path: &Path) -> StateFile {
        StateFile { path: path.to_owned(), owner: "a".to_owned() }
    }

    fn numbers(versions: &Versions) -> Vec<(u64, bool)> {
        versions.list().into_iter().map(|(one, is_in_force)| (one.number, is_in_force)).collect()
    }

    #[test]
    fn a_return_leads_to_what_was_in_force_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = Some(state_file(&folder.path().join("state/versions.json")));
        let versions = Versions::open(file.clone());
        let put = |versions: &Versions, text: &str| versions.put_in_force(text, "now".to_owned(), None, 1);
        let earlier = |versions: &Versions, number| versions.earlier(number).map(|one| one.text);
        assert_eq!(earlier(&versions, None), Err("no earlier configuration is kept".to_owned()));
        for text in ["a", "b", "b", "c"] {
            put(&versions, text);
        }
        assert_eq!(numbers(&versions), [(3, true), (2, false), (1, false)]);
        assert_eq!(earlier(&versions, None), Ok("b".to_owned()));
        versions.returned_to(2);
        assert_eq!(earlier(&versions, None), Ok("a".to_owned()));
        // The version from which the return went is not the one before the next.
        put(&versions, "d");
        assert_eq!(earlier(&versions, None), Ok("b".to_owned()));
        assert_eq!(earlier(&versions, Some(3)), Ok("c".to_owned()));
        assert_eq!(earlier(&versions, Some(4)), Err("this configuration is in force".to_owned()));
        assert_eq!(earlier(&versions, Some(9)), Err("no configuration has the number 9".to_owned()));
        // Another process continues, with the same configuration or another one.
        let next = Versions::open(file);
        put(&next, "d");
        assert_eq!(numbers(&next), [(4, true), (3, false), (2, false), (1, false)]);
        assert!(next.file().is_some_and(|file| file.ends_with("versions.json")));
    }

    #[test]
    fn the_one_to_return_to_is_kept() {
        let versions = Versions::open(None);
        let put = |text: &str| versions.put_in_force(text, "now".to_owned(), None, 1);
        put("good");
        for bad in 0..15 {
            put(&format!("bad {bad}"));
            assert_eq!(versions.earlier(None).map(|one| one.text), Ok("good".to_owned()));
            versions.returned_to(1);
        }
    }

    #[test]
    fn their_number_and_their_bytes_are_bounded() {
        let versions = Versions::open(None);
        for number in 0..15 {
            versions.put_in_force(&number.to_string(), String::new(), None, 1);
        }
        assert_eq!(numbers(&versions).len(), KEPT_MAX);
        assert_eq!(versions.file(), None);
        for length in [BYTES_MAX / 2, BYTES_MAX / 2 + 1, BYTES_MAX + 1] {
            versions.put_in_force(&"x".repeat(length), String::new(), None, 1);
        }
        assert_eq!(numbers(&versions), [(18, true)]);
        assert!(versions.earlier(None).is_err());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("versions.json");
        fs::write(&file, "{").unwrap();
        let versions = Versions::open(Some(state_file(&file)));
        assert_eq!(versions.damage.as_deref(), Some("it is damaged"));
        versions.put_in_force("a", String::new(), None, 1);
        assert_eq!(numbers(&Versions::open(Some(state_file(&file)))), [(1, true)]);
        let other = StateFile { owner: "b".to_owned(), path: file.clone() };
        let other = Versions::open(Some(other));
        assert_eq!((numbers(&other), other.damage.as_deref()), (vec![], Some("it belongs to another address")));
        other.put_in_force("b", String::new(), None, 1);
        let ours = Versions::open(Some(state_file(&file)));
        assert!(ours.earlier(Some(1)).is_err() && ours.damage.is_some());
        let nowhere = Versions::open(Some(state_file(Path::new("/dev/null/versions.json"))));
        nowhere.put_in_force("a", String::new(), None, 1);
        assert_eq!((numbers(&nowhere), nowhere.file()), (vec![(1, true)], None));
    }
}
