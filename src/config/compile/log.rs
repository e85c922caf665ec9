//! `[log]`: the format, the level and the access log.

use crate::config::reader::Table;
use crate::telemetry::{AccessLog, LogFormat, LogSettings};

pub(super) fn log(table: &Table<'_>) -> Option<LogSettings> {
    let formats = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", tracing::Level::ERROR),
        ("warn", tracing::Level::WARN),
        ("info", tracing::Level::INFO),
        ("debug", tracing::Level::DEBUG),
        ("trace", tracing::Level::TRACE),
    ];
    let accesses = [("off", AccessLog::Off), ("all", AccessLog::All), ("refused", AccessLog::Refused)];
    let format = table.choice("format", &formats);
    let level = table.choice("level", &levels);
    let access = table.choice("access", &accesses);
    Some(LogSettings { format: format?, level: level?, access: access? })
}
