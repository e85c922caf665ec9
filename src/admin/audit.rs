//! One line for each change that an operator makes: to the log, and to the file of `admin.audit`.
//!
//! A line has no secret: keys are shown as everywhere in the API.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use serde::Serialize;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::access::{Access, Operator};
use super::times::rfc3339;
use crate::base::telemetry::{is_fifo, open_to_append};
use crate::base::time::{instant_now, system_now};
use crate::base::visible::visible;

/// Most bytes that [`last_lines`] reads.
const LAST_BYTES_MAX: u64 = 128 * 1024;
/// Most bytes of a part of a key. A longer line would hide all others from [`last_lines`].
const PART_BYTES_MAX: usize = 1024;

/// For so long lines wait for the reader of a full FIFO.
const READER_WAIT: Duration = Duration::from_secs(1);

/// The kinds of changes.
pub(super) const ACTIONS: [&str; 16] = [
    "override",
    "plan",
    "reset",
    "charge",
    "give_back",
    "ban",
    "lift_ban",
    "lift_bans",
    "new_key",
    "rotate_key",
    "revoke_key",
    "drain",
    "undrain",
    "weight",
    "reload",
    "rollback",
];

/// One change.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Audited {
    /// The kind of the change, such as `ban`.
    pub(super) action: &'static str,
    /// The limit that it concerns; `None` if it concerns all limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<String>,
    /// The key, the address or the network, without secrets.
    pub(super) target: Value,
    /// The state before the change.
    pub(super) before: Value,
    /// The state after the change.
    pub(super) after: Value,
    /// The reason that the operator gave.
    pub(super) reason: Option<String>,
    /// `unknown` if it may not have been made; `None` if it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<&'static str>,
}

/// A change with its operator, as the file has it.
#[derive(Serialize)]
struct Record<'a> {
    at: String,
    token: Option<&'a str>,
    address: String,
    #[serde(flatten)]
    change: &'a Audited,
}

/// Writes a line for each of `changes`, which `operator`, or Weir itself, made. Errors of the file are logged: the changes
/// are made already.
pub(super) async fn record(
    (access, file): (&Access, &Arc<AuditFile>),
    operator: Option<&Operator>,
    mut changes: Vec<Audited>,
) {
    let at = rfc3339(system_now());
    let token = operator.and_then(|operator| operator.token.as_deref());
    let address = match operator {
        Some(Operator { address: Some(address), .. }) => address.to_string(),
        Some(_) => "unix".to_owned(),
        None => "weir".to_owned(),
    };
    let mut lines = Vec::new();
    for change in &mut changes {
        cut(&mut change.target);
        let Audited { action, limit, target, before, after, reason, outcome } = &*change;
        let (limit, reason) = (limit.as_deref(), reason.as_deref());
        tracing::info!(
            token, address, action, limit, %target, %before, %after, reason, outcome,
            "{}", if operator.is_some() { "changed by an operator" } else { "ended by itself" }
        );
        if access.audit.is_some() {
            let line = Record { at: at.clone(), token, address: address.clone(), change };
            // Maps have text keys, so this cannot fail.
            if let Ok(line) = serde_json::to_string(&line) {
                lines.extend_from_slice(visible(&line).as_bytes());
                lines.push(b'\n');
            }
        }
    }
    let Some(path) = access.audit.clone().filter(|_| !lines.is_empty()) else { return };
    let (shown, file) = (path.display().to_string(), Arc::clone(file));
    let appended = spawn_blocking(move || file.append(&path, &lines)).await;
    if let Err(error) = appended.map_err(io::Error::other).flatten() {
        tracing::error!(file = shown, %error, "the audit log cannot be written");
    }
}

/// Cuts long texts of a target, and marks where.
fn cut(target: &mut Value) {
    match target {
        Value::String(text) if text.len() > PART_BYTES_MAX => {
            text.truncate(text.floor_char_boundary(PART_BYTES_MAX));
            text.push('…');
        }
        Value::Object(parts) => parts.values_mut().for_each(cut),
        _ => {}
    }
}

/// The whole lines in the last 128 KiB of the file; empty if there is no file yet.
pub(super) fn last_lines(path: &Path) -> io::Result<String> {
    if is_fifo(path) {
        return Err(io::Error::other("it is a FIFO"));
    }
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let from = file.metadata()?.len().saturating_sub(LAST_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LAST_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = if from == 0 { Some(&*text) } else { text.split_once('\n').map(|(_, rest)| rest) };
    Ok(whole.unwrap_or_default().to_owned())
}

/// The file of `admin.audit`, which stays open.
#[derive(Debug, Default)]
pub struct AuditFile {
    /// Locked while lines are written. No request of a client waits for it.
    open: Mutex<Option<OpenFile>>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: File,
    /// The device and the number of the file.
    id: (u64, u64),
    /// Whether the last line was written only in part.
    is_cut: bool,
    /// Whether nobody has read a full FIFO for [`READER_WAIT`].
    is_stuck: bool,
}

impl AuditFile {
    /// Appends whole lines to the file at `path`. Opens it anew if it was renamed or removed, so that it can be rotated.
    fn append(&self, path: &Path, lines: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let found = fs::metadata(path).ok().map(|found| id_of(&found));
        let known = open.take().filter(|known| known.path == *path && Some(known.id) == found);
        let mut known = known.map_or_else(|| OpenFile::open(path), Ok)?;
        let written = known.append(lines);
        // Closing a full FIFO would lose its lines.
        if written.as_ref().map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |()| true) {
            *open = Some(known);
        }
        written
    }
}

impl OpenFile {
    /// Opens the file at `path`. Only its owner can read a file that this creates.
    fn open(path: &Path) -> io::Result<Self> {
        let file = open_to_append(path, 0o600)?;
        // No operator waits long for the reader of a FIFO.
        fcntl_setfl(&file, OFlags::APPEND | OFlags::NONBLOCK)?;
        let metadata = file.metadata()?;
        let (is_cut, id) = (is_cut(path, metadata.len()), id_of(&metadata));
        Ok(Self { path: path.to_owned(), file, id, is_cut, is_stuck: false })
    }

    /// Appends whole lines. Waits for the reader of a full FIFO, unless it was waited for in vain before.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let until = instant_now() + READER_WAIT;
        if self.is_cut {
            self.write(b"\n", until)?;
        }
        self.write(lines, until)
    }

    fn write(&mut self, mut rest: &[u8], until: Instant) -> io::Result<()> {
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let (done, left) = rest.split_at(count.min(rest.len()));
                    (self.is_cut, self.is_stuck) = (!done.ends_with(b"\n"), false);
                    rest = left;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(instant_now());
                    if self.is_stuck || left.is_zero() {
                        self.is_stuck = true;
                        return Err(error);
                    }
                    let timeout = Timespec::try_from(left).ok();
                    // A signal ends the wait, and the next write finds out.
                    let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], timeout.as_ref());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether the last line of a file of `len` bytes has no end, as after a write to a full disk.
fn is_cut(path: &Path, len: u64) -> bool {
    let mut last = [0];
    let read = |end| File::open(path).and_then(|file| file.read_at(&mut last, end));
    len.checked_sub(1).map(read).is_some_and(|read| read.is_ok_and(|count| count == 1)) && last != *b"\n"
}

fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Command;
    use std::thread;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// A FIFO in `folder`.
    fn fifo(folder: &TempDir) -> PathBuf {
        let path = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn long_parts_of_a_target_are_cut() {
        let [fits, long, wide] = ["x".repeat(1024), "x".repeat(4096), "é".repeat(513) + "x"];
        for (text, cut_text) in [(&fits, fits.clone()), (&long, "x".repeat(1024) + "…"), (&wide, "é".repeat(512) + "…")]
        {
            let mut target = json!({ "key": text });
            cut(&mut target);
            assert_eq!(target, json!({ "key": cut_text }));
        }
    }

    #[test]
    fn the_last_lines_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        assert_eq!(last_lines(&path).unwrap(), "");
        let file = AuditFile::default();
        file.append(&path, b"first\nsecond\n").unwrap();
        assert_eq!(last_lines(&path).unwrap(), "first\nsecond\n");
        let long = "x".repeat(1000) + "\n";
        for _ in 0..200 {
            file.append(&path, long.as_bytes()).unwrap();
        }
        let last = last_lines(&path).unwrap();
        assert_eq!((last.lines().count(), last.len() % 1001), (130, 0));
        assert!(last_lines(folder.path()).is_err());
    }

    #[test]
    fn a_line_that_was_cut_ends_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, "1\ncut").unwrap();
        AuditFile::default().append(&path, b"2\n").unwrap();
        AuditFile::default().append(&path, b"3\n").unwrap();
        assert_eq!(last_lines(&path).unwrap(), "1\ncut\n2\n3\n");
    }

    #[test]
    fn a_fifo_keeps_lines_for_a_later_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let file = AuditFile::default();
        file.append(&path, b"1\n").unwrap();
        assert_eq!(last_lines(&path).unwrap_err().to_string(), "it is a FIFO");
        let long = "x".repeat(1000) + "\n";
        while file.append(&path, long.as_bytes()).is_ok() {}
        let mut first = [0; 2];
        File::open(&path).unwrap().read_exact(&mut first).unwrap();
        assert_eq!(first, *b"1\n");
    }

    #[test]
    fn a_fifo_takes_more_than_fits_as_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let file = AuditFile::default();
        file.append(&path, b"first\n").unwrap();
        let reader = File::open(&path).unwrap();
        let reader = thread::spawn(move || {
            let lines = BufReader::new(reader).lines().map(Result::unwrap);
            lines.take_while(|line| line != "last").collect::<Vec<_>>()
        });
        let lines: Vec<_> = (0..1024).map(|number| format!("{number:0>1000}")).collect();
        file.append(&path, (lines.join("\n") + "\n").as_bytes()).unwrap();
        file.append(&path, b"last\n").unwrap();
        assert_eq!(reader.join().unwrap(), [&["first".to_owned()], &*lines].concat());
    }

    #[test]
    fn a_line_that_a_fifo_cuts_ends_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let file = AuditFile::default();
        let long = "x".repeat(1024 * 1024) + "\n";
        for _ in 0..2 {
            assert_eq!(file.append(&path, long.as_bytes()).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        let mut reader = BufReader::new(File::open(&path).unwrap());
        reader.read_exact(&mut [0; 10_000]).unwrap();
        file.append(&path, b"last\n").unwrap();
        let mut lines = reader.lines().map(Result::unwrap);
        assert!(lines.next().is_some_and(|cut| cut.bytes().all(|byte| byte == b'x')));
        assert!(lines.next().is_some_and(|line| line == "last"));
    }

    #[test]
    fn a_rotated_file_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old, other] = ["audit.jsonl", "audit.jsonl.1", "other.jsonl"].map(|name| folder.path().join(name));
        let file = AuditFile::default();
        file.append(&path, b"1\n").unwrap();
        fs::rename(&path, &old).unwrap();
        file.append(&path, b"2\n").unwrap();
        file.append(&path, b"3\n").unwrap();
        // Truncated in its place, as by `copytruncate`.
        fs::write(&path, "").unwrap();
        file.append(&path, b"4\n").unwrap();
        file.append(&other, b"5\n").unwrap();
        fs::remove_file(&other).unwrap();
        file.append(&other, b"6\n").unwrap();
        assert!(file.append(folder.path(), b"7\n").is_err());
        file.append(&other, b"8\n").unwrap();
        assert_eq!([&old, &path, &other].map(|path| last_lines(path).unwrap()), ["1\n", "4\n", "6\n8\n"]);
    }
}
