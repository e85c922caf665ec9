//! `[headers]`: the profiles of limit headers, and free CORS preflights.

use toml::de::DeValue;

use crate::config::reader::{Located, Optional, Problem, Table, time_units, units};
use crate::engine::limit::{Algorithm, Quota};
use crate::transport::respond::Profiles;

/// The rate of free preflights of one client; the inner option is `None` if all preflights are charged.
pub(super) fn free_preflights(headers: &Table<'_>) -> Optional<Algorithm> {
    let key = "free_preflights";
    let read = headers.read(key, |option, value| match value.get_ref() {
        DeValue::Boolean(false) => Some(None),
        DeValue::Boolean(true) => {
            let help = "write a rate for each client address, such as \"50/s\", or `false`";
            headers.fault(key, value.span(), ("a client could cause any number of these responses", help));
            None
        }
        DeValue::String(text) => headers.parse(key, value.span(), text, |text| {
            let rate = time_units::rate(text)?.rate()?;
            let quota = Quota::new(rate, rate.count).map_err(|error| error.to_string())?;
            Ok(Some(Algorithm::TokenBucket(quota)))
        }),
        _ => headers.mismatched(key, option, value),
    });
    read.map(Located::into_inner)
}

/// The profiles. Revisions 10 and 11 of the draft have the same fields. A name with a revision keeps its fields if a
/// later one changes them.
const PROFILES: [(&str, &str); 6] = [
    (X_RATELIMIT, X_RATELIMIT),
    (X_RATELIMIT_RETRY, X_RATELIMIT_RETRY),
    (GITHUB, GITHUB),
    (IETF, IETF),
    ("ietf-10", "ietf-10"),
    ("ietf-11", "ietf-11"),
];
const X_RATELIMIT: &str = "x-ratelimit";
const X_RATELIMIT_RETRY: &str = "x-ratelimit-retry";
const GITHUB: &str = "github";
const IETF: &str = "ietf";
/// The old name of `x-ratelimit-retry`.
const OLD_NAME: &str = "wildberries";

pub(super) fn profiles(headers: &Table<'_>) -> Option<Profiles> {
    let read = |text: &str| units::one_of(&PROFILES)(if text == OLD_NAME { X_RATELIMIT_RETRY } else { text });
    let chosen = headers.list_at("profiles", read)?;
    for item in headers.items("profiles").iter().filter(|item| item.get_ref().as_str() == Some(OLD_NAME)) {
        let fault = (format!("`{OLD_NAME}` is now `{X_RATELIMIT_RETRY}`"), "the old name means the same");
        headers.warn("profiles", item.span(), "old_name", fault);
    }
    let is_ietf = |profile: &Located<&str>| profile.get_ref().starts_with(IETF);
    let in_table = |one: &Located<&str>| PROFILES.iter().position(|(name, _)| name == one.get_ref());
    for (index, second) in chosen.iter().enumerate() {
        for first in chosen[..index].iter().filter(|first| is_ietf(first) == is_ietf(second)) {
            let (one, other) = if in_table(first) < in_table(second) { (first, second) } else { (second, first) };
            let (one, other) = (one.get_ref(), other.get_ref());
            let title = format!("`headers.profiles`: `{one}` and `{other}` write the same fields; choose one");
            headers.context.note(Problem::new(second.span(), title).also(first.span(), "and here"));
        }
    }
    let has = |name| chosen.iter().any(|one| *one.get_ref() == name);
    Some(Profiles {
        x_ratelimit: has(X_RATELIMIT),
        ietf: chosen.iter().any(is_ietf),
        x_ratelimit_retry: has(X_RATELIMIT_RETRY),
        github: has(GITHUB),
        ..Profiles::NONE
    })
}
