//! When a limit answers requests from stored answers.

/// The stored answers of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleRule {
    /// The time after which a stored answer is not used, in nanoseconds.
    pub max_age_ns: u64,
    /// The most bytes of stored answers.
    pub max_bytes: usize,
    /// The causes for which they are used, in the order of [`StaleCause::ALL`].
    pub causes: [bool; 3],
}

/// Why a request gets a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StaleCause {
    /// The limit refused the request.
    Refused,
    /// The service answered 429.
    Upstream429,
    /// The service did not answer, or with 502, 503 or 504.
    UpstreamError,
}

impl StaleCause {
    /// All causes, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Refused, Self::Upstream429, Self::UpstreamError];

    /// The word of the configuration, of metrics and of logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Upstream429 => "upstream_429",
            Self::UpstreamError => "upstream_error",
        }
    }
}

impl StaleRule {
    /// Whether stored answers are used for this cause.
    pub fn is_for(&self, cause: StaleCause) -> bool {
        self.causes[cause as usize]
    }
}
