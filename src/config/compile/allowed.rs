//! The allowances of a limit: its own rule, and the rules of plans and of single keys.
//!
//! The texts of keys become keys in `gate`; `override_key` checks that they can.

use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::override_key::{self, Keyed};
use super::rule::Scheme;
use crate::config::diagnostics::{Problem, did_you_mean, nearest};
use crate::config::reader::time_units::{self, WrittenRate};
use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::config::schema::{self, UNLIMITED};
use crate::limit::Algorithm;
use crate::policy::Allowed;

/// The most plans or overrides of a limit: `policy` numbers them in 16 bits.
pub(super) const EXCEPTIONS_MAX: usize = 1 << 16;

/// The allowances of a limit.
pub(super) struct CompiledAllowed {
    /// `None` if one has an error.
    pub(super) allowed: Option<Allowed>,
    /// The capacity of each rule.
    pub(super) capacities: Vec<Capacity>,
}

/// The most units that one rule can hold.
pub(super) struct Capacity {
    /// The position of the rule, if it is an override.
    pub(super) place: Option<Range<usize>>,
    pub(super) units: u64,
    /// A name for messages, such as `the burst`.
    pub(super) name: String,
}

/// A name and the rule for it: `Some(None)` is no limit, and `None` a rule with an error.
pub(super) type Exception = (Box<str>, Option<Option<Algorithm>>);

pub(super) fn compile(table: &Table<'_>, scheme: &Scheme, keyed: &Keyed<'_>) -> CompiledAllowed {
    let usual = scheme.rule(table);
    let plans_table = table.table("plans");
    check_count(&plans_table, "plans");
    let plan = |(name, value): (Located<String>, _)| (name.into_inner().into(), exception(&plans_table, scheme, value));
    let plans: Vec<Exception> = plans_table.entries().into_iter().map(plan).collect();
    let overrides_table = table.table("overrides");
    override_key::check_all(&overrides_table, keyed);
    check_count(&overrides_table, "overrides");
    let mut assigned = HashMap::new();
    let overrides = overrides_table.entries().into_iter().map(|(name, value)| {
        let text: Box<str> = name.into_inner().into();
        let rule = match assignment(&overrides_table, value, &plans) {
            Some(Ok((plan, rule))) => {
                assigned.insert(text.clone(), plan);
                rule
            }
            Some(Err(BadAssignment)) => None,
            None => exception(&overrides_table, scheme, value),
        };
        (text, rule)
    });
    let overrides: Vec<_> = overrides.collect();

    let mut capacities: Vec<_> = usual.iter().map(|rule| Capacity::new(rule, "")).collect();
    for (name, rule) in plans.iter().filter_map(|(name, rule)| Some((name, rule.as_ref()?.as_ref()?))) {
        capacities.push(Capacity::new(rule, &format!(" of plan `{name}`")));
    }
    for ((_, rule), (text, _)) in overrides.iter().zip(overrides_table.entries()) {
        // The text may be a credential, so it has no name.
        let rules = rule.iter().flatten().filter(|_| !assigned.contains_key(text.get_ref().as_str()));
        capacities
            .extend(rules.map(|rule| Capacity { place: Some(text.span()), ..Capacity::new(rule, " of an override") }));
    }
    let allowed = alike(usual, plans, overrides).map(|allowed| Allowed { assigned, ..allowed });
    CompiledAllowed { allowed, capacities }
}

impl Capacity {
    pub(super) fn new(rule: &Algorithm, of: &str) -> Self {
        let noun = match rule {
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => "burst",
            Algorithm::Concurrency(_) => "`max`",
            Algorithm::Several(_) => "smallest count",
            _ => "count",
        };
        Self { place: None, units: rule.capacity(), name: format!("the {noun}{of}") }
    }
}

/// Gives all rules of a limit one form. If one rule has several windows, the others become lists of one window, because
/// the states of all keys are in one table.
fn alike(usual: Option<Algorithm>, plans: Vec<Exception>, overrides: Vec<Exception>) -> Option<Allowed> {
    let whole = |exceptions: Vec<Exception>| -> Option<Vec<_>> {
        exceptions.into_iter().map(|(name, rule)| Some((name, rule?))).collect()
    };
    let (plans, overrides) = (whole(plans)?, whole(overrides)?);
    let set_from = overrides.len();
    let mut allowed = Allowed { plans, overrides, set_from, ..Allowed::to_all(usual?) };
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

/// Turns a rule into a list of one window.
pub(super) fn make_several(rule: &mut Algorithm) {
    if !matches!(rule, Algorithm::Several(_)) {
        *rule = Algorithm::Several([rule.clone()].into());
    }
}

fn check_count(table: &Table<'_>, key: &str) {
    if let Some((name, _)) = table.entries().get(EXCEPTIONS_MAX) {
        let problem = Problem::new(name.span(), format!("a limit has at most {EXCEPTIONS_MAX} {key}"));
        table.context.note(problem);
    }
}

/// An assignment of a plan with an error, which is noted.
pub(super) struct BadAssignment;

/// The plan that an override assigns to its key, and the rule of that plan, which is `None` after an error in the plan.
/// `None` if the override has numbers of its own.
pub(super) fn assignment<'a>(
    table: &Table<'a>,
    value: &'a Spanned<DeValue<'a>>,
    plans: &[Exception],
) -> Option<Result<Exception, BadAssignment>> {
    value.get_ref().as_table()?.get("plan")?;
    let inner = table.table_of("NAME", value);
    let plan = inner.text("plan");
    for number in ["rate", "burst", "max"] {
        if let Some(value) = inner.get(number) {
            let help = "the plan has the numbers; write either of both".to_owned();
            inner.fault(number, value.span(), Fault::new("does not go with `plan`").help(Some(help)));
            return Some(Err(BadAssignment));
        }
    }
    let Some(plan) = plan else { return Some(Err(BadAssignment)) };
    let known = plans.iter().find(|(name, _)| **name == **plan.get_ref());
    if known.is_none() {
        let names: Vec<_> = plans.iter().map(|(name, _)| format!("`{name}`")).collect();
        let help =
            if names.is_empty() { "it has no `plans`".to_owned() } else { format!("it has {}", names.join(", ")) };
        // The text is not repeated: in a file of overrides it may be a part of a key.
        inner.fault("plan", plan.span(), Fault::new("the limit has no plan of this name").help(Some(help)));
    }
    Some(known.cloned().ok_or(BadAssignment))
}

#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
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

/// Parses a rate. An error suggests `unlimited` if the text is like it.
fn rate_or_word(text: &str) -> Result<WrittenRate, Fault> {
    time_units::rate(text).map_err(|fault| match nearest(text, [UNLIMITED]) {
        Some(UNLIMITED) if text == UNLIMITED => Fault::new("`unlimited` cannot be in a list"),
        Some(word) => fault.help(did_you_mean(Some(word))),
        None => fault,
    })
}
