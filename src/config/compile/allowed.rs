//! What a limit allows whom: its own rule, and those of plans and of single keys.
//!
//! Which plan a request has is not known here, and texts of keys become keys only in `gate`; that they can is checked.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::override_key::{self, Keyed};
use super::rule::Scheme;
use crate::config::diagnostics::{Problem, did_you_mean, nearest};
use crate::config::reader::Table;
use crate::config::reader::time_units::{self, WrittenRate};
use crate::config::reader::units::Fault;
use crate::config::schema::{self, UNLIMITED};
use crate::limit::Algorithm;
use crate::policy::Allowed;

/// As many exceptions as `policy` can tell apart.
pub(super) const EXCEPTIONS_MAX: usize = 1 << 16;

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

/// A rule for some; `Some(None)` is no limit, and `None` one that has a problem.
type Exception = (Box<str>, Option<Option<Algorithm>>);

pub(super) fn compile(table: &Table<'_>, scheme: &Scheme, keyed: &Keyed<'_>) -> Compiled {
    let usual = scheme.rule(table);
    let plans = exceptions(&table.table("plans"), "plans", scheme);
    let overrides_table = table.table("overrides");
    override_key::check_all(&overrides_table, keyed);
    let overrides = exceptions(&overrides_table, "overrides", scheme);

    let mut held: Vec<_> = usual.iter().map(|rule| Held::new(rule, "")).collect();
    for (name, rule) in plans.iter().filter_map(|(name, rule)| Some((name, rule.as_ref()?.as_ref()?))) {
        held.push(Held::new(rule, &format!(" of plan `{name}`")));
    }
    for ((_, rule), (text, _)) in overrides.iter().zip(overrides_table.named()) {
        // Its text may be a credential.
        let rules = rule.iter().flatten();
        held.extend(rules.map(|rule| Held { place: Some(text.span()), ..Held::new(rule, " of an override") }));
    }
    Compiled { allowed: alike(usual, plans, overrides), held }
}

impl Held {
    pub(super) fn new(rule: &Algorithm, of: &str) -> Self {
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
fn alike(usual: Option<Algorithm>, plans: Vec<Exception>, overrides: Vec<Exception>) -> Option<Allowed> {
    let whole = |exceptions: Vec<Exception>| -> Option<Vec<_>> {
        exceptions.into_iter().map(|(name, rule)| Some((name, rule?))).collect()
    };
    let (plans, overrides) = (whole(plans)?, whole(overrides)?);
    let set_from = overrides.len();
    let mut allowed = Allowed { usual: usual?, plans, overrides, set_from };
    let Allowed { usual, plans, overrides, .. } = &mut allowed;
    let exceptions = plans.iter_mut().chain(overrides).filter_map(|(_, rule)| rule.as_mut());
    let rules: Vec<_> = std::iter::once(usual).chain(exceptions).collect();
    if rules.iter().any(|rule| matches!(rule, Algorithm::Several(_))) {
        for rule in rules {
            make_several(rule);
        }
    }
    Some(allowed)
}

/// Makes a rule several windows, of which there is one.
pub(super) fn make_several(rule: &mut Algorithm) {
    if !matches!(rule, Algorithm::Several(_)) {
        *rule = Algorithm::Several([rule.clone()].into());
    }
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
pub(super) fn exception<'a>(
    table: &Table<'a>,
    scheme: &Scheme,
    value: &'a Spanned<DeValue<'a>>,
) -> Option<Option<Algorithm>> {
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
