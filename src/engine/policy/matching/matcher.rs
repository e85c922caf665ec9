//! The limits and routes that may match a request: a trie over path segments.
//!
//! The trie finds all matches of a path in one walk. Many entries in one place of it are found by their hosts and headers
//! ([`Leaves`]). So the cost grows with the request and not with the number of limits. If several patterns of a limit
//! match, the most specific one counts: literal before `{name}` before `{*rest}`, leftmost first.
//!
//! Not here: whether an entry matches. It may still lack another host, header or method.

use std::collections::HashMap;

use super::conditions::Match;
use super::leaves::{Conditions, Found, Leaf, Leaves};
use super::pattern::{PathPattern, Segment};
use crate::engine::policy::facts::Facts;

/// A set of numbered entries.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    /// Entries without a path.
    everywhere: Leaves,
    root: Node,
    has_paths: bool,
    /// A search may find an entry by several of its patterns or hosts.
    has_alternatives: bool,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, Node>,
    one: Option<Box<Node>>,
    here: Leaves,
    rest: Leaves,
    /// The entries of `rest` that also match a path that ends here.
    rest_or_end: Leaves,
}

impl Matcher {
    /// A matcher of numbered conditions.
    pub(crate) fn of<'p>(all: impl Iterator<Item = (usize, &'p Match)>) -> Self {
        let all: Conditions<'_> = all.collect();
        let mut matcher = Self::over(all.iter().map(|(number, matches)| (*number, &matches.paths[..])));
        matcher.has_alternatives |= all.values().any(|matches| matches.hosts.len() > 1);
        matcher.everywhere.index(&all);
        matcher.root.index(&all);
        matcher
    }

    /// A matcher of numbered lists of path patterns. An empty list matches every path.
    pub(crate) fn over<'p>(all: impl IntoIterator<Item = (usize, &'p [PathPattern])>) -> Self {
        let mut matcher = Self::default();
        for (number, paths) in all {
            if paths.is_empty() {
                matcher.everywhere.push(Leaf { number, pattern: 0 });
            }
            for (pattern, path) in paths.iter().enumerate() {
                matcher.root.insert(path.segments(), Leaf { number, pattern });
            }
            matcher.has_paths |= !paths.is_empty();
            matcher.has_alternatives |= paths.len() > 1;
        }
        matcher
    }

    /// Whether there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && !self.has_paths
    }

    /// Calls `each` once for every entry that matches the path and may match the request, with the most specific
    /// pattern that matches.
    #[inline]
    pub(crate) fn for_each_candidate(&self, facts: &Facts<'_>, mut each: impl FnMut(Leaf)) {
        let found;
        let candidates = match self.everywhere.as_list() {
            Some(all) if !self.has_paths => all,
            _ => {
                found = self.candidates(facts);
                &found[..]
            }
        };
        // One loop, so that the compiler inlines `each`.
        for leaf in candidates {
            each(*leaf);
        }
    }

    #[inline(never)]
    fn candidates(&self, facts: &Facts<'_>) -> Found {
        let mut found = self.find(facts.path, Some(facts));
        if self.has_alternatives {
            // The sort is stable, so the most specific pattern stays.
            found.sort_by_key(|leaf| leaf.number);
            found.dedup_by_key(|leaf| leaf.number);
        }
        found
    }

    /// The patterns that match `path`, those of the most specific branch first; for a matcher without other conditions.
    pub(crate) fn path_matches(&self, path: &str) -> Found {
        self.find(path, None)
    }

    fn find(&self, path: &str, facts: Option<&Facts<'_>>) -> Found {
        let mut found = Found::new();
        self.everywhere.collect(facts, &mut found);
        if let Some(path) = path.strip_prefix('/') {
            self.root.collect(Some(path), facts, &mut found);
        }
        found
    }
}

impl Node {
    fn insert(&mut self, segments: &[Segment], leaf: Leaf) {
        match segments.split_first() {
            None => self.here.push(leaf),
            Some((Segment::Rest { or_end }, _)) => {
                self.rest.push(leaf);
                if *or_end {
                    self.rest_or_end.push(leaf);
                }
            }
            Some((Segment::One, tail)) => self.one.get_or_insert_default().insert(tail, leaf),
            Some((Segment::Literal(text), tail)) => {
                self.literals.entry(text.clone()).or_default().insert(tail, leaf);
            }
        }
    }

    fn index(&mut self, all: &Conditions<'_>) {
        for leaves in [&mut self.here, &mut self.rest, &mut self.rest_or_end] {
            leaves.index(all);
        }
        for child in self.literals.values_mut().chain(self.one.as_deref_mut()) {
            child.index(all);
        }
    }

    /// Walks the most specific branch first, so the first leaf of an entry counts.
    fn collect(&self, path: Option<&str>, facts: Option<&Facts<'_>>, found: &mut Found) {
        let Some(path) = path else {
            self.here.collect(facts, found);
            return self.rest_or_end.collect(facts, found);
        };
        let (segment, tail) = match path.split_once('/') {
            Some((segment, tail)) => (segment, Some(tail)),
            None => (path, None),
        };
        if let Some(child) = self.literals.get(segment) {
            child.collect(tail, facts, found);
        }
        if let Some(child) = self.one.as_deref().filter(|_| !segment.is_empty()) {
            child.collect(tail, facts, found);
        }
        self.rest.collect(facts, found);
    }
}
