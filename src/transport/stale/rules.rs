//! RFC 9111: the answers that may be stored, and the requests that may get them.
//!
//! `http_cache_semantics` decides. It reads some fields otherwise than RFC 9111, so it gets them in a normal form:
//!
//! - Directives in lower case: it compares them with regard to case (section 5.2).
//! - One line for each field of a request: it compares the first line only.
//! - `must-revalidate` beside `s-maxage`, `no-cache` and `proxy-revalidate`, which forbid stale answers, too (section
//!   4.2.4).
//! - A response that may not be stored is refused here: with `max-stale` in the request it would be used.
//! - No Age, but an arrival that is earlier by it: it adds ages without a bound, and panics when they overflow. The age
//!   counts from Date, too (section 4.2.3).
//!
//! A cache for requests with Authorization is private, because its key has that field; all others are shared.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AUTHORIZATION, CACHE_CONTROL};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};

use super::answer::StoredAnswer;
use crate::base::fields::{FieldBuf, Fields, decimal};
use crate::base::time::Timestamp;

/// The most seconds of an age (RFC 9111, section 1.2.2).
const AGE_S_MAX: u64 = 1 << 31;

/// The fields of a response that decide.
const DECISIVE: [&str; 4] = ["expires", "last-modified", "vary", "date"];

/// How a stored answer may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reuse {
    /// Its age in seconds.
    pub(crate) age_s: u64,
    /// Seconds for which it is still fresh; negative if it is stale.
    pub(crate) ttl_s: i64,
}

/// The fields of `request` that the answer with the fields `response` varies by, each as one line. `None` if no other
/// request may get the answer: it varies by everything, or by a field that `is_own` tells Weir writes itself.
pub(super) fn varied(
    response: Fields<'_>,
    request: Fields<'_>,
    is_own: impl Fn(&HeaderName) -> bool,
) -> Option<FieldBuf> {
    let mut varied = FieldBuf::default();
    for name in response.members("vary").filter(|name| !name.is_empty()) {
        let name = HeaderName::from_bytes(name).ok().filter(|name| name.as_str() != "*" && !is_own(name))?;
        if name == AUTHORIZATION {
            continue; // the key of the answer has it
        }
        let mut lines = request.all(name.as_str()).peekable();
        if lines.peek().is_some() && !varied.fields().contains(name.as_str()) {
            varied.push(name.as_str().as_bytes(), &lines.collect::<Vec<_>>().join(&b", "[..]));
        }
    }
    Some(varied)
}

/// How the answer may be used for `request` at `now`; `None` if it may not.
pub(super) fn reuse(answer: &StoredAnswer, request: Fields<'_>, now: Timestamp) -> Option<Reuse> {
    let (at, now) = (date(answer.at), date(now));
    let options = CacheOptions { shared: !answer.is_private, ..CacheOptions::default() };
    let mut stored = Request::new(());
    *stored.headers_mut() = lines(answer.varied.fields(), |_| true);
    let fields = answer.fields.fields();
    let mut response = Response::new(());
    let head = response.headers_mut();
    *head = lines(fields, |name| DECISIVE.iter().any(|decisive| name.eq_ignore_ascii_case(decisive.as_bytes())));
    let mut directives = directives(fields);
    if ["no-cache", "proxy-revalidate", "s-maxage"].iter().any(|word| directives.contains(word)) {
        directives.push_str(", must-revalidate");
    }
    if !directives.is_empty() {
        head.insert(CACHE_CONTROL, HeaderValue::from_str(&directives).ok()?);
    }
    // The age that it had on arrival has passed since an earlier arrival.
    let born = at.checked_sub(Duration::from_secs(age_s(fields, at)))?;
    let policy = CachePolicy::new_options(&stored, &response, born, options);
    let mut asking = Request::new(());
    *asking.headers_mut() = request_fields(answer, request)?;
    if !policy.is_storable() {
        return None;
    }
    let BeforeRequest::Fresh(_) = policy.before_request(&asking, now) else { return None };
    let signed_s = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    let age = policy.age(now);
    let ttl_s = signed_s(policy.time_to_live(born)).saturating_sub(signed_s(age));
    Some(Reuse { age_s: age.as_secs().min(AGE_S_MAX), ttl_s })
}

/// The fields of a request that decide whether it gets `answer`. Its client accepts stale answers, unless it says how
/// stale they may be.
fn request_fields(answer: &StoredAnswer, request: Fields<'_>) -> Option<HeaderMap> {
    let varied = varied(answer.fields.fields(), request, |_| false)?;
    let mut fields = lines(varied.fields(), |_| true);
    let mut directives = directives(request);
    if !directives.contains("max-stale") {
        directives.push_str(if directives.is_empty() { "max-stale" } else { ", max-stale" });
    }
    fields.insert(CACHE_CONTROL, HeaderValue::from_str(&directives).ok()?);
    Some(fields)
}

/// Whether the message with these fields forbids to store it, and the answer to it.
pub(crate) fn forbids_storage(fields: Fields<'_>) -> bool {
    fields.contains("cache-control") && directives(fields).contains("no-store")
}

/// Cache-Control and `Pragma: no-cache` as one line of visible ASCII in lower case.
fn directives(fields: Fields<'_>) -> String {
    let mut line = String::new();
    for value in fields.all("cache-control") {
        if !line.is_empty() {
            line.push_str(", ");
        }
        let visible = |byte: &u8| if matches!(byte, b' '..=b'~' | b'\t') { char::from(*byte) } else { '?' };
        line.extend(value.iter().map(visible).map(|character| character.to_ascii_lowercase()));
    }
    let is_no_cache = |pragma: &[u8]| pragma.to_ascii_lowercase().windows(8).any(|part| part == b"no-cache");
    if fields.all("pragma").any(is_no_cache) {
        line.push_str(if line.is_empty() { "no-cache" } else { ", no-cache" });
    }
    line
}

/// The age at the arrival of a response, `at`, in seconds.
fn age_s(fields: Fields<'_>, at: SystemTime) -> u64 {
    let stated = fields.first("age").and_then(decimal).unwrap_or(0);
    let date = fields.first("date").and_then(|date| httpdate::parse_http_date(str::from_utf8(date).ok()?).ok());
    let apparent = date.and_then(|date| at.duration_since(date).ok()).map_or(0, |since| since.as_secs());
    stated.max(apparent).min(AGE_S_MAX)
}

/// The wanted fields as a map. A line that a map cannot have is left out.
fn lines(fields: Fields<'_>, is_wanted: impl Fn(&[u8]) -> bool) -> HeaderMap {
    let line = |(name, value): (&[u8], &[u8])| {
        Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
    };
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().filter(|(name, _)| is_wanted(name)).filter_map(line) {
        map.append(name, value);
    }
    map
}

fn date(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(at.as_ns())
}
