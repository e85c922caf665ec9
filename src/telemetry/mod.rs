//! Metric handles and logs.
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
