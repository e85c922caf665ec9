//! Requests of limits that belong to some of several routes.
//!
//! The first route that matches has a request; a limit of Weir has all requests of its `match` without those of `except`.

use std::collections::BTreeSet;

use super::draft::{Draft, SourceLine};
use super::limit::Match;

/// The requests of a route, in the order of precedence.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) place: SourceLine,
    pub(super) matches: Match,
}

/// The requests of the routes `users` of `all`, as pairs of `match` and paths of `except`. They are several if no limit can
/// have all of these requests. Notes other routes whose requests are among them.
pub(super) fn regions(all: &[Region], users: &BTreeSet<usize>, draft: &mut Draft) -> Vec<(Match, Vec<String>)> {
    if users.len() == all.len() {
        return vec![(Match::default(), Vec::new())];
    }
    let of_users: Vec<_> = users.iter().filter_map(|user| all.get(*user)).map(|user| &user.matches).collect();
    if let Some(matches) = joined(&of_users) {
        let except = excepted(all, users, &matches, draft);
        return vec![(matches, except)];
    }
    for user in users.iter().filter_map(|user| all.get(*user)) {
        draft.differs(user.place, "its limits share no budget with those of other routes in Weir");
    }
    let one = |user: usize| {
        let matches = all[user].matches.clone();
        let except = excepted(all, users, &matches, draft);
        (matches, except)
    };
    users.iter().copied().map(one).collect()
}

/// All requests of `matches`, if they differ in one list only.
fn joined(matches: &[&Match]) -> Option<Match> {
    let first = (*matches.first()?).clone();
    let only = |clear: fn(&mut Match) -> &mut Vec<String>| {
        let without = |one: &Match| {
            let mut one = one.clone();
            clear(&mut one).clear();
            one
        };
        let is_alike = matches.iter().all(|one| without(one) == without(&first));
        let lists: Vec<_> = matches.iter().map(|one| std::mem::take(clear(&mut (*one).clone()))).collect();
        let all: BTreeSet<_> = lists.iter().flatten().cloned().collect();
        let all = if lists.iter().any(Vec::is_empty) { Vec::new() } else { all.into_iter().collect() };
        let mut joined = first.clone();
        *clear(&mut joined) = all;
        is_alike.then_some(joined)
    };
    only(|one| &mut one.paths).or_else(|| only(|one| &mut one.hosts)).or_else(|| only(|one| &mut one.methods))
}

/// The paths of routes that go before those of `users` and are within `matches`.
fn excepted(all: &[Region], users: &BTreeSet<usize>, matches: &Match, draft: &mut Draft) -> Vec<String> {
    let mut except = Vec::new();
    for (index, other) in all.iter().enumerate().filter(|(index, _)| !users.contains(index)) {
        let later = users.range(index..).filter_map(|user| all.get(*user));
        let is_before = later.clone().any(|user| meets(&other.matches, &user.matches));
        if !is_before || !meets(&other.matches, matches) {
            continue;
        }
        let Match { hosts, paths, methods, headers } = &other.matches;
        let is_of_paths = !paths.is_empty()
            && (hosts.is_empty() || hosts == &matches.hosts)
            && (methods.is_empty() || methods == &matches.methods)
            && (headers.is_empty() || headers == &matches.headers);
        let mut earlier = users.range(..index).filter_map(|user| all.get(*user));
        if is_of_paths && !earlier.any(|user| meets(&other.matches, &user.matches)) {
            except.extend(paths.iter().cloned());
        } else {
            draft.differs(other.place, "Weir applies limits of later routes here, too");
        }
    }
    except
}

/// Whether both can have one request.
fn meets(one: &Match, other: &Match) -> bool {
    let meet = |one: &[String], other: &[String], meet: fn(&str, &str) -> bool| {
        one.is_empty() || other.is_empty() || one.iter().any(|one| other.iter().any(|other| meet(one, other)))
    };
    let is_host = |one: &str, other: &str| {
        let covers = |pattern: &str, host: &str| pattern.strip_prefix('*').is_some_and(|end| host.ends_with(end));
        one == other || covers(one, other) || covers(other, one)
    };
    let is_path = |one: &str, other: &str| {
        let covers =
            |pattern: &str, path: &str| pattern.strip_suffix("{*rest}").is_some_and(|start| path.starts_with(start));
        one == other || covers(one, other) || covers(other, one)
    };
    meet(&one.hosts, &other.hosts, is_host)
        && meet(&one.paths, &other.paths, is_path)
        && meet(&one.methods, &other.methods, |one, other| one == other)
}
