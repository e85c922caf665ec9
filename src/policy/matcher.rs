//! Which limits a request meets: a trie over path segments, then host, method and headers.
//!
//! The trie finds the limits of a path in one walk, so the cost grows with the path and not with the number
//! of limits. Of several patterns of one limit the most specific counts: literal before `{name}` before
//! `{*rest}`, leftmost first.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue, Method};

use super::pattern::Segment;
use super::{Facts, Limit, PathPattern};

/// Which requests a limit sees: in each list any entry will do, an empty list excludes nothing.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Patterns of the normalised path.
    pub paths: Vec<PathPattern>,
    /// Hosts without port.
    pub hosts: Vec<HostPattern>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Headers, all of which must be as said.
    pub headers: Vec<(HeaderName, HeaderTest)>,
}

/// A host, or every host below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this host, in lower case.
    Exact(Box<str>),
    /// `*.example.com`: any host that ends in this text (`.example.com`) and is longer.
    Below(Box<str>),
}

/// What a header must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// Present, with any value.
    Present,
    /// Present with exactly this value among its values.
    Is(HeaderValue),
}

impl Match {
    pub(super) fn matches_beyond_path(&self, facts: &Facts<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(facts.method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(facts.host)))
            && self.headers.iter().all(|(name, test)| match test {
                HeaderTest::Present => facts.headers.contains_key(name),
                HeaderTest::Is(value) => facts.headers.get_all(name).iter().any(|found| found == value),
            })
    }
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => host == &**exact,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
        }
    }
}

/// The limits of a policy by path.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    everywhere: Vec<usize>,
    root: Node,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, Node>,
    one: Option<Box<Node>>,
    here: Vec<Leaf>,
    rest: Vec<Leaf>,
}

/// A pattern ends here.
#[derive(Clone, Debug)]
struct Leaf {
    limit: usize,
    route: Box<str>,
}

impl Matcher {
    pub(super) fn new(limits: &[Limit]) -> Self {
        let mut matcher = Self::default();
        for (index, limit) in limits.iter().enumerate() {
            if limit.matches.paths.is_empty() {
                matcher.everywhere.push(index);
            }
            for pattern in &limit.matches.paths {
                matcher.root.insert(pattern.segments(), &Leaf { limit: index, route: pattern.as_str().into() });
            }
        }
        matcher
    }

    /// Calls `each` once for every limit whose paths include `path`, with the pattern as written.
    pub(super) fn for_each_path_match<'m>(&'m self, path: &str, mut each: impl FnMut(usize, &'m str)) {
        for &index in &self.everywhere {
            each(index, "");
        }
        if self.root.is_empty() {
            return;
        }
        let mut found = Found::new();
        let Some(path) = path.strip_prefix('/') else { return };
        self.root.collect(Some(path), &mut found);
        for leaf in found {
            each(leaf.limit, &leaf.route);
        }
    }
}

type Found<'m> = smallvec::SmallVec<[&'m Leaf; 8]>;

impl Node {
    fn is_empty(&self) -> bool {
        self.literals.is_empty() && self.one.is_none() && self.rest.is_empty()
    }

    fn insert(&mut self, segments: &[Segment], leaf: &Leaf) {
        match segments.split_first() {
            None => self.here.push(leaf.clone()),
            Some((Segment::Rest, _)) => self.rest.push(leaf.clone()),
            Some((Segment::One, tail)) => self.one.get_or_insert_default().insert(tail, leaf),
            Some((Segment::Literal(text), tail)) => {
                self.literals.entry(text.clone()).or_default().insert(tail, leaf);
            }
        }
    }

    /// Walks the most specific branch first, so the first leaf of a limit is the one that counts.
    fn collect<'m>(&'m self, path: Option<&str>, found: &mut Found<'m>) {
        let Some(path) = path else {
            return add(found, &self.here);
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

fn add<'m>(found: &mut Found<'m>, leaves: &'m [Leaf]) {
    for leaf in leaves {
        if !found.iter().any(|known| known.limit == leaf.limit) {
            found.push(leaf);
        }
    }
}
