//! The limits and routes that match a path: a trie over path segments.
//!
//! The trie finds all matches of a path in one walk. So the cost grows with the path and not with the number of limits.
//! If several patterns of a limit match, the most specific one counts: literal before `{name}` before `{*rest}`,
//! leftmost first.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::conditions::Match;
use super::pattern::{PathPattern, Segment};

/// A set of numbered entries, found by path.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    /// Entries without a path.
    everywhere: Vec<PathMatch<'static>>,
    root: Node,
    has_paths: bool,
}

/// An entry that matches, and its pattern as written; empty if the entry has no path.
#[derive(Clone, Copy, Debug)]
struct PathMatch<'m> {
    number: usize,
    route: &'m str,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, Node>,
    one: Option<Box<Node>>,
    here: Vec<Leaf>,
    rest: Vec<Leaf>,
    /// The entries of `rest` that also match a path that ends here.
    rest_or_end: Vec<Leaf>,
}

/// The end of a pattern.
#[derive(Clone, Debug)]
struct Leaf {
    limit: usize,
    route: Box<str>,
}

impl Matcher {
    /// A matcher of numbered conditions.
    pub(crate) fn of<'p>(all: impl Iterator<Item = (usize, &'p Match)> + Clone) -> Self {
        let everywhere = all.clone().filter(|(_, matches)| matches.paths.is_empty());
        let everywhere = everywhere.map(|(number, _)| PathMatch { number, route: "" }).collect();
        Self {
            everywhere,
            ..Self::over(all.flat_map(|(index, matches)| matches.paths.iter().map(move |path| (index, path))))
        }
    }

    /// A matcher of numbered path patterns. The entry with the most specific pattern is found first.
    pub(crate) fn over<'p>(paths: impl IntoIterator<Item = (usize, &'p PathPattern)>) -> Self {
        let mut matcher = Self::default();
        for (index, pattern) in paths {
            matcher.has_paths = true;
            matcher.root.insert(pattern.segments(), &Leaf { limit: index, route: pattern.as_str().into() });
        }
        matcher
    }

    /// Whether there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && !self.has_paths
    }

    /// Calls `each` once for every entry that matches `path`, with its pattern as written.
    #[inline]
    pub(crate) fn for_each_path_match<'m>(&'m self, path: &str, mut each: impl FnMut(usize, &'m str)) {
        let with_paths;
        let found: &[PathMatch<'m>] = if self.has_paths {
            with_paths = self.find(path);
            &with_paths
        } else {
            &self.everywhere
        };
        // One loop, so that the compiler inlines `each`.
        for one in found {
            each(one.number, one.route);
        }
    }

    #[inline(never)]
    fn find(&self, path: &str) -> PathMatches<'_> {
        let mut found = PathMatches::from_slice(&self.everywhere);
        if let Some(path) = path.strip_prefix('/') {
            self.root.collect(Some(path), &mut found);
        }
        found
    }
}

type PathMatches<'m> = SmallVec<[PathMatch<'m>; 8]>;

impl Node {
    fn insert(&mut self, segments: &[Segment], leaf: &Leaf) {
        match segments.split_first() {
            None => self.here.push(leaf.clone()),
            Some((Segment::Rest { or_end }, _)) => {
                self.rest.push(leaf.clone());
                self.rest_or_end.extend(or_end.then(|| leaf.clone()));
            }
            Some((Segment::One, tail)) => self.one.get_or_insert_default().insert(tail, leaf),
            Some((Segment::Literal(text), tail)) => {
                self.literals.entry(text.clone()).or_default().insert(tail, leaf);
            }
        }
    }

    /// Walks the most specific branch first, so the first leaf of an entry counts.
    fn collect<'m>(&'m self, path: Option<&str>, found: &mut PathMatches<'m>) {
        let Some(path) = path else {
            add(found, &self.here);
            return add(found, &self.rest_or_end);
        };
        let (segment, tail) = match path.split_once('/') {
            Some((segment, tail)) => (segment, Some(tail)),
            None => (path, None),
        };
        if let Some(child) = self.literals.get(segment) {
            child.collect(tail, found);
        }
        if let Some(child) = self.one.as_deref().filter(|_| !segment.is_empty()) {
            child.collect(tail, found);
        }
        add(found, &self.rest);
    }
}

fn add<'m>(found: &mut PathMatches<'m>, leaves: &'m [Leaf]) {
    for Leaf { limit, route } in leaves {
        if !found.iter().any(|known| known.number == *limit) {
            found.push(PathMatch { number: *limit, route });
        }
    }
}
