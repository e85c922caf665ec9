//! Decisions in terms of the protocols.

use prost_types::Duration;

use super::proto::weir::v1::{CheckResponse, Refusal};
use crate::engine::gate::{Cause, NamedDenial, NamedItem, NamedVerdict};
use crate::engine::limit::{Decision, Retry};

const NS_PER_S: u64 = 1_000_000_000;

/// `ns` as a message; `None` if it stands for an unknown time.
pub(super) fn duration(ns: u64) -> Option<Duration> {
    if ns == Decision::UNKNOWN_NS {
        return None;
    }
    Some(Duration { seconds: i64::try_from(ns / NS_PER_S).ok()?, nanos: i32::try_from(ns % NS_PER_S).ok()? })
}

/// Nanoseconds until a denied charge could be admitted; `None` if it never can be.
pub(super) fn retry_ns(denial: NamedDenial) -> Option<u64> {
    match denial.retry {
        Retry::Never | Retry::ON_RELEASE => None,
        Retry::AfterNs(ns) => Some(ns),
    }
}

/// The answer to a check.
pub(super) fn check_response(verdict: &NamedVerdict<'_>) -> CheckResponse {
    let Some(NamedItem { limit, standing, denial, .. }) = verdict.decisive() else {
        return CheckResponse { allowed: true, ..CheckResponse::default() };
    };
    let refusal = match denial {
        None => Refusal::Unspecified,
        Some(NamedDenial { cause: Cause::Banned, .. }) => Refusal::Banned,
        Some(NamedDenial { retry: Retry::Never, .. }) => Refusal::Cost,
        Some(_) => Refusal::Limit,
    };
    CheckResponse {
        allowed: verdict.is_admitted,
        remaining: standing.remaining,
        retry_after: denial.and_then(retry_ns).and_then(duration),
        reset_after: duration(standing.reset_after_ns),
        limit: standing.burst,
        limit_name: limit.name.to_string(),
        refusal: refusal.into(),
    }
}
