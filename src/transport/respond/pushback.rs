//! The retry advice for gRPC clients.

use super::HeaderSink;
use super::headers::number;
use crate::engine::gate::RetryJitter;
use crate::engine::limit::Retry;

/// When a gRPC client may retry. It retries by itself if its service configuration has a retry policy for the status.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pushback {
    AfterMs(u64),
    Never,
}

/// gRFC A6, section "Pushback": milliseconds, or a negative number to forbid retries.
pub(super) const PUSHBACK: &str = "grpc-retry-pushback-ms";

impl Pushback {
    pub(super) fn of(retry: Retry, jitter: RetryJitter) -> Self {
        let wait_ns = match retry {
            Retry::ON_RELEASE => 1_000_000_000,
            Retry::AfterNs(ns) => ns,
            Retry::Never => return Self::Never,
        };
        Self::AfterMs(wait_ns.saturating_add(jitter.ns).div_ceil(1_000_000).max(1))
    }

    pub(super) fn write(self, sink: &mut impl HeaderSink) {
        match self {
            Self::AfterMs(ms) => number(sink, PUSHBACK, ms),
            Self::Never => sink.put(PUSHBACK, "-1"),
        }
    }
}
