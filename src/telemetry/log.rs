//! The log: text on a terminal, JSON elsewhere. A separate thread writes it, behind a bounded channel.
//!
//! If the channel is full or a line cannot be written, the line is dropped and counted; no request waits for the log.
//! Text from clients is logged as a string field. Both formats escape control characters in such fields.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{fmt, registry};

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The format of a line.
    pub format: LogFormat,
    /// The least severe level that is logged.
    pub level: tracing::Level,
    /// The requests that are logged.
    pub access: AccessLog,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// The requests that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// All.
    All,
    /// Requests that Weir did not forward.
    Refused,
}

/// Keeps the log thread alive. Its drop writes the lines that are in the channel.
pub struct LogGuard {
    _worker: WorkerGuard,
    errors: ErrorCounter,
    unwritten: Arc<AtomicU64>,
}

/// Writes each line by one call, and counts lines that cannot be written, for example on a full disk.
struct LineWriter<W> {
    to: W,
    unwritten: Arc<AtomicU64>,
    /// Whether the last line was written only in part.
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
        let _ = self.to.flush(); // `write` has counted lost lines
        Ok(())
    }
}

/// The capacity of the channel, in lines.
const LINES_MAX: usize = 16_384;

/// The target of access lines, which are enabled by `AccessLog` and not by the level.
const ACCESS_TARGET: &str = "access";

/// Starts the log on standard error.
pub fn start_logs(settings: &LogSettings) -> Result<LogGuard, tracing::subscriber::SetGlobalDefaultError> {
    let is_terminal = io::stderr().is_terminal();
    let unwritten = Arc::new(AtomicU64::new(0));
    let (writer, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("weir-log")
        .finish(LineWriter { to: io::stderr(), unwritten: Arc::clone(&unwritten), is_cut: false });
    let guard = LogGuard { _worker: worker, errors: writer.error_counter(), unwritten };
    // Events of libraries are left out: at the lower levels they contain text from clients.
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
    /// The number of lines lost so far.
    pub fn dropped(&self) -> u64 {
        self.errors.dropped_lines() as u64 + self.unwritten.load(Ordering::Relaxed)
    }
}

/// The access log line of one request. It has no query and no header, because both may contain secrets.
#[derive(Clone, Copy, Debug)]
pub struct AccessLine<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// The method.
    pub method: &'a str,
    /// The host, in the form that limits match.
    pub host: &'a str,
    /// The normalised path; the path as sent if it cannot be normalised.
    pub path: &'a str,
    /// The status of the response.
    pub status: u16,
    /// The outcome of the request.
    pub verdict: &'static str,
    /// The limit that held or refused the request; empty if no limit did.
    pub limit: &'a str,
    /// The time from the parsed request head to the response head.
    pub duration: Duration,
    /// The part of `duration` during which the request was held.
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
mod tests {
    use super::*;

    /// A writer that fails when its capacity is used up.
    struct BoundedWriter {
        written: Vec<u8>,
        capacity: usize,
    }

    impl Write for BoundedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.capacity == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(self.capacity);
            self.capacity -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let unwritten = Arc::new(AtomicU64::new(0));
        let to = BoundedWriter { written: Vec::new(), capacity: 9 };
        let mut lines = LineWriter { to, unwritten: Arc::clone(&unwritten), is_cut: false };
        for line in ["first\n", "second\n", "third\n"] {
            lines.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(unwritten.load(Ordering::Relaxed), 2);
        lines.to.capacity = 100;
        lines.write_all(b"fourth\n").unwrap();
        lines.write_all(b"fifth\n").unwrap();
        assert_eq!(String::from_utf8_lossy(&lines.to.written), "first\nsec\nfourth\nfifth\n");
        assert_eq!(unwritten.load(Ordering::Relaxed), 2);
    }
}
