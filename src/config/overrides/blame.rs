//! Which overrides are to be left out because of problems, by the places of these.

use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Entry, limits_of, name_of};
use crate::config::diagnostics::Problem;

/// How often what does not fit is looked for one by one,
const ROUNDS_OF_ENTRIES: usize = 3;
/// and how often by its limit, before all is left out. Each round compiles the whole configuration.
const ROUNDS_OF_LIMITS: usize = 6;

/// What is to be left out, and why.
pub(super) struct Blame {
    /// Places among the entries, with the problem of each.
    whom: Vec<(usize, usize)>,
    /// Whether each problem is in its entry.
    is_within: bool,
    problems: Vec<Problem>,
}

impl Blame {
    /// Those in which a problem is; if there are none, all of the limits in which one is; if there are none either, all.
    /// The later the `round`, the more.
    pub(super) fn of(problems: Vec<Problem>, document: &DeTable<'_>, entries: &[Entry<'_>], round: usize) -> Self {
        let applies = |at: &usize| entries[*at].why_not.is_none();
        let mut own = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            own.insert(entry.key.span().start, at);
            each_place(entry.value, &mut |start| _ = own.insert(start, at));
        }
        let hits = |problem: &Problem| -> Vec<usize> {
            starts(problem).filter_map(|start| own.get(&start)).copied().filter(applies).collect()
        };
        let whom = by_problem(&problems, hits);
        if !whom.is_empty() && round < ROUNDS_OF_ENTRIES {
            return Self { whom, is_within: true, problems };
        }
        let mut of_limit = HashMap::new();
        for limit in limits_of(document) {
            let Some(name) = name_of(limit) else { continue };
            each_within(limit, &mut |start| _ = of_limit.insert(start, name));
        }
        let hits = |problem: &Problem| -> Vec<usize> {
            let limit = |start| of_limit.get(&start).copied().or_else(|| Some(entries[*own.get(&start)?].limit));
            let names: Vec<&str> = starts(problem).filter_map(limit).collect();
            (0..entries.len()).filter(applies).filter(|at| names.contains(&entries[*at].limit)).collect()
        };
        let whom = by_problem(&problems, hits);
        if !whom.is_empty() && round < ROUNDS_OF_LIMITS {
            return Self { whom, is_within: false, problems };
        }
        let whom = (0..entries.len()).filter(applies).map(|at| (at, 0)).collect();
        Self { whom, is_within: false, problems }
    }

    /// Leaves them out, and gives the problems that are the reason.
    pub(super) fn put(mut self, entries: &mut [Entry<'_>]) -> Vec<Problem> {
        let mut is_reason = vec![false; self.problems.len()];
        for (at, problem) in self.whom {
            let Some(reason) = self.problems.get_mut(problem) else { continue };
            if !self.is_within && reason.span.is_some() {
                reason.also.get_or_insert((entries[at].key.span(), "does not go with this"));
            }
            is_reason[problem] = true;
            let why = match &reason.help {
                Some(help) => format!("{} ({help})", reason.title),
                None => reason.title.clone(),
            };
            entries[at].why_not.get_or_insert(why);
        }
        self.problems
            .into_iter()
            .zip(is_reason)
            .filter_map(|(problem, is_reason)| is_reason.then_some(problem))
            .collect()
    }
}

fn by_problem(problems: &[Problem], hits: impl Fn(&Problem) -> Vec<usize>) -> Vec<(usize, usize)> {
    let each = problems.iter().enumerate();
    each.flat_map(|(at, problem)| hits(problem).into_iter().map(move |entry| (entry, at))).collect()
}

/// Where a problem is, and where what has to do with it. Both are always the places of keys or values.
fn starts(problem: &Problem) -> impl Iterator<Item = usize> {
    let also = problem.also.as_ref().map(|(span, _)| span);
    problem.span.iter().chain(also).map(|span: &Range<usize>| span.start)
}

/// Calls `each` with the beginning of the value, and of all keys and values in it.
fn each_place(value: &Spanned<DeValue<'_>>, each: &mut impl FnMut(usize)) {
    each(value.span().start);
    match value.get_ref() {
        DeValue::Array(items) => items.iter().for_each(|item| each_place(item, each)),
        DeValue::Table(table) => each_within(table, each),
        _ => {}
    }
}

fn each_within(table: &DeTable<'_>, each: &mut impl FnMut(usize)) {
    for (key, value) in table {
        each(key.span().start);
        each_place(value, each);
    }
}
