//! Where the client stands, in headers.

use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

use crate::gate::Standing;

/// Which limit headers clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profiles {
    /// X-RateLimit-Limit (the burst), -Remaining, and -Reset (unix seconds when full again, rounded up).
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10).
    pub ietf: bool,
    /// X-Ratelimit-Remaining on all but 429; on 429 -Retry, -Limit and -Reset, in seconds.
    pub wildberries: bool,
}

impl Default for Profiles {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: false, wildberries: false }
    }
}

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RETRY: HeaderName = HeaderName::from_static("x-ratelimit-retry");
const IETF_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const IETF: HeaderName = HeaderName::from_static("ratelimit");

const NS_PER_S: u64 = 1_000_000_000;

/// Whether the answer refuses the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was sent on.
    Passed,
    /// It was not.
    Refused {
        /// Whole seconds after which it could pass; none if it never can.
        retry_after_s: Option<u64>,
    },
}

/// Writes where the client stands.
pub fn limit_headers(headers: &mut HeaderMap, profiles: Profiles, standing: &Standing<'_>, verdict: Verdict) {
    let burst = standing.burst;
    let reset_s = standing.reset_after_ns.div_ceil(NS_PER_S);
    if profiles.x_ratelimit {
        let full_at = standing.at.saturating_add_ns(standing.reset_after_ns);
        headers.insert(LIMIT, burst.into());
        headers.insert(REMAINING, standing.remaining.into());
        headers.insert(RESET, full_at.as_secs_ceil().into());
    }
    if profiles.ietf {
        let window_s = standing.period_ns.div_ceil(NS_PER_S);
        insert_text(headers, IETF_POLICY, &format!("\"{}\";q={burst};w={window_s}", standing.limit));
        insert_text(headers, IETF, &format!("\"{}\";r={};t={reset_s}", standing.limit, standing.remaining));
    }
    if profiles.wildberries {
        match verdict {
            Verdict::Passed => {
                headers.insert(REMAINING, standing.remaining.into());
            }
            Verdict::Refused { retry_after_s } => {
                headers.insert(LIMIT, burst.into());
                headers.insert(RESET, reset_s.into());
                if let Some(retry_after_s) = retry_after_s {
                    headers.insert(RETRY, retry_after_s.into());
                }
            }
        }
    }
}

/// Lets scripts of a browser see the limit headers (Fetch standard, section 3.2.5).
pub fn expose(headers: &mut HeaderMap, profiles: Profiles) {
    const X: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After";
    const IETF: &str = "RateLimit-Policy, RateLimit, Retry-After";
    const WB: &str = "X-Ratelimit-Remaining, X-Ratelimit-Retry, X-Ratelimit-Limit, X-Ratelimit-Reset, Retry-After";
    for (is_on, names) in [(profiles.x_ratelimit, X), (profiles.ietf, IETF), (profiles.wildberries, WB)] {
        if is_on {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(names));
        }
    }
}

/// Limit names are checked to be fit for a header when the configuration is read.
fn insert_text(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}
