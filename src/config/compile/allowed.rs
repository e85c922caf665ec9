//! The allowances of a limit: its own rule, and the rules of plans and of single keys.
//!
//! The texts of keys become keys in `gate`; `override_key` checks that they can.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::override_key::{self, Keyed};
use super::rule::Scheme;
use super::{fair_share, plan_rates};
use crate::config::reader::time_units::{self, Factor, WrittenRate};
use crate::config::reader::{Fault, Located, Optional, Problem, Table, did_you_mean, nearest};
use crate::config::schema::{self, UNLIMITED};
use crate::engine::limit::Algorithm;
use crate::engine::limit::concurrency::adaptive::Range;
use crate::engine::policy::{Allowed, WrittenRule, WrittenRules};

/// The most plans or overrides of a limit: `policy` numbers them in 16 bits.
pub(super) const EXCEPTIONS_MAX: usize = 1 << 16;

/// The allowances of a limit.
pub(super) struct CompiledAllowed {
    /// `None` if one has an error.
    pub(super) allowed: Option<Allowed>,
    /// The capacity of each rule.
    pub(super) capacities: Vec<Capacity>,
    /// The plans that drop windows of the limit, and how.
    pub(super) dropping: DroppingPlans,
}

/// Plans that drop windows of their limit, and how.
pub(super) type DroppingPlans = HashMap<Box<str>, Fault>;

/// The most units that one rule can hold.
pub(super) struct Capacity {
    /// The position of the rule, if it is an override.
    pub(super) place: Option<std::ops::Range<usize>>,
    pub(super) units: u64,
    /// A name for messages, such as `the burst`.
    pub(super) name: String,
}

/// A name and the rule for it: `Some(None)` is no limit, and `None` a rule with an error.
pub(super) type Exception = (Box<str>, Optional<Algorithm>);

pub(super) fn compile(table: &Table<'_>, scheme: &Scheme, keyed: &Keyed<'_>) -> CompiledAllowed {
    let usual = scheme.usual(table);
    let mut written = WrittenRules::default();
    if let Some(rule) = &usual {
        written.usual = written_in(table, rule);
    }
    let plans_table = table.table("plans");
    check_count(&plans_table, "plans");
    let mut dropping = DroppingPlans::new();
    let plan = |(name, value): (Located<String>, _)| {
        let (name, rule): (Box<str>, _) = (name.into_inner().into(), exception(&plans_table, scheme, value));
        dropping.extend(warn_of_dropped(&plans_table, scheme, value).map(|fault| (name.clone(), fault)));
        written.plans.extend(
            written_exception(value, rule.iter().flatten().next(), &written.usual)
                .map(|written| (name.clone(), written)),
        );
        (name, rule)
    };
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
            None => {
                warn_of_dropped(&overrides_table, scheme, value);
                let rule = exception(&overrides_table, scheme, value);
                written.overrides.extend(
                    written_exception(value, rule.iter().flatten().next(), &written.usual)
                        .map(|written| (text.clone(), written)),
                );
                rule
            }
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
    let plan_rates = plan_rates::compile(table, scheme, usual.as_ref());
    let allowed = alike(usual, plans, overrides).map(|allowed| Allowed { assigned, written, plan_rates, ..allowed });
    let allowed = fair_share::share(table, scheme, allowed);
    CompiledAllowed { allowed, capacities, dropping }
}

/// An override or a plan as it is written; `None` if it is unlimited or has an error.
pub(super) fn written_exception(
    value: &Spanned<DeValue<'_>>,
    rule: Option<&Algorithm>,
    usual: &WrittenRule,
) -> Option<WrittenRule> {
    let rule = rule?;
    if let Some((factor, Some(Ok(_)))) = value.get_ref().as_str().map(|text| (text, Factor::parse(text))) {
        let rates = usual.rates.iter().map(|rate| format!("{factor} of {rate}").into()).collect();
        return Some(WrittenRule { rates, rest: usual.rest.clone() });
    }
    let values = match value.get_ref() {
        DeValue::Table(table) => ["rate", "burst", "max"].map(|option| table.get(option).map(Spanned::get_ref)),
        value => [Some(value), None, None],
    };
    Some(written_rule(values, rule))
}

/// The rule of `table` as it is written there.
pub(super) fn written_in(table: &Table<'_>, rule: &Algorithm) -> WrittenRule {
    written_rule(["rate", "burst", "max"].map(|option| table.get(option).map(Spanned::get_ref)), rule)
}

/// A rule as its `rate`, `burst` and `max` are written.
fn written_rule([rate, burst, max]: [Option<&DeValue<'_>>; 3], rule: &Algorithm) -> WrittenRule {
    let rates: Box<[Box<str>]> = match (rate, max) {
        (Some(DeValue::Array(rates)), _) => {
            rates.iter().filter_map(|rate| rate.get_ref().as_str()).map(Into::into).collect()
        }
        (Some(rate), _) => rate.as_str().map(Into::into).into_iter().collect(),
        (None, max) => max.and_then(|max| max_text(max, rule)).map(Into::into).into_iter().collect(),
    };
    let burst = burst.and_then(number).map(|burst| format!(", burst {burst}")).unwrap_or_default();
    let algorithm = rule.rates().first().map_or_else(|| rule.name(), Algorithm::name).replace('_', " ");
    WrittenRule { rates, rest: format!("{burst}, {algorithm}").into() }
}

/// A `max` as it is written, with the bounds of one that follows the service.
fn max_text(max: &DeValue<'_>, rule: &Algorithm) -> Option<String> {
    let Algorithm::Concurrency(rule) = rule else { return None };
    Some(match rule.bound().map(|bound| bound.range()) {
        Some(Range { floor, ceiling }) => format!("max auto from {floor} to {ceiling}"),
        None => format!("max {}", number(max)?),
    })
}

fn number<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    value.as_integer().map(DeInteger::as_str)
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
    make_alike(&mut allowed);
    Some(allowed)
}

fn make_alike(Allowed { usual, plans, overrides, .. }: &mut Allowed) {
    let exceptions = plans.iter_mut().chain(overrides).filter_map(|(_, rule)| rule.as_mut());
    let rules: Vec<_> = std::iter::once(usual).chain(exceptions).collect();
    if rules.iter().any(|rule| matches!(rule, Algorithm::Several(_))) {
        for rule in rules {
            make_several(rule);
        }
    }
}

/// What a limit allows, with another usual rule.
pub(super) fn with_usual(allowed: &Allowed, usual: Algorithm, written: WrittenRule) -> Allowed {
    let mut allowed = Allowed { usual, ..allowed.clone() };
    allowed.written.usual = written;
    make_alike(&mut allowed);
    allowed
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
    let plan = inner.text_at("plan");
    for number in ["rate", "burst", "max"] {
        if let Some(value) = inner.get(number) {
            let help = "the plan has the numbers; write either of both";
            inner.fault(number, value.span(), ("does not go with `plan`", help));
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
        inner.fault("plan", plan.span(), ("the limit has no plan of this name", help));
    }
    Some(known.cloned().ok_or(BadAssignment))
}

/// How a value drops windows of a limit; `None` if it has a rate for the period of each, or has no rates.
pub(super) fn dropped_windows(scheme: &Scheme, value: &DeValue<'_>) -> Option<Fault> {
    let usual = scheme.usual_rates();
    let mut rates = written_rates(value).filter(|_| usual.len() > 1)?;
    let lacks = |usual: &&Located<WrittenRate>| !rates.iter().any(|rate| rate.is_as_long_as(usual.get_ref()));
    let lacking: Vec<_> = usual.iter().filter(lacks).map(|rate| *rate.get_ref()).collect();
    let list = |rates: &[WrittenRate], quote: char| {
        rates.iter().map(|rate| format!("{quote}{rate}{quote}")).collect::<Vec<_>>().join(", ")
    };
    let what = format!("drops {} of the limit", Some(list(&lacking, '`')).filter(|_| !lacking.is_empty())?);
    rates.extend(lacking);
    let help = format!("write `[{}]`, or a factor such as \"x2\", to keep every window", list(&rates, '"'));
    Some((what, help).into())
}

/// The valid rates of a value; `None` if it is no allowance by rates.
fn written_rates(value: &DeValue<'_>) -> Option<Vec<WrittenRate>> {
    match value {
        DeValue::String(text) => time_units::rate(text).ok().map(|rate| vec![rate]),
        DeValue::Array(items) => {
            Some(items.iter().filter_map(|item| written_rates(item.get_ref())).flatten().collect())
        }
        DeValue::Table(table) => written_rates(table.get("rate")?.get_ref()),
        _ => None,
    }
}

/// Warns of a plan or an override of the configuration that drops windows of the limit, and returns how.
fn warn_of_dropped(table: &Table<'_>, scheme: &Scheme, value: &Spanned<DeValue<'_>>) -> Option<Fault> {
    let dropped = dropped_windows(scheme, value.get_ref())?;
    table.warn("NAME", value.span(), "dropped_window", dropped.clone());
    Some(dropped)
}

pub(super) fn exception<'a>(
    table: &Table<'a>,
    scheme: &Scheme,
    value: &'a Spanned<DeValue<'a>>,
) -> Optional<Algorithm> {
    let factor = value.get_ref().as_str().and_then(Factor::parse);
    if let Some(factor) = factor {
        let factor = factor.map_err(|fault| table.fault("NAME", value.span(), fault)).ok()?;
        return scheme.scaled(table, "NAME", &value.span(), factor).map(Some);
    }
    match value.get_ref() {
        DeValue::String(text) if text == UNLIMITED => Some(None),
        DeValue::Table(_) => scheme.rule(&table.table_of("NAME", value)).map(Some),
        DeValue::String(_) | DeValue::Array(_) => {
            let option = schema::find(&table.path_of("NAME"))?;
            let rates = table.list_of("NAME", option, value, rate_or_word)?;
            scheme.of_rates(table, "NAME", &rates, None).map(Some)
        }
        _ => table.mismatched("NAME", schema::find(&table.path_of("NAME"))?, value),
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
