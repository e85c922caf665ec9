//! The file of bans that operators set: a JSON object a line. Only its owner can read it, because keys may be secrets.
//!
//! Its instants are dates of the system's clock, which may have been set since this process began to count time.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::key;
use super::times::{parse_rfc3339, rfc3339};
use crate::base::time::{STEP_NS_MIN, Timestamp};
use crate::engine::gate::{BanTarget, Gate, KeyName, OperatorBan};
use crate::engine::store::snapshot::file;

/// The interval at which it is asked whether the system's clock was set.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

    /// Writes the bans again whenever another replica has changed one, or the system's clock was set, until dropped.
    pub async fn follow(self: Arc<Self>, gate: Arc<Gate>) {
        let mut written_ns = gate.clock().set_since_start();
        loop {
            let has_received = timeout(LOOK_EVERY, gate.bans_received()).await.is_ok();
            let set_ns = gate.clock().set_since_start();
            let was_set = set_ns.abs_diff(written_ns) >= STEP_NS_MIN && !gate.all_operator_bans().is_empty();
            if self.path.is_none() || !has_received && !was_set {
                continue;
            }
            written_ns = set_ns;
            let _changing = self.changing.lock().await;
            let (file, bans) = (Arc::clone(&self), gate.all_operator_bans());
            let written = spawn_blocking(move || file.write(&bans, set_ns)).await;
            if let Err(reason) = written.unwrap_or_else(|error| Err(error.to_string())) {
                tracing::warn!(reason, "changes of bans end with the process");
            }
        }
    }

    /// Replaces the bans in the file. The system's clock was set by `set_ns` nanoseconds since that of the bans began.
    ///
    /// # Errors
    /// Why the bans end with the process.
    pub(super) fn write(&self, bans: &[OperatorBan], set_ns: i64) -> Result<(), String> {
        let Some(path) = &self.path else { return Err("the configuration is not from a file".to_owned()) };
        if self.damage.is_some() && path.exists() {
            return Err(format!("`{}` was unreadable at the start; correct or remove it, and restart", path.display()));
        }
        let written = file::replace(path, |to| {
            bans.iter().try_for_each(|ban| {
                serde_json::to_writer(&mut *to, &BanRecord::of(ban, set_ns))?;
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
    fn of(ban: &OperatorBan, set_ns: i64) -> Self {
        let OperatorBan { target, until, since, replica, is_lifted: lifted, replaced_until, reason, token } =
            ban.clone();
        let record = match target {
            BanTarget::Network(network) => Self { network: Some(network), ..Self::default() },
            BanTarget::Key(limit, key) => Self { limit: Some(limit), key: Some(key), ..Self::default() },
            BanTarget::Hash(limit, key) => Self { limit: Some(limit), id: Some(key.id()), ..Self::default() },
        };
        let date = |at: Timestamp| rfc3339(at.moved(set_ns));
        // Replicas know a change by its instant and its replica.
        let since = if replica == 0 { date(since) } else { rfc3339(since) };
        let (until, replaced_until) = (until.map(date), replaced_until.map(date));
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
    use crate::base::telemetry::Metrics;
    use crate::base::time::{Clock, system_now};
    use crate::engine::gate::HoldCaps;
    use crate::engine::limit::Key;
    use crate::engine::policy::Policy;
    use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
    use crate::engine::store::Usage;

    const HOUR_NS: u64 = 3600 * 1_000_000_000;

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
        file.write(&bans, 0).unwrap();
        assert_eq!(BanFile::open(Some(path.clone()), true).1, bans);
        for text in
            ["{", "{}", "{\"network\":\"192.0.2.0/24\"}", "{\"limit\":\"l\",\"since\":\"2026-11-22T00:00:00Z\"}", "\n"]
        {
            std::fs::write(&path, text).unwrap();
            let (file, bans) = BanFile::open(Some(path.clone()), true);
            assert!(bans.is_empty() && file.write(&[], 0).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert!(BanFile::default().write(&[], 0).is_err());
    }

    /// A ban of a network for seven hours from now.
    fn ban_of_7h(clock: Clock, replica: u64) -> OperatorBan {
        let (since, target) = (clock.now(), BanTarget::Network("192.0.2.0/24".parse().unwrap()));
        let until = Some(since.saturating_add_ns(7 * HOUR_NS));
        let (replaced_until, is_lifted) = (until.map(|until| until.saturating_add_ns(HOUR_NS)), false);
        OperatorBan { target, until, since, replica, is_lifted, replaced_until, reason: None, token: None }
    }

    /// The rest of the ban in the file, in minutes.
    fn left_min(path: &Path) -> Option<u64> {
        let bans = BanFile::open(Some(path.to_owned()), true).1;
        Some(bans.first()?.until?.ns_since(system_now()).div_ceil(60 * 1_000_000_000))
    }

    #[test]
    fn the_file_has_dates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bans");
        let (file, _) = BanFile::open(Some(path.clone()), true);
        let date = system_now();
        for started in [date.saturating_sub_ns(3 * HOUR_NS), date.saturating_add_ns(6 * HOUR_NS), date] {
            let clock = Clock::start_at(started);
            let bans = [0, 7].map(|replica| ban_of_7h(clock, replica));
            file.write(&bans, clock.set_since_start()).unwrap();
            let read = BanFile::open(Some(path.clone()), true).1;
            let row = format!("{started:?}");
            assert_eq!(left_min(&path), Some(7 * 60), "{row}");
            let left = |ban: &OperatorBan| ban.replaced_until?.ns_since(ban.until?).checked_div(HOUR_NS);
            assert_eq!(left(&read[0]), Some(1), "{row}");
            assert_eq!(read[0].until.unwrap().ns_since(read[0].since), 7 * HOUR_NS, "{row}");
            // Replicas know a change by its instant.
            assert!(read[1].since.ns_since(bans[1].since) + bans[1].since.ns_since(read[1].since) < 1_000_000, "{row}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_follows_the_clock_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bans");
        let (file, _) = BanFile::open(Some(path.clone()), true);
        let (clock, metrics) = (Clock::start(), Arc::new(Metrics::new("", "").unwrap()));
        let gate = Arc::new(Gate::new(clock, [7; 16], metrics));
        let (trusted, header, prefixes) = (Vec::new(), AddressHeader::XForwardedFor, Prefixes::default());
        let policy = Policy::new(Vec::new(), Vec::new(), ClientIpRules { trusted, header, prefixes });
        let caps = HoldCaps { all: Usage::default(), per_client: Usage::default() };
        let live = gate.install(policy, caps, 0);
        gate.set_operator_bans(&live, vec![ban_of_7h(clock, 0)]);
        file.write(&gate.all_operator_bans(), clock.set_since_start()).unwrap();
        let following = tokio::spawn(Arc::new(file).follow(Arc::clone(&gate)));
        tokio::task::yield_now().await;
        assert_eq!(left_min(&path), Some(7 * 60));
        // The time of tokio passes, and that of the system does not: it is set back.
        tokio::time::advance(Duration::from_hours(6)).await;
        while left_min(&path) == Some(7 * 60) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(left_min(&path).is_some_and(|left| (50..=60).contains(&left)), "{:?}", left_min(&path));
        following.abort();
    }

    #[test]
    fn a_fifo_is_left_alone_and_no_secret_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, path) = (folder.path().join("fifo"), folder.path().join("bans"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let (file, _) = BanFile::open(Some(fifo), true);
        assert_eq!(file.damage.as_deref(), Some("it is not a file"));
        assert!(file.write(&[], 0).is_err());
        for line in ["{\"hunter2\":1}", "{\"until\":{\"hunter2\":1}}", "hunter2"] {
            std::fs::write(&path, line).unwrap();
            let damage = BanFile::open(Some(path.clone()), true).0.damage.unwrap();
            assert!(damage.starts_with("line 1: not a ban, at column ") && !damage.contains("hunter2"), "{damage}");
        }
    }
}
