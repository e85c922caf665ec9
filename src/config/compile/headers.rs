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
    let [x_ratelimit, wildberries] = ["x-ratelimit", "wildberries"];
    // Revisions 10 and 11 of the draft have the same fields. A name with a revision keeps its fields if a later one
    // changes them.
    let ietf = ["ietf", "ietf-10", "ietf-11"];
    let names: Vec<_> = [x_ratelimit, wildberries].iter().chain(&ietf).map(|name| (*name, *name)).collect();
    let chosen = headers.list_at("profiles", units::one_of(&names))?;
    let find = |profile: &str| chosen.iter().find(|one| *one.get_ref() == profile);
    for (one, other) in [(x_ratelimit, wildberries), (ietf[0], ietf[1]), (ietf[0], ietf[2]), (ietf[1], ietf[2])] {
        let (Some(a), Some(b)) = (find(one), find(other)) else { continue };
        let (first, second) = if a.span().start < b.span().start { (a, b) } else { (b, a) };
        let title = format!("`headers.profiles`: `{one}` and `{other}` write the same fields; choose one");
        headers.context.note(Problem::new(second.span(), title).also(first.span(), "and here"));
    }
    let has = |profile| find(profile).is_some();
    let (x_ratelimit, ietf, wildberries) = (has(x_ratelimit), ietf.into_iter().any(has), has(wildberries));
    Some(Profiles { x_ratelimit, ietf, wildberries, retirements: false })
}
