//! The log: text on a terminal, JSON elsewhere. The access log may have a file of its own. A separate thread writes each
//! of them, behind a bounded buffer.
//!
//! Text from clients is logged as a string field. All formats escape control characters in such fields.

mod append;
mod file;
mod queue;

use std::borrow::Cow;
use std::cell::RefCell;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use self::file::LogFile;
use self::queue::LineQueue;
use super::request::{LineFormat, LineTimes, RequestRecord};
use crate::base::visible::visible;

pub use append::{is_fifo, open_to_append};

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The format of a line.
    pub format: LogFormat,
    /// The least severe level that is logged.
    pub level: tracing::Level,
    /// The requests that are logged.
    pub access: AccessSettings,
    /// The format of their lines; none for that of the other lines, or JSON in a file.
    pub access_format: Option<LineFormat>,
    /// The file of their lines; none for standard error.
    pub access_file: Option<PathBuf>,
}

/// The requests that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// All, some or none.
    pub requests: AccessLog,
    /// One of so many forwarded requests is logged, chosen at random. The others are always logged.
    pub sample: u64,
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

/// Keeps the logs open. Its drop writes the lines that wait.
pub struct LogGuard {
    queue: Arc<LineQueue>,
    /// The lines of the access log, if it has a file of its own.
    access: Option<Arc<LineQueue>>,
}

/// Writes lines to the queue. People read them, so they have no marks of direction.
struct QueueWriter(Arc<LineQueue>);

impl Write for QueueWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line).map(visible) {
            Ok(Cow::Owned(shown)) => self.0.push(shown.as_bytes()),
            _ => self.0.push(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log on standard error, and the access log.
///
/// # Errors
/// The log was started before, its thread cannot be started, or its file cannot be opened.
pub fn start_logs(settings: &LogSettings) -> Result<LogGuard, Box<dyn Error>> {
    let is_terminal = io::stderr().is_terminal();
    let file = settings.access_file.as_ref().map(|path| {
        let file = LogFile::open(path);
        file.map_err(|error| format!("`log.access_file`: cannot open {}: {error}", path.display()))
    });
    let access = file.transpose()?.map(LineQueue::start).transpose()?;
    let queue = LineQueue::start(io::stderr())?;
    let for_lines = Arc::clone(&queue);
    let (filter, level) = reload::Layer::new(targets(settings.level));
    let writer = move || QueueWriter(Arc::clone(&for_lines));
    let lines = fmt::layer().with_writer(writer).with_ansi(is_terminal).with_target(false);
    let as_text = match settings.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    if as_text {
        tracing::subscriber::set_global_default(registry().with(filter).with(lines))?;
    } else {
        tracing::subscriber::set_global_default(registry().with(filter).with(lines.json().flatten_event(true)))?;
    }
    // The log of a process is started once.
    let _ = LEVEL.set(level);
    let usual = if as_text && access.is_none() { LineFormat::Text } else { LineFormat::Json };
    let format = settings.access_format.clone().unwrap_or(usual);
    write_access_to(access.as_ref().unwrap_or(&queue), format);
    Ok(LogGuard { queue, access })
}

/// The level of the log of the process. Each place in the code keeps whether it logs, until the level changes.
static LEVEL: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Changes the least severe level that is logged, if the log was started.
pub fn set_log_level(level: tracing::Level) {
    if let Some(handle) = LEVEL.get() {
        // The subscriber lives as long as the process.
        let _ = handle.reload(targets(level));
    }
}

/// Events of libraries are left out: at the lower levels they contain text from clients.
fn targets(level: tracing::Level) -> Targets {
    Targets::new().with_target(env!("CARGO_CRATE_NAME"), LevelFilter::from_level(level))
}

impl LogGuard {
    /// The number of lines lost so far.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped() + self.access.as_ref().map_or(0, |access| access.dropped())
    }

    /// Has the file of the access log opened again if it was renamed or removed. Returns whether there is one.
    pub fn reopen(&self) -> bool {
        if let Some(access) = &self.access {
            access.reopen();
        }
        self.access.is_some()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some(access) = &self.access {
            access.close();
        }
        self.queue.close();
    }
}

/// The access log of the process, once its logs are started. Its lines are written without the subscriber, which costs
/// several times as much as the rest of the request's record.
static ACCESS: OnceLock<Access> = OnceLock::new();

struct Access {
    queue: Arc<LineQueue>,
    format: LineFormat,
}

/// Has access lines written to `queue` in this format.
fn write_access_to(queue: &Arc<LineQueue>, format: LineFormat) {
    // The log of a process is started once.
    let _ = ACCESS.set(Access { queue: Arc::clone(queue), format });
}

thread_local! {
    static LINE: RefCell<(LineTimes, Vec<u8>)> = const { RefCell::new((LineTimes::new(), Vec::new())) };
}

/// Whether lines have keys, identities or plans.
pub fn access_log_names_gate() -> bool {
    ACCESS.get().is_some_and(|access| access.format.names_gate())
}

/// Writes the line of a request.
pub fn log_request(request: &RequestRecord) {
    let Some(Access { queue, format }) = ACCESS.get() else { return };
    LINE.with_borrow_mut(|(times, line)| {
        line.clear();
        format.write(line, times, request);
        queue.push(line);
    });
}
