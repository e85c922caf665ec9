//! Logs: text on a terminal, JSON elsewhere, written by a thread of their own through a bounded channel.
//!
//! Lines that find the channel full, or that cannot be written, are dropped and counted; no request waits for
//! them. What a stranger sent is logged as a string field, which both formats write with control characters escaped.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{fmt, registry};

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How a line is written.
    pub format: LogFormat,
    /// The least severe level that is written.
    pub level: tracing::Level,
    /// Which requests get a line.
    pub access: AccessLog,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Which requests get a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// All.
    All,
    /// Those that Weir did not forward.
    Refused,
}

/// Keeps the writing thread alive; on drop what is in the channel is written.
pub struct LogGuard {
    _worker: WorkerGuard,
    errors: ErrorCounter,
    unwritten: Arc<AtomicU64>,
}

/// Writes lines, each by one call. Counts those that cannot be written, as on a full disk.
struct LineWriter<W> {
    to: W,
    unwritten: Arc<AtomicU64>,
    /// Whether the last line was written in part.
    is_cut: bool,
}

impl<W: Write> LineWriter<W> {
    fn write_whole(&mut self, mut line: &[u8]) -> io::Result<()> {
        let length = line.len();
        while !line.is_empty() {
            match self.to.write(line) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => line = line.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_cut |= line.len() < length;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for LineWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let ended = if self.is_cut { self.write_whole(b"\n") } else { Ok(()) };
        if ended.is_ok() {
            self.is_cut = false;
        }
        if ended.and_then(|()| self.write_whole(line)).is_err() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.to.flush(); // what it had to write has been counted
        Ok(())
    }
}

/// Lines that may be on their way to standard error at once.
const LINES_MAX: usize = 16_384;

/// What access lines are filtered by: they are asked for by themselves, whatever the level.
const ACCESS_TARGET: &str = "access";

/// Starts logging to standard error. Fails if the process logs already.
pub fn start_logs(settings: &LogSettings) -> Result<LogGuard, tracing::subscriber::SetGlobalDefaultError> {
    let is_terminal = io::stderr().is_terminal();
    let unwritten = Arc::new(AtomicU64::new(0));
    let (writer, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("weir-log")
        .finish(LineWriter { to: io::stderr(), unwritten: Arc::clone(&unwritten), is_cut: false });
    let guard = LogGuard { _worker: worker, errors: writer.error_counter(), unwritten };
    // What libraries say is left out: at the lower levels they repeat what strangers sent.
    let filter = Targets::new()
        .with_target(env!("CARGO_CRATE_NAME"), LevelFilter::from_level(settings.level))
        .with_target(ACCESS_TARGET, LevelFilter::INFO);
    let lines = fmt::layer().with_writer(writer).with_ansi(is_terminal).with_target(false);
    let as_text = match settings.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    if as_text {
        tracing::subscriber::set_global_default(registry().with(lines).with(filter))?;
    } else {
        tracing::subscriber::set_global_default(registry().with(lines.json().flatten_event(true)).with(filter))?;
    }
    Ok(guard)
}

impl LogGuard {
    /// Lines lost so far.
    pub fn dropped(&self) -> u64 {
        self.errors.dropped_lines() as u64 + self.unwritten.load(Ordering::Relaxed)
    }
}

/// One request in the access log. Never the query and never a header: both may hold secrets.
#[derive(Clone, Copy, Debug)]
pub struct AccessLine<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// The method.
    pub method: &'a str,
    /// The host, as matched.
    pub host: &'a str,
    /// The path, normalised; if it could not be, as sent.
    pub path: &'a str,
    /// The status of the answer.
    pub status: u16,
    /// What became of it.
    pub verdict: &'static str,
    /// The limit that held or refused it, if any.
    pub limit: &'a str,
    /// From its parsed head to the head of its answer.
    pub duration: Duration,
    /// How much of that it was held.
    pub held: Duration,
}

impl AccessLine<'_> {
    /// Writes the line.
    pub fn write(&self) {
        tracing::info!(
            target: ACCESS_TARGET,
            client = %self.client,
            method = self.method,
            host = self.host,
            path = self.path,
            status = self.status,
            verdict = self.verdict,
            limit = self.limit,
            duration_us = u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX),
            held_us = u64::try_from(self.held.as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A disk with so much room.
    struct BoundedWriter {
        written: Vec<u8>,
        room: usize,
    }

    impl Write for BoundedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_find_no_room_are_counted() {
        let unwritten = Arc::new(AtomicU64::new(0));
        let to = BoundedWriter { written: Vec::new(), room: 9 };
        let mut lines = LineWriter { to, unwritten: Arc::clone(&unwritten), is_cut: false };
        for line in ["first\n", "second\n", "third\n"] {
            lines.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(unwritten.load(Ordering::Relaxed), 2);
        lines.to.room = 100;
        lines.write_all(b"fourth\n").unwrap();
        lines.write_all(b"fifth\n").unwrap();
        assert_eq!(String::from_utf8_lossy(&lines.to.written), "first\nsec\nfourth\nfifth\n");
        assert_eq!(unwritten.load(Ordering::Relaxed), 2);
    }
}
