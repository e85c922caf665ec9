//! What a limit allows whom: its own rule, and those of plans and of single keys.
//!
//! Which plan a request has is not known here, and texts of keys become keys only in `gate`; that they can is checked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::matching;
use super::rule::Scheme;
use crate::config::diagnostics::{Problem, did_you_mean, nearest};
use crate::config::reader::Table;
use crate::config::reader::time_units::{self, WrittenRate};
use crate::config::reader::units::Fault;
use crate::config::schema;
use crate::config::schema::UNLIMITED;
use crate::limit::{Algorithm, Key};
use crate::policy::path;
use crate::policy::{Allowed, HostPattern, PathPattern};
use crate::policy::{KeyPart, KeySecret};

/// As many exceptions as `policy` can tell apart.
const EXCEPTIONS_MAX: usize = 1 << 16;

/// What a limit allows, as far as it could be read.
pub(super) struct Compiled {
    /// None if any of it has a problem.
    pub(super) allowed: Option<Allowed>,
    /// What each rule can hold at most, and how that is called.
    pub(super) held: Vec<Held>,
}

/// What one rule can hold at most.
pub(super) struct Held {
    /// Where it is written, if it is an override.
    pub(super) place: Option<Range<usize>>,
    pub(super) capacity: u64,
    /// Such as `the burst`.
    pub(super) name: String,
}

/// Whose budgets a limit has, for those who name a key in writing.
pub(super) struct Keyed<'k> {
    /// None if it has a problem.
    pub(super) parts: Option<&'k [KeyPart]>,
    /// What `route` can be.
    pub(super) routes: &'k [PathPattern],
    pub(super) ipv6_prefix: u8,
    pub(super) paths: path::PathRules,
}

/// A rule for some; `Some(None)` is no limit, and `None` one that has a problem.
type Exception = (Box<str>, Option<Option<Algorithm>>);

pub(super) fn compile(table: &Table<'_>, scheme: &Scheme, keyed: &Keyed<'_>) -> Compiled {
    let usual = scheme.rule(table);
    let plans = exceptions(&table.table("plans"), "plans", scheme);
    let overrides_table = table.table("overrides");
    check_keys(&overrides_table, keyed);
    let overrides = exceptions(&overrides_table, "overrides", scheme);
    let places: Vec<_> = overrides_table.named().into_iter().map(|(text, _)| text.span()).collect();
    let set_from = places.iter().position(|place| table.context.is_set(place)).unwrap_or(places.len());
    let has_several = note_several(&overrides_table, set_from, &places, &overrides);

    let mut held: Vec<_> = usual.iter().map(|rule| Held::new(rule, "")).collect();
    for (name, rule) in plans.iter().filter_map(|(name, rule)| Some((name, rule.as_ref()?.as_ref()?))) {
        held.push(Held::new(rule, &format!(" of plan `{name}`")));
    }
    for ((_, rule), place) in overrides.iter().zip(places) {
        // Its text may be a credential.
        let rules = rule.iter().flatten();
        held.extend(rules.map(|rule| Held { place: Some(place.clone()), ..Held::new(rule, " of an override") }));
    }
    Compiled { allowed: alike(usual, plans, overrides, set_from, has_several), held }
}

/// Whether keys have several windows even if no rule here has. Notes those with several that were set at run time for a
/// limit without: all of its keys would begin anew.
fn note_several(table: &Table<'_>, set_from: usize, places: &[Range<usize>], overrides: &[Exception]) -> bool {
    let Some(place) = places.get(set_from) else { return false };
    if table.context.has_several(place) {
        return true;
    }
    for (place, (_, rule)) in places.iter().zip(overrides).skip(set_from) {
        if matches!(rule, Some(Some(Algorithm::Several(_)))) {
            let fault = Fault::new("one rate only: with several all keys of this limit would begin anew");
            let help = "they can be set where the limit, a plan or an override in the configuration has several";
            table.fault("NAME", place.clone(), fault.help(Some(help.to_owned())));
        }
    }
    false
}

impl Held {
    fn new(rule: &Algorithm, of: &str) -> Self {
        let noun = match rule {
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => "burst",
            Algorithm::Concurrency(_) => "`max`",
            Algorithm::Several(_) => "smallest count",
            _ => "count",
        };
        Self { place: None, capacity: rule.capacity(), name: format!("the {noun}{of}") }
    }
}

/// All rules of a limit, of one kind: where one has several windows the others are several of one, because the
/// states of all keys lie in one table.
fn alike(
    usual: Option<Algorithm>,
    plans: Vec<Exception>,
    overrides: Vec<Exception>,
    set_from: usize,
    has_several: bool,
) -> Option<Allowed> {
    let whole = |exceptions: Vec<Exception>| -> Option<Vec<_>> {
        exceptions.into_iter().map(|(name, rule)| Some((name, rule?))).collect()
    };
    let mut allowed = Allowed { usual: usual?, plans: whole(plans)?, overrides: whole(overrides)?, set_from };
    let Allowed { usual, plans, overrides, .. } = &mut allowed;
    let exceptions = plans.iter_mut().chain(overrides).filter_map(|(_, rule)| rule.as_mut());
    let mut rules: Vec<_> = std::iter::once(usual).chain(exceptions).collect();
    if has_several || rules.iter().any(|rule| matches!(rule, Algorithm::Several(_))) {
        for rule in rules.iter_mut().filter(|rule| !matches!(rule, Algorithm::Several(_))) {
            **rule = Algorithm::Several([(**rule).clone()].into());
        }
    }
    Some(allowed)
}

fn exceptions(table: &Table<'_>, key: &str, scheme: &Scheme) -> Vec<Exception> {
    let named = table.named();
    if let Some((name, _)) = named.get(EXCEPTIONS_MAX) {
        let problem = Problem::new(name.span(), format!("a limit has at most {EXCEPTIONS_MAX} {key}"));
        table.context.note(problem);
    }
    named.into_iter().map(|(name, value)| (name.get_ref().as_str().into(), exception(table, scheme, value))).collect()
}

#[expect(clippy::option_option, reason = "the outer option is whether it could be read, as everywhere here")]
fn exception<'a>(table: &Table<'a>, scheme: &Scheme, value: &'a Spanned<DeValue<'a>>) -> Option<Option<Algorithm>> {
    match value.get_ref() {
        DeValue::String(text) if text == UNLIMITED => Some(None),
        DeValue::Table(_) => scheme.rule(&table.table_of("NAME", value)).map(Some),
        DeValue::String(_) | DeValue::Array(_) => {
            let option = schema::find(&table.path_of("NAME"))?;
            let rates = table.list_of("NAME", option, value, rate_or_word)?;
            scheme.of_rates(table, "NAME", &rates, None).map(Some)
        }
        _ => {
            let option = schema::find(&table.path_of("NAME"))?;
            table.mismatch("NAME", &option.kind.to_string(), value);
            None
        }
    }
}

/// A rate; of what is none, it may be that the word was meant.
fn rate_or_word(text: &str) -> Result<WrittenRate, Fault> {
    time_units::rate(text).map_err(|fault| match nearest(text, [UNLIMITED]) {
        Some(UNLIMITED) if text == UNLIMITED => Fault::new("`unlimited` stands alone, not in a list"),
        Some(word) => fault.help(did_you_mean(Some(word))),
        None => fault,
    })
}

/// Notes texts that are no key of this limit, or the same key again.
fn check_keys(table: &Table<'_>, keyed: &Keyed<'_>) {
    let named = table.named();
    if keyed.parts.is_none_or(|parts| parts.iter().any(may_be_secret)) {
        for (text, _) in &named {
            table.context.hide(text.span());
        }
    }
    let Some(parts) = keyed.parts else { return };
    if let Some((first, _)) = named.first().filter(|_| parts.is_empty()) {
        let fault = Fault::new("an override is for one key, and with `key = []` all share one");
        return table.fault("NAME", first.span(), fault.help(Some("say it in the limit itself".to_owned())));
    }
    // Under any secret two texts are the same key, or they are not.
    let secret = KeySecret::new([0; 16]);
    let mut known: HashMap<Key, Range<usize>> = HashMap::new();
    for (text, _) in named {
        let is_set = table.context.is_set(&text.span());
        if let Err(fault) = check_text(text.get_ref(), parts, keyed, !is_set) {
            table.fault("NAME", text.span(), fault);
            continue;
        }
        let Some(key) = secret.key_of_text(parts, text.get_ref(), keyed.ipv6_prefix) else { continue };
        match known.get(&key) {
            // However it is spelled, what was set goes before what is written; it is found last.
            Some(other) if is_set && !table.context.is_set(other) => drop(known.insert(key, text.span())),
            Some(other) => {
                let title = format!("`{}`: this is the same key again", table.path_of("NAME"));
                table.context.note(Problem::new(text.span(), title).also(other.clone(), "first here"));
            }
            None => drop(known.insert(key, text.span())),
        }
    }
}

/// Whether its value may be what somebody proves with who they are.
fn may_be_secret(part: &KeyPart) -> bool {
    matches!(part, KeyPart::Header(..) | KeyPart::Query(..) | KeyPart::Cookie(..) | KeyPart::Identity(_))
}

/// What is wrong with a text, which is repeated only if it may be shown: one that was set at run time may be a secret
/// of what the key of the limit was then.
fn check_text(text: &str, parts: &[KeyPart], keyed: &Keyed<'_>, is_shown: bool) -> Result<(), Fault> {
    if let [part] = parts {
        return check_part(text, part, keyed).map_err(|fault| if is_shown { fault } else { unrepeated(part) });
    }
    let texts: Vec<_> = text.split('|').collect();
    if texts.len() != parts.len() {
        let what = format!("this has {} parts, and the key of this limit has {}", texts.len(), parts.len());
        return Err(Fault::new(what).help(Some("the parts are joined by `|`, in the order of `key`".to_owned())));
    }
    let is_shown = is_shown && !parts.iter().any(may_be_secret);
    for (index, (text, part)) in texts.iter().zip(parts).enumerate() {
        check_part(text, part, keyed).map_err(|fault| {
            // Parts may have been mixed up, so none is repeated.
            let hidden = || Fault::new(format!("no request has such a part {} of its key", index + 1));
            if is_shown { fault } else { hidden() }
        })?;
    }
    Ok(())
}

/// What can be said of a text that is no such part, without the text.
fn unrepeated(part: &KeyPart) -> Fault {
    let (what, help) = match part {
        KeyPart::Ip => ("this is not an address", Some(ONE_ADDRESS)),
        KeyPart::Path => ("no path is like this", Some("paths are normalised before they are counted")),
        KeyPart::Route => ("this is none of `match.path`", None),
        KeyPart::Host => ("this is not a host", Some("an override is for one host, in lower case")),
        KeyPart::Method => ("this is not a method", Some("methods are in upper case")),
        KeyPart::Identity(_) | KeyPart::Header(..) | KeyPart::Query(..) | KeyPart::Cookie(..) => {
            ("no request has such a key", None)
        }
    };
    Fault::new(what).help(help.map(str::to_owned))
}

/// How the text of an address is written.
const ONE_ADDRESS: &str = "an override is for one address, written like \"192.0.2.7\"";

/// What no request could have is no part of a key.
fn check_part(text: &str, part: &KeyPart, keyed: &Keyed<'_>) -> Result<(), Fault> {
    let routes = keyed.routes;
    match part {
        KeyPart::Ip if text.parse::<IpAddr>().is_err() => {
            Err(Fault::new(format!("`{text}` is not an address")).help(Some(ONE_ADDRESS.to_owned())))
        }
        KeyPart::Path => match keyed.paths.matched(text) {
            Ok(normal) if *normal == *text => Ok(()),
            Ok(normal) => {
                let what = format!("no path is `{text}`: paths are normalised before they are counted");
                Err(Fault::new(what).help(did_you_mean(Some(&normal))))
            }
            Err(_) => Err(Fault::new(format!("no path can be `{text}`"))),
        },
        KeyPart::Route if !routes.iter().any(|route| route.as_str() == text) => {
            let help = did_you_mean(nearest(text, routes.iter().map(PathPattern::as_str)));
            Err(Fault::new(format!("`{text}` is none of `match.path`")).help(help))
        }
        KeyPart::Host => match matching::host(text)? {
            HostPattern::Exact(host) if *host == *text => Ok(()),
            HostPattern::Exact(host) => {
                Err(Fault::new(format!("hosts are in lower case, not `{text}`")).help(did_you_mean(Some(&host))))
            }
            HostPattern::Below(_) => Err(Fault::new("an override is for one host")),
        },
        KeyPart::Method => matching::method(text).map(drop),
        _ => Ok(()),
    }
}
