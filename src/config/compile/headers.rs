//! `[headers]`: the profiles of limit headers, and free CORS preflights.

use toml::de::DeValue;

use crate::config::diagnostics::Problem;
use crate::config::reader::time_units;
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::engine::limit::{Algorithm, Quota, Rate};
use crate::transport::respond::Profiles;

/// The rate of free preflights of one client; the inner option is `None` if all preflights are charged.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn free_preflights(headers: &Table<'_>) -> Option<Option<Algorithm>> {
    let key = "free_preflights";
    let read = headers.read(key, |option, value| match value.get_ref() {
        DeValue::Boolean(false) => Some(None),
        DeValue::Boolean(true) => {
            let help = "write a rate for each client address, such as \"50/s\", or `false`".to_owned();
            headers.fault(
                key,
                value.span(),
                Fault::new("a client could cause any number of these responses").help(Some(help)),
            );
            None
        }
        DeValue::String(text) => {
            let rate = |text: &str| time_units::rate(text).and_then(|rate| rate.rate());
            let quota = |rate: Rate| Quota::new(rate, rate.count).map_err(|error| Fault::new(error.to_string()));
            let quota = headers.parse(key, value.span(), text, |text| rate(text).and_then(quota))?;
            Some(Some(Algorithm::TokenBucket(quota)))
        }
        _ => {
            headers.mismatch(key, &option.kind.to_string(), value);
            None
        }
    });
    read.map(Located::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Profile {
    XRatelimit,
    Ietf,
    Wildberries,
}

pub(super) fn profiles(headers: &Table<'_>) -> Option<Profiles> {
    use Profile::{Ietf, Wildberries, XRatelimit};
    let names = [("x-ratelimit", XRatelimit), ("ietf", Ietf), ("wildberries", Wildberries)];
    let chosen = headers.list("profiles", units::one_of(&names))?;
    let find = |profile| chosen.iter().find(|one| *one.get_ref() == profile);
    if let (Some(one), Some(other)) = (find(XRatelimit), find(Wildberries)) {
        let (first, second) = if one.span().start < other.span().start { (one, other) } else { (other, one) };
        let title = "`headers.profiles`: `x-ratelimit` and `wildberries` write the same fields; choose one";
        headers.context.note(Problem::new(second.span(), title).also(first.span(), "and here"));
    }
    let has = |profile| find(profile).is_some();
    Some(Profiles { x_ratelimit: has(XRatelimit), ietf: has(Ietf), wildberries: has(Wildberries) })
}
