//! Overrides set at run time. Each is compiled against its limit, and left out if it does not fit.

use std::collections::{HashMap, HashSet};

use super::allowed::{
    BadAssignment, Capacity, DroppingPlans, EXCEPTIONS_MAX, Exception, assignment, dropped_windows, exception,
    make_several, written_exception,
};
use super::override_key::{Keyed, check_text, note_same_key};
use super::rule::Scheme;
use crate::config::diagnostics::Problem;
use crate::config::overrides::{Entry, OverrideSet};
use crate::config::reader::{Fault, Table};
use crate::engine::limit::{Algorithm, Key};
use crate::engine::policy::{Allowed, Cost, WrittenRule};

/// The limit that overrides are checked against.
pub(super) struct Target<'t> {
    pub(super) name: &'t str,
    pub(super) scheme: &'t Scheme,
    pub(super) keyed: &'t Keyed<'t>,
    /// The plans that drop windows of the limit.
    pub(super) dropping: &'t DroppingPlans,
    pub(super) cost: &'t Cost,
    /// Whether `on_full = "sketch"` is written.
    pub(super) is_sketched: bool,
    /// The largest debt that a store has to keep; `None` if no store has the limit.
    pub(super) stored_debt: Option<u64>,
}

/// Adds the overrides of a limit to what it allows. They replace those of the configuration for the same keys.
pub(super) fn apply(set: &OverrideSet<'_>, target: &Target<'_>, allowed: &mut Allowed) {
    let entries = set.of_limit(target.name);
    let Some(first) = entries.first() else { return };
    let context = &set.context;
    if entries.len() + allowed.overrides.len() > EXCEPTIONS_MAX {
        let problem = Problem::new(first.key.span(), format!("a limit has at most {EXCEPTIONS_MAX} overrides"));
        for entry in entries {
            entry.reject(&problem);
        }
        return context.note(problem);
    }
    let table = Table::absent(context, "limit.overrides");
    let has_several = matches!(allowed.usual, Algorithm::Several(_));
    // The index of each key in `fitting`.
    let mut known: HashMap<Key, usize> = HashMap::new();
    let mut fitting: Vec<(&Entry<'_>, Fitting)> = Vec::new();
    let plans: Vec<Exception> = allowed.plans.iter().map(|(name, rule)| (name.clone(), Some(rule.clone()))).collect();
    for entry in entries {
        let noted = context.problems.borrow().len();
        let compiled = compile(&table, entry, target, (has_several, &plans, &allowed.written.usual));
        if let Some(problem) = context.problems.borrow().get(noted) {
            entry.reject(problem);
            continue;
        }
        let Some(compiled) = compiled else { continue };
        let index = *known.entry(compiled.key).or_insert(fitting.len());
        if let Some((first, _)) = fitting.get(index) {
            // It is unknown which one applies.
            note_same_key(&table, entry.key.span(), first.key.span());
            let problems = context.problems.borrow();
            if let Some(problem) = problems.last() {
                first.reject(problem);
                entry.reject(problem);
            }
        }
        fitting.push((entry, compiled));
    }
    fitting.retain(|(entry, _)| !entry.is_rejected());
    let set: HashSet<Key> = fitting.iter().map(|(_, fitting)| fitting.key).collect();
    allowed.overrides.retain(|(text, _)| target.keyed.key_of(text).is_none_or(|key| !set.contains(&key)));
    allowed.set_from = allowed.overrides.len();
    let kept: HashSet<&str> = allowed.overrides.iter().map(|(text, _)| &**text).collect();
    allowed.assigned.retain(|text, _| kept.contains(&**text));
    for (entry, Fitting { rule, plan, written, .. }) in fitting {
        let text: Box<str> = entry.text().into();
        allowed.assigned.extend(plan.map(|plan| (text.clone(), plan)));
        allowed.written.overrides.extend(written.map(|written| (text.clone(), written)));
        allowed.overrides.push((text, rule));
    }
}

/// An override that fits its limit.
struct Fitting {
    key: Key,
    /// `None` if the key has no limit.
    rule: Option<Algorithm>,
    /// The plan whose rule it is.
    plan: Option<Box<str>>,
    /// The rule as it is written; `None` if it is that of a plan, or there is none.
    written: Option<WrittenRule>,
}

/// The key of one override, and its rule. If it does not fit, notes why.
fn compile<'e>(
    table: &Table<'e>,
    entry: &'e Entry<'e>,
    target: &Target<'_>,
    (has_several, plans, usual): (bool, &[Exception], &WrittenRule),
) -> Option<Fitting> {
    let span = || entry.key.span();
    if let Err(fault) = check_text(entry.text(), target.keyed, false) {
        table.fault("NAME", span(), fault);
        return None;
    }
    let key = target.keyed.key_of(entry.text())?;
    let (plan, rule, dropped) = match assignment(table, entry.value, plans) {
        Some(Ok((plan, rule))) => {
            let dropped = target.dropping.get(&plan).cloned();
            (Some(plan), Some(rule?), dropped.map(|Fault { what, .. }| format!("this plan {what}")))
        }
        Some(Err(BadAssignment)) => return None,
        None => {
            let dropped = dropped_windows(target.scheme, entry.value.get_ref());
            let dropped = dropped.map(|Fault { what, help, .. }| format!("this {what}; {}", help.unwrap_or_default()));
            (None, exception(table, target.scheme, entry.value), dropped)
        }
    };
    if let Some(dropped) = dropped {
        entry.note_dropped(&dropped);
    }
    let written = written_exception(entry.value, rule.iter().flatten().next(), usual).filter(|_| plan.is_none());
    let mut rule = rule?;
    match &mut rule {
        Some(Algorithm::Several(_)) if !has_several => {
            let fault = Fault::new("must be one rate: several rates would reset all keys of this limit");
            let help = "an override can have several rates only if the limit, a plan or an override in the configuration has several";
            table.fault("NAME", span(), fault.help(help));
        }
        Some(rule) if has_several => make_several(rule),
        _ => {}
    }
    let portable = rule.as_ref().zip(target.stored_debt).map(|(rule, debt)| (rule.to_portable(debt), debt));
    if let Some((Err(error), debt)) = portable {
        let what = format!("a store cannot keep a debt of {debt} units under this override: it {error}");
        table.fault("NAME", span(), what);
    }
    let cost = target.cost.max();
    let capacity = rule.as_ref().map(|rule| Capacity::new(rule, " of this override"));
    if let Some(Capacity { units, name, .. }) = capacity.filter(|capacity| capacity.units < cost) {
        let title = format!("`limit.cost`: a cost of {cost} can never pass: {name} is {units}");
        table.context.note(Problem::new(span(), title));
    }
    if target.is_sketched {
        let title = "`limit.on_full`: `sketch` needs a token bucket with the same rule for every key";
        let help = "remove `on_full`; the default is then `shared`";
        table.context.note(Problem::new(span(), title).help(help));
    }
    Some(Fitting { key, rule, plan, written })
}
