//! Logs: text on a terminal, JSON elsewhere, written by a thread of their own through a bounded channel.
//!
//! A full channel drops lines and counts them; it never makes a request wait. What a stranger sent is
//! logged as a string field, which both formats write with control characters escaped.

use std::io::{self, IsTerminal};
use std::net::IpAddr;
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
}

/// Lines that may be on their way to standard error at once.
const LINES_MAX: usize = 16_384;

/// What access lines are filtered by: they are asked for by themselves, whatever the level.
const ACCESS_TARGET: &str = "access";

/// Starts logging to standard error. Fails if the process logs already.
pub fn start_logs(settings: &LogSettings) -> Result<LogGuard, tracing::subscriber::SetGlobalDefaultError> {
    let is_terminal = io::stderr().is_terminal();
    let (writer, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("weir-log")
        .finish(io::stderr());
    let guard = LogGuard { _worker: worker, errors: writer.error_counter() };
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
        self.errors.dropped_lines() as u64
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
