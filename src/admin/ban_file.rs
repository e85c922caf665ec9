//! The file of bans that operators set: a JSON object a line. Only its owner can read it, because keys may be secrets.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;

use super::key;
use super::times::{parse_rfc3339, rfc3339};
use crate::engine::gate::{BanTarget, Gate, KeyName, OperatorBan};
use crate::engine::store::snapshot::file;

/// The bans that outlive the process.
#[derive(Debug, Default)]
pub struct BanFile {
    path: Option<PathBuf>,
    /// Why the file could not be read at the start.
    damage: Option<String>,
    /// Whether the ids of keys outlive the process.
    keeps_ids: bool,
    /// Held from the change of a ban until it is written.
    pub(super) changing: Mutex<()>,
}

/// A ban as the file has it. It has `network`, or `limit` with `key` or `id`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BanRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<IpNet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Box<str>>,
    /// The texts of the key's parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    since: String,
    until: Option<String>,
    /// The replica of a fleet that set or lifted the ban.
    #[serde(skip_serializing_if = "is_default")]
    replica: u64,
    /// Whether the ban is lifted; other replicas may not know it yet.
    #[serde(skip_serializing_if = "is_default")]
    lifted: bool,
    /// The end of a longer ban that it replaced; other replicas may not know that yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_until: Option<String>,
    reason: Option<Box<str>>,
    token: Option<Box<str>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl BanFile {
    /// Reads the bans at `path`. A file that does not exist has no bans. A file that cannot be read is kept, and no bans
    /// are written over it. `keeps_ids`: the ids of keys outlive the process.
    pub fn open(path: Option<PathBuf>, keeps_ids: bool) -> (Self, Vec<OperatorBan>) {
        let read = path.as_deref().map(read).transpose();
        let (bans, damage) = match read {
            Ok(bans) => (bans.unwrap_or_default(), None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        (Self { path, damage, keeps_ids, changing: Mutex::default() }, bans)
    }

    /// Why a ban of this target ends with the process although the file has it.
    pub(super) fn reason_of_end(&self, target: &BanTarget) -> Option<String> {
        let ends = matches!(target, BanTarget::Hash(..)) && !self.keeps_ids;
        let reason = "the next process has other ids; ban the `key`, or set `[snapshot]` or `fleet.secret`";
        ends.then(|| reason.to_owned())
    }

    /// Holds all changes back until the guard is dropped. Blocks until a change is written.
    pub fn hold_changes(&self) -> MutexGuard<'_, ()> {
        self.changing.blocking_lock()
    }

    /// Logs why the file could not be read.
    pub fn log(&self) {
        if let (Some(path), Some(reason)) = (&self.path, &self.damage) {
            let file = path.display();
            tracing::error!(%file, reason, "the bans of operators cannot be read, so none is in force; correct or remove the file");
        }
    }

    /// Writes the bans again whenever another replica has changed one, until dropped.
    pub async fn follow(self: Arc<Self>, gate: Arc<Gate>) {
        loop {
            gate.bans_received().await;
            let _changing = self.changing.lock().await;
            let (file, bans) = (Arc::clone(&self), gate.all_operator_bans());
            let written = spawn_blocking(move || if file.path.is_some() { file.write(&bans) } else { Ok(()) }).await;
            if let Err(reason) = written.unwrap_or_else(|error| Err(error.to_string())) {
                tracing::warn!(reason, "a ban of another replica ends with the process");
            }
        }
    }

    /// Replaces the bans in the file.
    ///
    /// # Errors
    /// Why the bans end with the process.
    pub(super) fn write(&self, bans: &[OperatorBan]) -> Result<(), String> {
        let Some(path) = &self.path else { return Err("the configuration is not from a file".to_owned()) };
        if self.damage.is_some() && path.exists() {
            return Err(format!("`{}` was unreadable at the start; correct or remove it, and restart", path.display()));
        }
        let written = file::replace(path, |to| {
            bans.iter().try_for_each(|ban| {
                serde_json::to_writer(&mut *to, &BanRecord::of(ban))?;
                to.write_all(b"\n")
            })
        });
        written.map(|_| ()).map_err(|error: io::Error| format!("`{}` cannot be written: {error}", path.display()))
    }
}

fn read(path: &Path) -> Result<Vec<OperatorBan>, String> {
    // Opening a FIFO would block.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err("it is not a file".to_owned());
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let ban = |(index, line): (usize, &str)| {
        let record =
            serde_json::from_str::<BanRecord>(line).map_err(|error| format!("not a ban, at column {}", error.column()));
        record.and_then(BanRecord::ban).map_err(|reason| format!("line {}: {reason}", index + 1))
    };
    text.lines().enumerate().map(ban).collect()
}

impl BanRecord {
    fn of(ban: &OperatorBan) -> Self {
        let OperatorBan { target, until, since, replica, is_lifted: lifted, replaced_until, reason, token } =
            ban.clone();
        let record = match target {
            BanTarget::Network(network) => Self { network: Some(network), ..Self::default() },
            BanTarget::Key(limit, key) => Self { limit: Some(limit), key: Some(key), ..Self::default() },
            BanTarget::Hash(limit, key) => Self { limit: Some(limit), id: Some(key.id()), ..Self::default() },
        };
        let (since, until, replaced_until) = (rfc3339(since), until.map(rfc3339), replaced_until.map(rfc3339));
        Self { since, until, replica, lifted, replaced_until, reason, token, ..record }
    }

    fn ban(self) -> Result<OperatorBan, String> {
        let Self { network, limit, key, id, since, until, replica, lifted, replaced_until, reason, token } = self;
        let target = match (network, limit, key, id) {
            (Some(network), None, None, None) => BanTarget::Network(network),
            (None, Some(limit), Some(key), None) => BanTarget::Key(limit, key),
            (None, Some(limit), None, Some(id)) => match key::name_of_id(&id)? {
                KeyName::Hash(key) => BanTarget::Hash(limit, key),
                _ => return Err("id: is no id".to_owned()),
            },
            _ => return Err("expected `network`, or `limit` with `key` or `id`".to_owned()),
        };
        let instant = |text: &str| parse_rfc3339(text).ok_or_else(|| format!("`{text}` is no time"));
        let until = until.as_deref().map(instant).transpose()?;
        let replaced_until = replaced_until.as_deref().map(instant).transpose()?;
        let (since, is_lifted) = (instant(&since)?, lifted);
        Ok(OperatorBan { target, until, since, replica, is_lifted, replaced_until, reason, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::engine::limit::Key;

    #[test]
    fn bans_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bans");
        let since = Timestamp::from_ns(1_700_000_000_000_000_000);
        let (reason, replica) = (Some("spam".into()), 7);
        let ban = |target, until: Option<Timestamp>| {
            let is_lifted = until.is_some();
            let replaced_until = until.map(|until| until.saturating_add_ns(1_000_000));
            let reason = reason.clone();
            OperatorBan { target, until, since, replica, is_lifted, replaced_until, reason, token: None }
        };
        let bans = [
            ban(BanTarget::Network("192.0.2.0/24".parse().unwrap()), None),
            ban(BanTarget::Key("l".into(), vec!["a|b".into(), "é\n".into()]), Some(since.saturating_add_ns(1_000_000))),
            ban(BanTarget::Hash("l".into(), Key::of_hash(8, 9)), None),
        ];
        let (file, none) = BanFile::open(Some(path.clone()), true);
        assert!(none.is_empty());
        file.write(&bans).unwrap();
        assert_eq!(BanFile::open(Some(path.clone()), true).1, bans);
        for text in
            ["{", "{}", "{\"network\":\"192.0.2.0/24\"}", "{\"limit\":\"l\",\"since\":\"2026-11-22T00:00:00Z\"}", "\n"]
        {
            std::fs::write(&path, text).unwrap();
            let (file, bans) = BanFile::open(Some(path.clone()), true);
            assert!(bans.is_empty() && file.write(&[]).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert!(BanFile::default().write(&[]).is_err());
    }

    #[test]
    fn a_fifo_is_left_alone_and_no_secret_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, path) = (folder.path().join("fifo"), folder.path().join("bans"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let (file, _) = BanFile::open(Some(fifo), true);
        assert_eq!(file.damage.as_deref(), Some("it is not a file"));
        assert!(file.write(&[]).is_err());
        for line in ["{\"hunter2\":1}", "{\"until\":{\"hunter2\":1}}", "hunter2"] {
            std::fs::write(&path, line).unwrap();
            let damage = BanFile::open(Some(path.clone()), true).0.damage.unwrap();
            assert!(damage.starts_with("line 1: not a ban, at column ") && !damage.contains("hunter2"), "{damage}");
        }
    }
}
