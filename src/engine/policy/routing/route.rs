//! The route of a request: the first match in configuration order.
//!
//! Routes have the same conditions as limits and use the same matcher. Not here: upstreams.

use std::sync::Arc;

use super::upgrades::Upgrades;
use crate::engine::policy::facts::Facts;
use crate::engine::policy::matching::conditions::Match;
use crate::engine::policy::matching::matcher::Matcher;
use crate::engine::policy::matching::path;

/// All `[[route]]` tables in configuration order.
#[derive(Debug)]
pub struct Routes {
    routes: Vec<Route>,
    matcher: Matcher,
}

/// A compiled `[[route]]`.
#[derive(Clone, Debug)]
pub struct Route {
    /// The requests of the route, unless an earlier route takes them.
    pub matches: Match,
    /// The index of the upstream.
    pub upstream: usize,
    /// The change of paths for the upstream; none if paths stay.
    pub rewrite: Option<Arc<Rewrite>>,
    /// The protocols that its clients may upgrade to; `None` for those of the upstream.
    pub upgrades: Option<Upgrades>,
    /// The maximum length of request bodies in bytes; `None` for that of the server.
    pub max_body_bytes: Option<u64>,
    /// The identities of which its requests need one, by their index in the policy; empty if they need none.
    pub require: Vec<usize>,
}

/// The change of a path for the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The start of the path that is removed, in whole segments: a normalised path without a slash at its end.
    pub strip: Box<str>,
    /// The text that is added in its place, of the same form.
    pub add: Box<str>,
    /// Whether locations in responses are changed back.
    pub locations: bool,
    /// The rules for reading `strip` and paths.
    pub paths: path::PathRules,
}

impl Route {
    /// The first path pattern; `*` if there is none.
    pub fn label(&self) -> &str {
        self.matches.paths.first().map_or("*", |pattern| pattern.as_str())
    }
}

impl Routes {
    /// Routes in configuration order.
    pub fn new(routes: Vec<Route>) -> Self {
        let matcher = Matcher::of(routes.iter().enumerate().map(|(index, route)| (index, &route.matches)));
        Self { routes, matcher }
    }

    /// All routes, in configuration order.
    pub fn all(&self) -> &[Route] {
        &self.routes
    }

    /// The first route that takes the request.
    pub fn find(&self, facts: &Facts<'_>) -> Option<&Route> {
        self.find_with_index(facts).map(|(_, route)| route)
    }

    /// The first route that takes the request, with its index.
    pub fn find_with_index(&self, facts: &Facts<'_>) -> Option<(usize, &Route)> {
        let mut first = usize::MAX;
        self.matcher.for_each_candidate(facts, |leaf| {
            if leaf.number < first && self.routes[leaf.number].matches.matches_beyond_path(facts) {
                first = leaf.number;
            }
        });
        self.routes.get(first).map(|route| (first, route))
    }

    /// Whether any route lets its clients upgrade to this protocol.
    pub fn allow_upgrade(&self, protocol: &[u8]) -> bool {
        let allows = |route: &Route| route.upgrades.as_ref().is_some_and(|all| all.find(protocol).is_some());
        self.routes.iter().any(allows)
    }
}

impl Rewrite {
    /// The path for the upstream, in two parts of which at least one is not empty.
    pub fn apply<'p>(&'p self, path: &'p str) -> (&'p str, &'p str) {
        match self.rest(path) {
            Some("") if self.add.is_empty() => ("", "/"),
            Some(rest) => (&self.add, rest),
            None => ("", path),
        }
    }

    /// The rest of a path after the removed segments, in any spelling of them. `None` if the path does not start with
    /// them.
    fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        let is_whole = |rest: &&str| rest.is_empty() || rest.starts_with('/');
        if let Some(rest) = path.strip_prefix(&*self.strip).filter(is_whole) {
            return Some(rest);
        }
        if !path.starts_with('/') {
            return None;
        }
        let is_dropped = |segment: &str| self.paths.fold.params && (segment.is_empty() || segment.starts_with(';'));
        let mut rest = path;
        for _ in self.strip.split('/').skip(1) {
            loop {
                let tail = rest.strip_prefix('/')?;
                let end = tail.find('/').unwrap_or(tail.len());
                rest = &tail[end..];
                if !is_dropped(&tail[..end]) {
                    break;
                }
            }
        }
        let start = &path[..path.len() - rest.len()];
        (self.paths.fold(start) == self.paths.fold(&self.strip)).then_some(rest)
    }

    /// The path for the client of a path of the upstream, in two parts. `None` if no client path becomes it.
    pub fn undo<'p>(&'p self, path: &'p str) -> Option<(&'p str, &'p str)> {
        let rest = path.strip_prefix(&*self.add)?;
        match rest {
            "" if self.strip.is_empty() => Some(("", "/")),
            "" => Some((&self.strip, "")),
            _ => rest.starts_with('/').then_some((&*self.strip, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::testing::facts;
    use crate::engine::policy::{HeaderTest, HostPattern, PathPattern};

    #[test]
    fn rewrites_and_their_inverse() {
        // strip, add, the client's path, the path for the upstream, the path for the client
        for (strip, add, path, applied, undone) in [
            ("", "", "/a", "/a", Some("/a")),
            ("/v1", "", "/v1/a", "/a", Some("/v1/a")),
            ("/v1", "", "/v1", "/", Some("/v1/")),
            ("/v1", "", "/v1a", "/v1a", Some("/v1/v1a")),
            ("", "/api", "/a", "/api/a", Some("/a")),
            ("", "/api", "", "/api", Some("/")),
            ("/v1", "/api", "/v1/a", "/api/a", Some("/v1/a")),
            ("/v1", "/api", "/v1", "/api", Some("/v1")),
            ("/v1", "/api", "/b", "/b", None),
            ("/v1", "/api", "/apis", "/apis", None),
        ] {
            let rewrite = Rewrite { strip: strip.into(), add: add.into(), ..Rewrite::default() };
            let joined = |(first, second): (&str, &str)| format!("{first}{second}");
            assert_eq!(joined(rewrite.apply(path)), applied, "{strip} {add} {path}");
            assert_eq!(rewrite.undo(applied).map(joined).as_deref(), undone, "{strip} {add} {path}");
        }
    }

    /// `paths hosts methods headers`, each a list with commas or `-` for all.
    fn matching(text: &str) -> Match {
        let mut lists = text.split(' ').map(|list| list.split(',').filter(|item| *item != "-"));
        let mut next = || lists.next().into_iter().flatten();
        Match {
            paths: next().map(|path| PathPattern::parse(path).unwrap()).collect(),
            hosts: next().map(host).collect(),
            methods: next().map(|method| method.parse().unwrap()).collect(),
            headers: next().map(header).collect(),
            ..Match::default()
        }
    }

    fn host(text: &str) -> HostPattern {
        text.strip_prefix('*')
            .map_or_else(|| HostPattern::Exact(text.into()), |suffix| HostPattern::Below(suffix.into()))
    }

    fn header(text: &str) -> (HeaderName, HeaderTest) {
        let (name, test) = text.split_once('=').map_or((text, HeaderTest::Present), |(name, value)| {
            (name, HeaderTest::Is(HeaderValue::from_str(value).unwrap()))
        });
        (name.parse().unwrap(), test)
    }

    /// The index of the route that takes `GET host path` with a header `x: 1`.
    fn taken(routes: &[&str], host: &str, path: &str) -> Option<usize> {
        let route = |(upstream, text): (usize, &&str)| Route {
            matches: matching(text),
            upstream,
            rewrite: None,
            upgrades: None,
            max_body_bytes: None,
            require: Vec::new(),
        };
        let routes = Routes::new(routes.iter().enumerate().map(route).collect());
        let mut headers = FieldBuf::default();
        headers.push(b"x", b"1");
        routes.find(&facts(host, path, &headers)).map(|route| route.upstream)
    }

    #[test]
    fn the_first_match_takes_the_request() {
        let routes = ["/a/{*rest} a.test", "/a/b", "/a/{*rest} - POST", "/{x} *.test", "- b.test,c.test", "- - - x=1"];
        for (host, path, index) in [
            ("a.test", "/a/b", 0),
            ("b.test", "/a/b", 1),
            ("b.test", "/a/c", 4),
            ("z.test", "/a/c", 5),
            ("b.test", "/y", 3),
            ("test", "/y", 5),
            ("c.test", "/", 4),
            ("", "*", 5),
        ] {
            assert_eq!(taken(&routes, host, path), Some(index), "{host} {path}");
        }
        assert_eq!(taken(&routes[..5], "z.test", "/a/c"), None);
        assert_eq!(taken(&[], "z.test", "/"), None);
    }

    #[test]
    fn the_first_of_many_routes_takes_the_request() {
        let mut routes: Vec<_> = (0..100).map(|number| format!("- {number}.test,*.{number}.test")).collect();
        routes.extend(["- 7.test", "-", "- 100.test"].map(Into::into));
        let routes: Vec<_> = routes.iter().map(String::as_str).collect();
        for (host, index) in [("7.test", 7), ("a.7.test", 7), ("a.b.99.test", 99), ("100.test", 101), ("", 101)] {
            assert_eq!(taken(&routes, host, "/"), Some(index), "{host}");
        }
        assert_eq!(taken(&routes[..100], "100.test", "/"), None);
    }

    #[test]
    fn rewrites_change_whole_segments() {
        for (strip, add, path, seen) in [
            ("/v1", "", "/v1/a/b", "/a/b"),
            ("/v1", "", "/v1", "/"),
            ("/v1", "", "/v1/", "/"),
            ("/v1", "", "/v10/a", "/v10/a"),
            ("/v1", "/api", "/v1/a", "/api/a"),
            ("/v1", "/api", "/v1", "/api"),
            ("/v1", "/api", "/v1/", "/api/"),
            ("/v1", "/api", "*", "*"),
            ("", "/api", "/a", "/api/a"),
            ("", "/api", "/", "/api/"),
            ("/a/b", "/c/d", "/a/b/c", "/c/d/c"),
        ] {
            let rewrite =
                Rewrite { strip: strip.into(), add: add.into(), locations: true, paths: path::PathRules::default() };
            let (start, rest) = rewrite.apply(path);
            assert_eq!(format!("{start}{rest}"), seen, "{strip} {add} {path}");
        }
    }

    #[test]
    fn a_removed_prefix_may_have_another_spelling() {
        let fold = path::Fold { case: true, trailing_slash: true, params: true };
        let paths = path::PathRules { fold, ..path::PathRules::default() };
        let rewrite = Rewrite { strip: "/V1/a".into(), add: "/x".into(), locations: true, paths };
        for (path, seen) in [
            ("/V1/a/B", "/x/B"),
            ("/v1/A;b=c/B/", "/x/B/"),
            ("/;y/v1;z/;w/%41/B", "/;y/v1;z/;w/%41/B"), // no normalised path has `%41`
            ("/;y/v1;z/;w/a/B;c", "/x/B;c"),
            ("/v1/a", "/x"),
            ("/v1/ab", "/v1/ab"),
            ("/v1", "/v1"),
            ("*", "*"),
        ] {
            let (start, rest) = rewrite.apply(path);
            assert_eq!(format!("{start}{rest}"), seen, "{path}");
        }
        let adds = Rewrite { strip: "".into(), add: "/x".into(), ..rewrite };
        assert_eq!([adds.apply("*"), adds.apply("/A")], [("", "*"), ("/x", "/A")]);
    }

    #[test]
    fn a_covering_route_is_detected() {
        for (earlier, later, covered) in [
            ("-", "-", true),
            ("-", "/a a.test GET x=1", true),
            ("/a", "-", false),
            ("/a", "/a", true),
            ("/{x}", "/a", true),
            ("/{x}", "/", false),
            ("/{x}", "/{y}", true),
            ("/{x}", "/{*y}", false),
            ("/{*x}", "/", true),
            ("/a/{*x}", "/a", false),
            ("/a/{*x}", "/a/", true),
            ("/a/{*x}", "/a/{y}/b", true),
            ("/a,/b", "/b", true),
            ("/a,/b", "/b,/c", false),
            ("/{x}/b", "/a/{y}", false),
            ("- a.test", "- a.test", true),
            ("- a.test", "- *.test", false),
            ("- *.test", "- a.test,*.b.test", true),
            ("- *.b.test", "- *.test", false),
            ("- *.test", "- test", false),
            ("- - GET", "- - GET,POST", false),
            ("- - GET,POST", "- - POST", true),
            ("- - - x=1", "-", false),
            ("- - - x=1", "- - - x=1,y", true),
            ("- - - x", "- - - x=1", true),
            ("- - - x=1", "- - - x", false),
        ] {
            assert_eq!(matching(earlier).covers(&matching(later)), covered, "{earlier} over {later}");
        }
    }

    proptest! {
        /// An earlier route that covers a later one matches all paths of the later one.
        #[test]
        fn a_covering_pattern_matches_all_paths_of_the_covered(
            wide in "(/([ab]|\\{x\\}|)){1,3}(/\\{\\*r\\})?",
            narrow in "(/([ab]|\\{x\\}|)){1,3}(/\\{\\*r\\})?",
            path in "(/[abc]?){1,4}",
        ) {
            if let (Ok(wide), Ok(narrow)) = (PathPattern::parse(&wide), PathPattern::parse(&narrow))
                && wide.covers(&narrow) && narrow.matches(&path)
            {
                prop_assert!(wide.matches(&path), "{} {} {path}", wide.as_str(), narrow.as_str());
            }
        }

        /// Two patterns that match one path overlap, and a pattern overlaps what it covers.
        #[test]
        fn patterns_of_one_path_overlap(
            one in "(/([ab]|\\{x\\}|)){1,3}(/\\{\\*r\\})?",
            other in "(/([ab]|\\{x\\}|)){1,3}(/\\{\\*r\\})?",
            path in "(/[abc]?){1,4}",
        ) {
            if let (Ok(one), Ok(other)) = (PathPattern::parse(&one), PathPattern::parse(&other)) {
                let both = one.matches(&path) && other.matches(&path);
                prop_assert!(!both && !one.covers(&other) || one.overlaps(&other), "{} {} {path}", one.as_str(), other.as_str());
                prop_assert_eq!(one.overlaps(&other), other.overlaps(&one));
            }
        }
    }
}
