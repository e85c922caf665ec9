//! The last requests of a client in words.

use std::sync::Arc;

use super::words;
use crate::admin::followed::Followed;
use crate::admin::times::rfc3339;
use crate::base::telemetry::{Outcome, RequestRecord, Text};

/// The last requests of a key, the newest first.
pub(super) struct Decisions {
    /// The begin.
    pub(super) since: String,
    /// Requests that ended since the begin.
    pub(super) count: u64,
    pub(super) seconds: Vec<DecidedSecond>,
}

/// The requests that ended within one second.
pub(super) struct DecidedSecond {
    pub(super) at: String,
    pub(super) requests: Vec<DecisionRow>,
}

/// A request in words.
pub(super) struct DecisionRow {
    /// The milliseconds after the begin of the second.
    pub(super) ms: u64,
    pub(super) request: String,
    pub(super) client: String,
    pub(super) status: u16,
    pub(super) verdict: &'static str,
    /// Whether the service got the request.
    pub(super) is_forwarded: bool,
    /// The limit that held or refused it; empty if none did.
    pub(super) by: String,
    pub(super) held: String,
    pub(super) took: String,
}

impl Decisions {
    pub(super) fn of(Followed { since, count, requests }: Followed) -> Self {
        let seconds = requests.chunk_by(|one, next| one.at.as_secs() == next.at.as_secs());
        let second = |requests: &[Arc<RequestRecord>]| DecidedSecond {
            at: requests.first().map(|request| words::instant(&rfc3339(request.at))).unwrap_or_default(),
            requests: requests.iter().map(|request| DecisionRow::of(request)).collect(),
        };
        Self { since: words::instant(&rfc3339(since)), count, seconds: seconds.map(second).collect() }
    }
}

impl DecisionRow {
    fn of(request: &RequestRecord) -> Self {
        Self {
            ms: request.at.as_ns() / 1_000_000 % 1000,
            request: format!("{} {}{}", request.text(Text::Method), request.text(Text::Host), request.text(Text::Path)),
            client: request.client.to_string(),
            status: request.status,
            verdict: request.outcome.verdict(),
            is_forwarded: request.outcome.refused_by().is_none() && request.outcome != Outcome::Abandoned,
            by: request.text(Text::Limit).to_owned(),
            held: if request.held.is_zero() { "–".to_owned() } else { words::duration(request.held) },
            took: words::duration(request.duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;

    #[test]
    fn decisions_are_grouped_by_seconds() {
        let request = |number: u64| {
            Arc::new(RequestRecord {
                at: Timestamp::from_ns(1_500_000_000 + number * 100_000_000),
                ..RequestRecord::default()
            })
        };
        let followed = Followed { since: Timestamp::ZERO, count: 99, requests: (1..14).rev().map(request).collect() };
        let shown = Decisions::of(followed);
        let second =
            |second: &DecidedSecond| format!("{} {} .{:03}", second.at, second.requests.len(), second.requests[0].ms);
        assert_eq!(
            shown.seconds.iter().map(second).collect::<Vec<_>>(),
            ["1970-01-01 00:00:02 UTC 9 .800", "1970-01-01 00:00:01 UTC 4 .900"]
        );
        assert_eq!((shown.count, &*shown.since), (99, "1970-01-01 00:00:00 UTC"));
    }
}
