//! The log: text on a terminal, JSON elsewhere. A separate thread writes it, behind a bounded buffer.
//!
//! Text from clients is logged as a string field. Both formats escape control characters in such fields.

mod access;
mod queue;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{fmt, registry};

pub use self::access::AccessLine;
use self::access::{ACCESS_TARGET, write_json_to};
use self::queue::LineQueue;

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

/// Keeps the log open. Its drop writes the lines that wait.
pub struct LogGuard {
    queue: Arc<LineQueue>,
}

/// Writes lines to the queue.
struct QueueWriter(Arc<LineQueue>);

impl Write for QueueWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log on standard error.
///
/// # Errors
/// The log was started before, or its thread cannot be started.
pub fn start_logs(settings: &LogSettings) -> Result<LogGuard, Box<dyn Error>> {
    let is_terminal = io::stderr().is_terminal();
    let queue = LineQueue::start(io::stderr())?;
    let for_lines = Arc::clone(&queue);
    // Events of libraries are left out: at the lower levels they contain text from clients.
    let filter = Targets::new()
        .with_target(env!("CARGO_CRATE_NAME"), LevelFilter::from_level(settings.level))
        .with_target(ACCESS_TARGET, LevelFilter::INFO);
    let writer = move || QueueWriter(Arc::clone(&for_lines));
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
        write_json_to(&queue);
    }
    Ok(LogGuard { queue })
}

impl LogGuard {
    /// The number of lines lost so far.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.queue.close();
    }
}
