//! Where the client stands, in headers.

use super::Sink;
use crate::gate::Standing;
use crate::limit::Decision;

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

const LIMIT: &str = "x-ratelimit-limit";
const REMAINING: &str = "x-ratelimit-remaining";
const RESET: &str = "x-ratelimit-reset";
const RETRY: &str = "x-ratelimit-retry";
const IETF_POLICY: &str = "ratelimit-policy";
const IETF: &str = "ratelimit";

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
pub fn limit_headers(sink: &mut impl Sink, profiles: Profiles, standing: &Standing<'_>, verdict: Verdict) {
    let burst = standing.burst;
    // What is in flight comes back when it ends, and nobody knows when.
    let reset_ns = Some(standing.reset_after_ns).filter(|ns| *ns != Decision::UNKNOWN_NS);
    let reset_s = reset_ns.map(|ns| ns.div_ceil(NS_PER_S));
    if profiles.x_ratelimit {
        number(sink, LIMIT, burst);
        number(sink, REMAINING, standing.remaining);
        if let Some(reset_ns) = reset_ns {
            number(sink, RESET, standing.at.saturating_add_ns(reset_ns).as_secs_ceil());
        }
    }
    if profiles.ietf {
        let window = match standing.period_ns.div_ceil(NS_PER_S) {
            0 => String::new(),
            s => format!(";w={s}"),
        };
        let reset = reset_s.map_or_else(String::new, |s| format!(";t={s}"));
        sink.put(IETF_POLICY, &format!("\"{}\";q={burst}{window}", standing.limit));
        sink.put(IETF, &format!("\"{}\";r={}{reset}", standing.limit, standing.remaining));
    }
    if profiles.wildberries {
        match verdict {
            Verdict::Passed => number(sink, REMAINING, standing.remaining),
            Verdict::Refused { retry_after_s } => {
                number(sink, LIMIT, burst);
                if let Some(reset_s) = reset_s {
                    number(sink, RESET, reset_s);
                }
                if let Some(retry_after_s) = retry_after_s {
                    number(sink, RETRY, retry_after_s);
                }
            }
        }
    }
}

/// Whether [`limit_headers`] may write a header of this name, so that the upstream's own of that name is not sent on.
pub fn is_limit_header(profiles: Profiles, name: &[u8]) -> bool {
    let is_x = || [LIMIT, REMAINING, RESET].iter().any(|x| name.eq_ignore_ascii_case(x.as_bytes()));
    match name.len() {
        9 | 16 if profiles.ietf => [IETF, IETF_POLICY].iter().any(|ietf| name.eq_ignore_ascii_case(ietf.as_bytes())),
        17 | 21 => (profiles.x_ratelimit || profiles.wildberries) && is_x(),
        _ => false,
    }
}

/// A number as a header.
pub(super) fn number(sink: &mut impl Sink, name: &'static str, value: u64) {
    sink.put(name, itoa::Buffer::new().format(value));
}

/// Lets scripts of a browser see the limit headers (Fetch standard, section 3.2.5).
pub fn expose(sink: &mut impl Sink, profiles: Profiles) {
    const X: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After";
    const IETF: &str = "RateLimit-Policy, RateLimit, Retry-After";
    const WB: &str = "X-Ratelimit-Remaining, X-Ratelimit-Retry, X-Ratelimit-Limit, X-Ratelimit-Reset, Retry-After";
    for (is_on, names) in [(profiles.x_ratelimit, X), (profiles.ietf, IETF), (profiles.wildberries, WB)] {
        if is_on {
            sink.put("access-control-expose-headers", names);
        }
    }
}
