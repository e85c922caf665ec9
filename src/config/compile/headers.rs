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

pub(super) fn profiles(headers: &Table<'_>) -> Option<Profiles> {
    let [x_ratelimit, ietf, wildberries] = ["x-ratelimit", "ietf", "wildberries"];
    let names = [x_ratelimit, ietf, wildberries].map(|name| (name, name));
    let chosen = headers.list_at("profiles", units::one_of(&names))?;
    let find = |profile: &str| chosen.iter().find(|one| *one.get_ref() == profile);
    if let (Some(one), Some(other)) = (find(x_ratelimit), find(wildberries)) {
        let (first, second) = if one.span().start < other.span().start { (one, other) } else { (other, one) };
        let title = "`headers.profiles`: `x-ratelimit` and `wildberries` write the same fields; choose one";
        headers.context.note(Problem::new(second.span(), title).also(first.span(), "and here"));
    }
    let has = |profile| find(profile).is_some();
    let (x_ratelimit, ietf, wildberries) = (has(x_ratelimit), has(ietf), has(wildberries));
    Some(Profiles { x_ratelimit, ietf, wildberries, retirements: false })
}
