//! Which limits a request meets: a trie over path segments, then host, method and headers.
//!
//! The trie finds the limits of a path in one walk, so the cost grows with the path and not with the number
//! of limits. Of several patterns of one limit the most specific counts: literal before `{name}` before
//! `{*rest}`, leftmost first.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue, Method};
use smallvec::SmallVec;

use super::pattern::Segment;
use super::values::compared;
use super::{Facts, Limit, Mode, PathPattern, Stage};

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
        self.has_method(facts) && self.has_host(facts) && self.headers.iter().all(|header| has_header(header, facts))
    }

    pub(super) fn has_method(&self, facts: &Facts<'_>) -> bool {
        self.methods.is_empty() || self.methods.contains(facts.method)
    }

    pub(super) fn has_host(&self, facts: &Facts<'_>) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(facts.host))
    }
}

/// Whether a header of the request is as said.
pub(super) fn has_header((name, test): &(HeaderName, HeaderTest), facts: &Facts<'_>) -> bool {
    match test {
        HeaderTest::Present => facts.headers.contains(name.as_str()),
        HeaderTest::Is(value) => {
            let value = compared(value.as_bytes());
            facts.headers.all(name.as_str()).any(|found| compared(found) == value)
        }
    }
}

impl HostPattern {
    /// Whether every host that `other` matches is matched.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(host)) => self.matches(host),
            (Self::Below(suffix), Self::Below(narrower)) => narrower.ends_with(&**suffix),
            (Self::Exact(_), Self::Below(_)) => false,
        }
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => host == &**exact,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
        }
    }
}

/// The limits of one stage of a policy by path.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    /// Those without a path.
    everywhere: Vec<Found<'static>>,
    root: Node,
    has_paths: bool,
}

/// One that sees a path, and the pattern that matched, as written; empty if it has none.
#[derive(Clone, Copy, Debug)]
struct Found<'m> {
    number: usize,
    route: &'m str,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, Node>,
    one: Option<Box<Node>>,
    here: Vec<Leaf>,
    rest: Vec<Leaf>,
    /// Those of `rest` that also see a path that ends here.
    rest_or_end: Vec<Leaf>,
}

/// A pattern ends here.
#[derive(Clone, Debug)]
struct Leaf {
    limit: usize,
    route: Box<str>,
}

impl Matcher {
    /// Of the limits of `stage`, but those that are off.
    pub(super) fn new(limits: &[Limit], stage: Stage) -> Self {
        let is_decided = |limit: &Limit| limit.stage == stage && limit.mode != Mode::Off;
        let decided = limits.iter().enumerate().filter(|(_, limit)| is_decided(limit));
        Self::of(decided.map(|(index, limit)| (index, &limit.matches)))
    }

    /// Of anything that sees such requests, each with its number.
    pub(super) fn of<'p>(all: impl Iterator<Item = (usize, &'p Match)> + Clone) -> Self {
        let everywhere = all.clone().filter(|(_, matches)| matches.paths.is_empty());
        let everywhere = everywhere.map(|(number, _)| Found { number, route: "" }).collect();
        Self {
            everywhere,
            ..Self::over(all.flat_map(|(index, matches)| matches.paths.iter().map(move |path| (index, path))))
        }
    }

    /// Of anything that goes by paths alone, each pattern with the number of what it belongs to. What has the most
    /// specific pattern is found first.
    pub(super) fn over<'p>(paths: impl IntoIterator<Item = (usize, &'p PathPattern)>) -> Self {
        let mut matcher = Self::default();
        for (index, pattern) in paths {
            matcher.has_paths = true;
            matcher.root.insert(pattern.segments(), &Leaf { limit: index, route: pattern.as_str().into() });
        }
        matcher
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && !self.has_paths
    }

    /// Calls `each` once for every limit whose paths include `path`, with the pattern as written.
    #[inline]
    pub(super) fn for_each_path_match<'m>(&'m self, path: &str, mut each: impl FnMut(usize, &'m str)) {
        let with_paths;
        let found: &[Found<'m>] = if self.has_paths {
            with_paths = self.find(path);
            &with_paths
        } else {
            &self.everywhere
        };
        // One loop: from two the compiler would call what is to be done for each.
        for one in found {
            each(one.number, one.route);
        }
    }

    #[inline(never)]
    fn find(&self, path: &str) -> AllFound<'_> {
        let mut found = AllFound::from_slice(&self.everywhere);
        if let Some(path) = path.strip_prefix('/') {
            self.root.collect(Some(path), &mut found);
        }
        found
    }
}

type AllFound<'m> = SmallVec<[Found<'m>; 8]>;

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

    /// Walks the most specific branch first, so the first leaf of a limit is the one that counts.
    fn collect<'m>(&'m self, path: Option<&str>, found: &mut AllFound<'m>) {
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

fn add<'m>(found: &mut AllFound<'m>, leaves: &'m [Leaf]) {
    for Leaf { limit, route } in leaves {
        if !found.iter().any(|known| known.number == *limit) {
            found.push(Found { number: *limit, route });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use std::net::IpAddr;

    use http::header;
    use proptest::prelude::*;

    use super::*;
    use crate::limit::{Algorithm, OnFull, Quota, Rate};
    use crate::policy::client_ip::{AddressHeader, ClientIpRules};
    use crate::policy::{Allowed, Cost, FieldBuf, OnLimit, Policy};

    /// A limit that sees `paths`, and is ordinary otherwise.
    pub(crate) fn limit(name: &str, paths: &[&str]) -> Limit {
        let paths = paths.iter().map(|path| PathPattern::parse(path).unwrap()).collect();
        Limit {
            name: name.into(),
            stage: Stage::Identified,
            mode: Mode::Enforce,
            matches: Match { paths, ..Match::default() },
            except: Vec::new(),
            key: Vec::new(),
            allowed: Allowed::to_all(Algorithm::TokenBucket(
                Quota::new(Rate { count: 1, period_ns: 1_000_000_000 }, 1).unwrap(),
            )),
            cost: Cost::Units(1),
            after: None,
            on_limit: OnLimit::Reject,
            ban: None,
            max_keys: 1,
            on_full: OnFull::Shared,
            persist: false,
            is_listed: false,
        }
    }

    /// The request `METHOD HOST PATH`.
    struct Request {
        method: Method,
        host: &'static str,
        path: String,
        headers: FieldBuf,
        ip: IpAddr,
        is_free_preflight: bool,
    }

    impl Request {
        fn to(path: &str) -> Self {
            let ip = IpAddr::from([192, 0, 2, 1]);
            Self {
                method: Method::GET,
                host: "example.com",
                path: path.into(),
                headers: FieldBuf::default(),
                ip,
                is_free_preflight: false,
            }
        }

        /// `name=route` of every limit that applies, in the order of the configuration.
        fn meets(&self, stage: Stage, limits: &[Limit]) -> String {
            let client_ip =
                ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, ipv6_prefix: 64 };
            let policy = Policy::new(limits.to_vec(), Vec::new(), client_ip);
            let facts = Facts {
                method: &self.method,
                host: self.host,
                path: &self.path,
                query: None,
                headers: self.headers.fields(),
                client_ip: self.ip,
                is_free_preflight: self.is_free_preflight,
                certificate: None,
            };
            let mut found = Vec::new();
            policy.for_each_applied(stage, &facts, |applied| {
                found.push((applied.index, format!("{}={}", applied.limit.name, applied.route)));
            });
            found.sort();
            found.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn the_most_specific_pattern_of_a_limit_counts() {
        let all = ["/{*rest}", "/{a}/{b}", "/{a}/y", "/x/{b}", "/x/{*rest}", "/x/y", "/x", "/{a}", "/", "/x/y/"];
        for (patterns, path, route) in [
            (&all[..], "/", "/"),
            (&all, "/x", "/x"),
            (&all, "/z", "/{a}"),
            (&all, "/x/y", "/x/y"),
            (&all, "/x/y/", "/x/y/"),
            (&all, "/x/z", "/x/{b}"),
            (&all, "/z/y", "/{a}/y"),
            (&all, "/z/z", "/{a}/{b}"),
            (&all, "/x/", "/x/{*rest}"),
            (&all, "/x/z/z", "/x/{*rest}"),
            (&all, "/z/z/z", "/{*rest}"),
            (&all, "/z/", "/{*rest}"),
            // Leftmost first: the literal wins, although what follows it is less specific.
            (&["/{a}/y", "/x/{*rest}"], "/x/y", "/x/{*rest}"),
            (&["/{a}/y/z", "/x/{b}/z"], "/x/y/z", "/x/{b}/z"),
            // A branch that leads nowhere is left again.
            (&["/x/y/z", "/{a}/y/w"], "/x/y/w", "/{a}/y/w"),
            (&["/x/y/z", "/x/{*rest}"], "/x/y/w", "/x/{*rest}"),
        ] {
            assert_eq!(
                Request::to(path).meets(Stage::Identified, &[limit("l", patterns)]),
                format!("l={route}"),
                "{path}"
            );
        }
    }

    #[test]
    fn the_rest_may_be_missing_where_the_last_slash_does_not_count() {
        let fold = super::super::path::Fold { trailing_slash: true, ..Default::default() };
        let rules = super::super::path::Rules { fold, ..Default::default() };
        let folded = |mut limit: Limit| {
            limit.matches.paths = limit.matches.paths.into_iter().map(|path| path.folded(rules).unwrap()).collect();
            limit
        };
        let limits = [limit("rest", &["/a/{*rest}"]), limit("both", &["/a/{*rest}", "/a/"])].map(folded);
        for (path, met) in
            [("/a", "rest=/a/{*rest} both=/a/"), ("/a/b", "rest=/a/{*rest} both=/a/{*rest}"), ("/ab", ""), ("/", "")]
        {
            assert_eq!(Request::to(path).meets(Stage::Identified, &limits), met, "{path}");
        }
    }

    #[test]
    fn patterns_match_whole_paths() {
        for (pattern, path, matches) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/A", false),
            ("/a", "/ab", false),
            ("/a/", "/a", false),
            ("/a/", "/a/", true),
            ("/{x}", "/", false),
            ("/{x}", "/a", true),
            ("/{x}", "/a/", false),
            ("/{x}/", "/a/", true),
            ("/a/{x}", "/a/", false),
            ("/a/{x}/b", "/a/b", false),
            ("/{*rest}", "/", true),
            ("/{*rest}", "/a", true),
            ("/{*rest}", "/a/b/c/", true),
            ("/{*rest}", "*", false),
            ("/a/{*rest}", "/a", false),
            ("/a/{*rest}", "/a/", true),
            ("/a/{*rest}", "/a/b/c", true),
            ("/a/{*rest}", "/ab", false),
            ("/a%2A", "/ab", false),
            ("/a%2A", "/a%2A", true),
            ("/a%20b", "/a%20b", true),
        ] {
            let met = !Request::to(path).meets(Stage::Identified, &[limit("l", &[pattern])]).is_empty();
            assert_eq!(met, matches, "{pattern} {path}");
        }
    }

    #[test]
    fn every_limit_that_matches_applies_once() {
        let limits = [
            limit("all", &[]),
            limit("api", &["/api/{*rest}"]),
            limit("basket", &["/api/a", "/api/b", "/api/{x}"]),
            limit("a", &["/api/a"]),
            limit("a2", &["/api/a"]),
        ];
        for (path, expected) in [
            ("/", "all="),
            ("*", "all="),
            ("/api/", "all= api=/api/{*rest}"),
            ("/api/a", "all= api=/api/{*rest} basket=/api/a a=/api/a a2=/api/a"),
            ("/api/b", "all= api=/api/{*rest} basket=/api/b"),
            ("/api/c", "all= api=/api/{*rest} basket=/api/{x}"),
        ] {
            assert_eq!(Request::to(path).meets(Stage::Identified, &limits), expected, "{path}");
        }
    }

    #[test]
    fn beyond_the_path() {
        let name = || HeaderName::from_static("x-plan");
        let with = |matches| [Limit { matches, ..limit("l", &[]) }];
        let methods = with(Match { methods: vec![Method::GET, Method::PUT], ..Match::default() });
        let exact = HostPattern::Exact("example.com".into());
        let hosts = with(Match { hosts: vec![exact, HostPattern::Below(".example.org".into())], ..Match::default() });
        let present = with(Match { headers: vec![(name(), HeaderTest::Present)], ..Match::default() });
        let is = HeaderTest::Is(HeaderValue::from_static("a"));
        let both = with(Match { headers: vec![(name(), is), (header::TE, HeaderTest::Present)], ..Match::default() });
        for (limits, method, host, headers, matches) in [
            (&methods, "GET", "", &[][..], true),
            (&methods, "PUT", "", &[], true),
            (&methods, "POST", "", &[], false),
            (&hosts, "GET", "example.com", &[], true),
            (&hosts, "GET", "a.example.com", &[], false),
            (&hosts, "GET", "a.example.org", &[], true),
            (&hosts, "GET", "a.b.example.org", &[], true),
            (&hosts, "GET", "example.org", &[], false),
            (&hosts, "GET", ".example.org", &[], false),
            (&hosts, "GET", "badexample.org", &[], false),
            (&hosts, "GET", "", &[], false),
            (&present, "GET", "", &[], false),
            (&present, "GET", "", &[("x-plan", "")], true),
            (&both, "GET", "", &[("x-plan", "a")], false),
            (&both, "GET", "", &[("x-plan", "a"), ("te", "x")], true),
            (&both, "GET", "", &[("x-plan", "b"), ("x-plan", "a"), ("te", "x")], true),
            (&both, "GET", "", &[("x-plan", "A"), ("te", "x")], false),
        ] {
            let mut request = Request { method: method.parse().unwrap(), host, ..Request::to("/") };
            for (name, value) in headers {
                request.headers.push(name.as_bytes(), value.as_bytes());
            }
            let met = !request.meets(Stage::Identified, limits).is_empty();
            assert_eq!(met, matches, "{method} {host} {headers:?}");
        }
    }

    #[test]
    fn stages_modes_exceptions_and_preflights() {
        let limits = [
            Limit { stage: Stage::Arrival, ..limit("early", &[]) },
            Limit { mode: Mode::Shadow, ..limit("shadow", &[]) },
            Limit { mode: Mode::Off, ..limit("off", &[]) },
            Limit { except: vec!["192.0.2.0/24".parse().unwrap()], ..limit("except", &[]) },
        ];
        let mut request = Request::to("/");
        assert_eq!(request.meets(Stage::Arrival, &limits), "early=");
        assert_eq!(request.meets(Stage::Identified, &limits), "shadow=");
        request.ip = IpAddr::from([192, 0, 3, 1]);
        assert_eq!(request.meets(Stage::Identified, &limits), "shadow= except=");
        request.is_free_preflight = true;
        assert_eq!(request.meets(Stage::Identified, &limits), "");
        assert_eq!(request.meets(Stage::Arrival, &limits), "early=");
    }

    /// How specific a pattern is for a path, smallest first; `None` if it does not match. The slow, plain way.
    fn rank(pattern: &str, path: &str) -> Option<Vec<u8>> {
        let (mut pattern, mut path) = (pattern.split('/').skip(1), path.split('/').skip(1));
        let mut ranks = Vec::new();
        loop {
            ranks.push(match (pattern.next(), path.next()) {
                (None, None) => return Some(ranks),
                (Some("{*rest}"), Some(_)) => {
                    ranks.push(2);
                    return Some(ranks);
                }
                (Some("{x}"), Some(segment)) if !segment.is_empty() => 1,
                (Some(literal), Some(segment)) if literal == segment => 0,
                _ => return None,
            });
        }
    }

    proptest! {
        #[test]
        fn the_trie_agrees_with_trying_every_pattern(
            limits in prop::collection::vec(prop::collection::vec("(/(a|b|\\{x\\})){0,3}/(a|b|\\{x\\}|\\{\\*rest\\})?", 1..4), 1..5),
            path in "(/[ab]){0,4}/[abc]?",
        ) {
            let expected: Vec<_> = limits.iter().enumerate().filter_map(|(index, patterns)| {
                let ranked = patterns.iter().filter_map(|pattern| Some((rank(pattern, &path)?, pattern)));
                ranked.min().map(|(_, pattern)| format!("{index}={pattern}"))
            }).collect();
            let limits: Vec<_> = limits.iter().enumerate().map(|(index, patterns)| {
                limit(&index.to_string(), &patterns.iter().map(String::as_str).collect::<Vec<_>>())
            }).collect();
            prop_assert_eq!(Request::to(&path).meets(Stage::Identified, &limits), expected.join(" "));
        }
    }
}
