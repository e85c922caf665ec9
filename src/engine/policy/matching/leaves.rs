//! The entries in one place of the trie, with an index by host and header if they are many.
//!
//! The index has each entry under one of its conditions: the one that fewest other entries of the place have. So a search
//! tests the entries whose host or header the request has, however many others there are.
//!
//! Not here: the other conditions of an entry. Methods have no index, because there are few.

use std::collections::{BTreeMap, HashMap};

use http::HeaderName;
use smallvec::SmallVec;

use super::conditions::{HeaderTest, HostPattern, Match};
use super::values::compared;
use crate::base::fields::name_bit;
use crate::engine::policy::facts::Facts;

/// So many entries with hosts or headers have an index. Fewer are tested faster than a host is hashed.
const INDEXED_MIN: usize = 16;

/// The conditions of all entries by number.
pub(super) type Conditions<'p> = BTreeMap<usize, &'p Match>;

/// One pattern of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The number of the entry.
    pub number: usize,
    /// The index of the pattern among those of the entry; 0 if the entry has none.
    pub pattern: usize,
}

/// The leaves that a search finds.
pub(crate) type Found = SmallVec<[Leaf; 8]>;

/// The leaves in one place of the trie.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    /// The leaves that every search finds.
    always: Vec<Leaf>,
    index: Option<Box<Index>>,
}

#[derive(Debug, Default)]
struct Index {
    /// By host, or by the end of the host from a dot on.
    hosts: HashMap<Box<str>, Vec<Leaf>>,
    /// The length of the longest end of a host.
    end_len_max: usize,
    /// By name in lower case.
    headers: HashMap<Box<[u8]>, HeaderLeaves>,
    /// The filter bits of the names, and the length of the longest one.
    name_bits: u64,
    name_len_max: usize,
}

/// The leaves that need one header.
#[derive(Debug, Default)]
struct HeaderLeaves {
    present: Vec<Leaf>,
    /// By value in the form of [`compared`].
    values: HashMap<Box<[u8]>, Vec<Leaf>>,
}

/// A key of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Term<'p> {
    Host(&'p str),
    HostEnd(&'p str),
    Header(&'p HeaderName),
    Value(&'p HeaderName, &'p [u8]),
}

impl Leaves {
    pub(super) fn push(&mut self, leaf: Leaf) {
        self.always.push(leaf);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.always.is_empty() && self.index.is_none()
    }

    /// All leaves, if they have no index.
    #[inline]
    pub(super) fn as_list(&self) -> Option<&[Leaf]> {
        self.index.is_none().then_some(&self.always)
    }

    /// Moves the leaves that have hosts or headers into an index, if they are many.
    pub(super) fn index(&mut self, all: &Conditions<'_>) {
        if self.always.len() < INDEXED_MIN {
            return;
        }
        let matches = self.always.iter().map(|leaf| all.get(&leaf.number));
        let terms: Vec<_> = matches.map(|one| one.map_or_else(Vec::new, |one| terms(one))).collect();
        if terms.iter().filter(|terms| !terms.is_empty()).count() < INDEXED_MIN {
            return;
        }
        let mut sharing = HashMap::<Term<'_>, usize>::new();
        for term in terms.iter().flatten().flatten() {
            *sharing.entry(*term).or_default() += 1;
        }
        let mut index = Index::default();
        for (leaf, conditions) in std::mem::take(&mut self.always).into_iter().zip(&terms) {
            let most = |terms: &&SmallVec<_>| terms.iter().map(|term| sharing[term]).max();
            match conditions.iter().min_by_key(most) {
                Some(terms) => terms.iter().for_each(|term| index.insert(*term, leaf)),
                None => self.always.push(leaf),
            }
        }
        self.index = Some(Box::new(index));
    }

    /// Adds the leaves that may match a request; all of them if there is no index.
    #[inline]
    pub(super) fn collect(&self, facts: Option<&Facts<'_>>, found: &mut Found) {
        add(found, &self.always);
        if let (Some(index), Some(facts)) = (self.index.as_deref(), facts) {
            index.collect(facts, found);
        }
    }
}

/// A loop costs less than a copy of a few leaves.
#[inline]
fn add(found: &mut Found, leaves: &[Leaf]) {
    for leaf in leaves {
        found.push(*leaf);
    }
}

/// The conditions that an index can have, each as its keys. A request that meets the condition has one of them.
fn terms(matches: &Match) -> Vec<SmallVec<[Term<'_>; 1]>> {
    let hosts = matches.hosts.iter().map(|host| match host {
        HostPattern::Exact(host) => Some(Term::Host(host)),
        HostPattern::Below(end) => end.starts_with('.').then_some(Term::HostEnd(end)),
    });
    let headers = matches.headers.iter().map(|(name, test)| match test {
        HeaderTest::Present | HeaderTest::OneOf(_) | HeaderTest::Matches(_) => Term::Header(name),
        HeaderTest::Is(value) => Term::Value(name, compared(value.as_bytes())),
    });
    let hosts = hosts.collect::<Option<SmallVec<_>>>().filter(|hosts| !hosts.is_empty());
    hosts.into_iter().chain(headers.map(|term| SmallVec::from([term]))).collect()
}

impl Index {
    fn insert(&mut self, term: Term<'_>, leaf: Leaf) {
        match term {
            Term::Host(host) => self.hosts.entry(host.into()).or_default().push(leaf),
            Term::HostEnd(end) => {
                self.end_len_max = self.end_len_max.max(end.len());
                self.hosts.entry(end.into()).or_default().push(leaf);
            }
            Term::Header(name) => self.header(name).present.push(leaf),
            Term::Value(name, value) => self.header(name).values.entry(value.into()).or_default().push(leaf),
        }
    }

    fn header(&mut self, name: &HeaderName) -> &mut HeaderLeaves {
        let name = name.as_str().as_bytes();
        self.name_bits |= name_bit(name);
        self.name_len_max = self.name_len_max.max(name.len());
        self.headers.entry(name.into()).or_default()
    }

    #[inline(never)]
    fn collect(&self, facts: &Facts<'_>, found: &mut Found) {
        self.collect_by_host(facts.host, found);
        self.collect_by_header(facts, found);
    }

    fn collect_by_host(&self, host: &str, found: &mut Found) {
        let dots = memchr::memrchr_iter(b'.', host.as_bytes()).take_while(|at| host.len() - at <= self.end_len_max);
        let ends = dots.filter(|at| *at > 0).map(|at| &host[at..]);
        for leaves in ends.chain([host]).filter_map(|text| self.hosts.get(text)) {
            add(found, leaves);
        }
    }

    fn collect_by_header(&self, facts: &Facts<'_>, found: &mut Found) {
        // A field may be repeated; no list is added twice.
        let mut added = SmallVec::<[&Vec<Leaf>; 8]>::new();
        for (name, value) in facts.headers.with_bits(self.name_bits) {
            if name.len() > self.name_len_max {
                continue;
            }
            let name: SmallVec<[u8; 64]> = name.iter().map(u8::to_ascii_lowercase).collect();
            let Some(header) = self.headers.get(&name[..]) else { continue };
            let lists = [Some(&header.present), header.values.get(compared(value))];
            for list in lists.into_iter().flatten().filter(|list| !list.is_empty()) {
                if !added.iter().any(|known| std::ptr::eq(*known, list)) {
                    added.push(list);
                    add(found, list);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::matcher::Matcher;
    use super::super::pattern::PathPattern;
    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::testing::facts;

    fn candidates(all: &[Match], host: &str, headers: &[(&str, &str)]) -> usize {
        let headers: FieldBuf = headers.iter().copied().collect();
        let mut found = 0;
        Matcher::of(all.iter().enumerate()).for_each_candidate(&facts(host, "/api", &headers), |_| found += 1);
        found
    }

    fn host(text: &str) -> Vec<HostPattern> {
        let end = text.strip_prefix('*').map(|end| HostPattern::Below(end.into()));
        vec![end.unwrap_or_else(|| HostPattern::Exact(text.into()))]
    }

    fn header(name: &str, value: &str) -> (HeaderName, HeaderTest) {
        let is = |value| HeaderTest::Is(HeaderValue::from_str(value).unwrap());
        (name.parse().unwrap(), if value == "*" { HeaderTest::Present } else { is(value) })
    }

    type Entry<'f> = &'f dyn Fn(usize) -> Match;

    /// A search finds few of a thousand entries, whatever tells them apart.
    #[test]
    fn few_entries_are_candidates() {
        let hosts = |text: &str| Match { hosts: host(text), ..Match::default() };
        let headers = |headers: &[(&str, &str)]| Match {
            headers: headers.iter().map(|(name, value)| header(name, value)).collect(),
            ..Match::default()
        };
        let text = |number: usize| number.to_string();
        let fields = [("X-7", "7"), ("x-a", "7"), ("x-b", "b"), ("x-c", "7")];
        let entries: [(&str, Entry<'_>, usize); 9] = [
            ("host", &|n| hosts(&format!("{n}.test")), 1),
            ("host below", &|n| hosts(&format!("*.{n}.test")), 0),
            ("end of a host", &|n| hosts(&if n == 7 { "*.test".into() } else { format!("*.{n}.test") }), 1),
            ("header name", &|n| headers(&[(&format!("x-{n}"), "*")]), 1),
            ("header value", &|n| headers(&[("x-a", &text(n))]), 1),
            ("header value of one host", &|n| Match { hosts: host("7.test"), ..headers(&[("x-a", &text(n))]) }, 1),
            ("host of one header", &|n| Match { hosts: host(&format!("{n}.test")), ..headers(&[("x-b", "b")]) }, 1),
            ("second header", &|n| headers(&[("x-b", "b"), ("x-a", &text(n))]), 1),
            ("two headers", &|n| headers(&[("x-a", &text(n % 30)), ("x-c", &text(n / 30))]), 30),
        ];
        for (name, entry, expected) in entries {
            for path in [None, Some("/api"), Some("/{any}"), Some("/{*rest}")] {
                let path = path.map(|path| PathPattern::parse(path).unwrap());
                let entry = |number| Match { paths: path.iter().cloned().collect(), ..entry(number) };
                let all: Vec<_> = (0..1000).map(entry).collect();
                assert_eq!(candidates(&all, "7.test", &fields), expected, "{name}, {path:?}");
                assert_eq!(candidates(&all[..INDEXED_MIN - 1], "7.test", &fields), INDEXED_MIN - 1, "{name}, {path:?}");
            }
        }
    }

    #[test]
    fn a_repeated_field_finds_an_entry_once() {
        let entry = |header| Match { headers: vec![header], ..Match::default() };
        let own = [("x-a", "*"), ("x-a", "1"), ("x-a", "2")].map(|(name, value)| header(name, value));
        let others = (0..20).map(|number| header("x-b", &number.to_string()));
        let all: Vec<_> = own.into_iter().chain(others).map(entry).collect();
        for (values, expected) in [
            (&["1"; 100][..], 2),
            (&["1", "2", "1", "2"], 3),
            (&["1 ", "\t1", "1\u{a0}"], 2),
            (&["1, 2"], 1),
            (&["3", "3"], 1),
            (&[], 0),
        ] {
            let fields: Vec<_> = values.iter().map(|value| ("x-a", *value)).collect();
            assert_eq!(candidates(&all, "", &fields), expected, "{values:?}");
        }
    }
}
