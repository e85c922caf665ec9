//! The limit headers of a response, and the destination of headers: the text of an HTTP/1 head, or a block of HTTP/2.

use std::fmt::Write as _;

use crate::engine::gate::{Budget, BudgetItem, Standing};
use crate::engine::limit::{Decision, Retry};
use crate::engine::policy::Unit;

/// Receives headers.
pub trait HeaderSink {
    /// Adds a header. `name` is in lower case. `value` must be valid in a header.
    fn put(&mut self, name: &'static str, value: &str);
}

impl HeaderSink for Vec<u8> {
    fn put(&mut self, name: &'static str, value: &str) {
        for piece in [name, ": ", value, "\r\n"] {
            self.extend_from_slice(piece.as_bytes());
        }
    }
}

/// The header profiles that clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools)] // each is on or off, whatever the others are
pub struct Profiles {
    /// X-RateLimit-Limit (the burst), -Remaining, and -Reset (unix seconds when the budget is whole, rounded up).
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers, revisions 10 and 11).
    pub ietf: bool,
    /// X-Ratelimit-Remaining on all statuses but 429; on 429 -Retry, -Limit and -Reset, in seconds.
    pub x_ratelimit_retry: bool,
    /// The fields of the API of GitHub: those of `x_ratelimit`, -Used, and -Resource (the name of the limit).
    pub github: bool,
    /// `Deprecation`, `Sunset` and `Link` of limits that ramps lower to zero.
    pub retirements: bool,
}

impl Profiles {
    /// No profile.
    pub const NONE: Self =
        Self { x_ratelimit: false, ietf: false, x_ratelimit_retry: false, github: false, retirements: false };
}

impl Default for Profiles {
    fn default() -> Self {
        Self { x_ratelimit: true, ..Self::NONE }
    }
}

/// A profile, and the fields that it may write.
struct ProfileFields {
    is_on: fn(Profiles) -> bool,
    fields: &'static [&'static str],
    /// The value of `Access-Control-Expose-Headers`.
    exposed: &'static str,
}

/// All profiles. The fields of an upstream with these names are not forwarded, and browser scripts may read them.
const PROFILES: [ProfileFields; 4] = [
    ProfileFields {
        is_on: |profiles| profiles.x_ratelimit,
        fields: &[LIMIT, REMAINING, RESET],
        exposed: "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
    },
    ProfileFields {
        is_on: |profiles| profiles.github,
        fields: &[LIMIT, REMAINING, RESET, USED, RESOURCE],
        exposed: "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Used, X-RateLimit-Resource, \
                  Retry-After",
    },
    ProfileFields {
        is_on: |profiles| profiles.ietf,
        fields: &[IETF_POLICY, IETF],
        exposed: "RateLimit-Policy, RateLimit, Retry-After",
    },
    ProfileFields {
        is_on: |profiles| profiles.x_ratelimit_retry,
        fields: &[REMAINING, RETRY, LIMIT, RESET],
        exposed: "X-Ratelimit-Remaining, X-Ratelimit-Retry, X-Ratelimit-Limit, X-Ratelimit-Reset, Retry-After",
    },
];

/// The lengths of all fields of profiles, as bits.
const LENGTHS: u64 = {
    let (mut bits, mut profile) = (0, 0);
    while profile < PROFILES.len() {
        let (fields, mut field) = (PROFILES[profile].fields, 0);
        while field < fields.len() {
            bits |= 1 << fields[field].len();
            field += 1;
        }
        profile += 1;
    }
    bits
};

const LIMIT: &str = "x-ratelimit-limit";
const REMAINING: &str = "x-ratelimit-remaining";
const RESET: &str = "x-ratelimit-reset";
const RETRY: &str = "x-ratelimit-retry";
const USED: &str = "x-ratelimit-used";
const RESOURCE: &str = "x-ratelimit-resource";
const IETF_POLICY: &str = "ratelimit-policy";
const IETF: &str = "ratelimit";
const DEPRECATION: &str = "deprecation";
const SUNSET: &str = "sunset";

const NS_PER_S: u64 = 1_000_000_000;

/// Whether the request was forwarded or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The request was forwarded.
    Forwarded,
    /// The request was refused.
    Refused {
        /// Whole seconds until a retry could be admitted; none if it never can.
        retry_after_s: Option<u64>,
    },
}

/// Writes the headers of `standing`; the profile `ietf` also lists each of the `budgets`.
pub fn limit_headers(
    sink: &mut impl HeaderSink,
    profiles: Profiles,
    standing: &Standing<'_>,
    budgets: &[Budget<'_>],
    verdict: Disposition,
) {
    let burst = standing.burst;
    // A concurrency limit resets when its requests end, at an unknown time.
    let reset_ns = Some(standing.reset_after_ns).filter(|ns| *ns != Decision::UNKNOWN_NS);
    if profiles.x_ratelimit || profiles.github {
        number(sink, LIMIT, burst);
        number(sink, REMAINING, standing.remaining);
        if let Some(reset_ns) = reset_ns {
            number(sink, RESET, standing.at.saturating_add_ns(reset_ns).as_secs_ceil());
        }
    }
    if profiles.github {
        number(sink, USED, burst.saturating_sub(standing.remaining));
        sink.put(RESOURCE, standing.limit);
    }
    if profiles.ietf {
        ietf(sink, budgets, verdict);
    }
    if profiles.retirements {
        retirement(sink, budgets);
    }
    if profiles.x_ratelimit_retry {
        match verdict {
            Disposition::Forwarded => number(sink, REMAINING, standing.remaining),
            Disposition::Refused { retry_after_s } => {
                number(sink, LIMIT, burst);
                if let Some(reset_ns) = reset_ns {
                    number(sink, RESET, reset_ns.div_ceil(NS_PER_S));
                }
                if let Some(retry_after_s) = retry_after_s {
                    number(sink, RETRY, retry_after_s);
                }
            }
        }
    }
}

/// Writes the fields of the first limit that ends at zero: `Deprecation` and `Sunset` have one value each.
fn retirement(sink: &mut impl HeaderSink, budgets: &[Budget<'_>]) {
    let Some(retirement) = budgets.iter().find_map(Budget::retirement) else { return };
    sink.put(DEPRECATION, &retirement.deprecation);
    sink.put(SUNSET, &retirement.sunset);
    if let Some(link) = &retirement.link {
        sink.put("link", link);
    }
}

/// Whether [`limit_headers`] writes this header for a limit that ends at zero.
pub fn is_retirement_header(name: &[u8]) -> bool {
    [DEPRECATION, SUNSET].iter().any(|written| name.eq_ignore_ascii_case(written.as_bytes()))
}

/// Writes an item for each rate of each budget (RFC 9651, section 3.1). The tightest rate comes first in `RateLimit`.
fn ietf(sink: &mut impl HeaderSink, budgets: &[Budget<'_>], verdict: Disposition) {
    let items: Vec<_> = budgets.iter().flat_map(Budget::items).collect();
    let tightest =
        (1..items.len()).fold(0, |known, index| if items[index].is_tighter(&items[known]) { index } else { known });
    let Some(first) = items.get(tightest) else { return };
    let (mut policy, mut limit) = (String::new(), String::new());
    for item in &items {
        write_policy(&mut policy, item);
    }
    write_limit(&mut limit, first, first_reset_s(first, verdict));
    for (_, item) in items.iter().enumerate().filter(|(index, _)| *index != tightest) {
        // Section 6 of the draft: `Retry-After` should not be earlier than `t`.
        let retry_after_s = match verdict {
            Disposition::Refused { retry_after_s } => retry_after_s,
            Disposition::Forwarded => None,
        };
        let reset_s = reset_s(item).filter(|s| retry_after_s.is_none_or(|retry_after_s| *s <= retry_after_s));
        write_limit(&mut limit, item, reset_s);
    }
    sink.put(IETF_POLICY, &policy);
    sink.put(IETF, &limit);
}

/// Seconds until the tightest rate has more units; for a refused request, seconds until a retry could be admitted.
fn first_reset_s(item: &BudgetItem<'_>, verdict: Disposition) -> Option<u64> {
    match verdict {
        Disposition::Refused { retry_after_s } => retry_after_s,
        Disposition::Forwarded => reset_s(item),
    }
}

fn reset_s(item: &BudgetItem<'_>) -> Option<u64> {
    match item.remaining.more? {
        Retry::ON_RELEASE | Retry::Never => None,
        Retry::AfterNs(ns) => Some(ns.div_ceil(NS_PER_S)),
    }
}

/// The item of a rate in `RateLimit-Policy`.
pub(super) fn policy_item(item: &BudgetItem<'_>) -> String {
    let mut policy = String::new();
    write_policy(&mut policy, item);
    policy
}

fn write_policy(policy: &mut String, item: &BudgetItem<'_>) {
    write_name(policy, item);
    let _ = match item.pace {
        Some(pace) => write!(policy, ";q={};w={}", integer(pace.units), integer(pace.window_s)),
        None => write!(policy, ";q={}", integer(item.capacity)),
    };
    let unit =
        item.unit.as_ref().map(Unit::name).or(if item.pace.is_none() { Some("concurrent-requests") } else { None });
    if let Some(unit) = unit {
        let _ = write!(policy, ";qu=\"{unit}\"");
    }
}

fn write_limit(limit: &mut String, item: &BudgetItem<'_>, reset_s: Option<u64>) {
    write_name(limit, item);
    let _ = write!(limit, ";r={}", integer(item.remaining.units));
    if let Some(reset_s) = reset_s {
        let _ = write!(limit, ";t={}", integer(reset_s));
    }
}

fn write_name(list: &mut String, item: &BudgetItem<'_>) {
    let comma = if list.is_empty() { "" } else { ", " };
    let _ = write!(list, "{comma}\"{}\"", item.policy());
}

/// At most the largest integer of a structured field, which has 15 digits (RFC 9651, section 3.3.1).
fn integer(value: u64) -> u64 {
    value.min(999_999_999_999_999)
}

/// Whether [`limit_headers`] may write this header. The upstream's header of this name is then not forwarded.
pub fn is_limit_header(profiles: Profiles, name: &[u8]) -> bool {
    let has_field = |profile: &ProfileFields| {
        (profile.is_on)(profiles) && profile.fields.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
    };
    name.len() < 64 && LENGTHS & (1 << name.len()) != 0 && PROFILES.iter().any(has_field)
}

/// Writes a number as a header.
pub(super) fn number(sink: &mut impl HeaderSink, name: &'static str, value: u64) {
    sink.put(name, itoa::Buffer::new().format(value));
}

/// Exposes the limit headers to browser scripts (Fetch standard, section 3.2.5).
pub fn expose(sink: &mut impl HeaderSink, profiles: Profiles) {
    for profile in PROFILES.iter().filter(|profile| (profile.is_on)(profiles)) {
        sink.put("access-control-expose-headers", profile.exposed);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    impl HeaderSink for HeaderMap {
        fn put(&mut self, name: &'static str, value: &str) {
            self.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
    }

    /// A field that a profile writes is one of its own, so that no field of an upstream stands beside it.
    #[test]
    fn every_written_field_is_known() {
        let none = Profiles::NONE;
        for (profiles, names) in [
            (Profiles { x_ratelimit: true, ..none }, "limit remaining reset"),
            (Profiles { github: true, ..none }, "limit remaining reset used resource"),
            (Profiles { x_ratelimit_retry: true, ..none }, "remaining limit reset retry"),
        ] {
            let mut written = HeaderMap::new();
            for verdict in [Disposition::Forwarded, Disposition::Refused { retry_after_s: Some(3) }] {
                limit_headers(&mut written, profiles, &Standing::of("a", 10, 4), &[], verdict);
            }
            let mut exposed = HeaderMap::new();
            expose(&mut exposed, profiles);
            let exposed = exposed["access-control-expose-headers"].to_str().unwrap().to_ascii_lowercase();
            for name in written.keys() {
                assert!(is_limit_header(profiles, name.as_str().to_ascii_uppercase().as_bytes()), "{name}");
                assert!(exposed.split(", ").any(|one| one == name.as_str()), "{name}: {exposed}");
                assert!(!is_limit_header(none, name.as_str().as_bytes()), "{name}");
            }
            let all: Vec<_> = names.split(' ').map(|name| format!("x-ratelimit-{name}")).collect();
            assert!(all.iter().all(|name| written.contains_key(name.as_str())) && written.keys().count() == all.len());
        }
        for profile in &PROFILES {
            let fields = profile.fields.iter().chain(&["retry-after"]);
            assert!(
                fields.clone().all(|field| profile.exposed.to_ascii_lowercase().split(", ").any(|one| one == *field))
            );
            assert_eq!(profile.exposed.split(", ").count(), fields.count());
        }
        let all = Profiles { ietf: true, x_ratelimit_retry: true, github: true, ..Profiles::default() };
        for name in ["x-ratelimit", "retry-after", "", "x-ratelimit-limits", "x-ratelimit-limiu"] {
            assert!(!is_limit_header(all, name.as_bytes()), "{name}");
        }
        assert!(!is_limit_header(all, &[b'x'; 100]));
    }
}
