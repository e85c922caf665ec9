//! The limits that a policy applies to a request.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, header};
use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::client_ip::{AddressHeader, ClientIpRules, Prefixes};
use super::testing::{facts, limit};
use super::*;
use crate::base::fields::FieldBuf;

/// The request `METHOD HOST PATH`.
struct MatchedRequest {
    method: Method,
    host: &'static str,
    path: String,
    headers: FieldBuf,
    ip: IpAddr,
    is_free_preflight: bool,
}

impl MatchedRequest {
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

    fn facts(&self) -> Facts<'_> {
        Facts {
            method: &self.method,
            client_ip: self.ip,
            is_free_preflight: self.is_free_preflight,
            is_proxied: false,
            ..facts(self.host, &self.path, &self.headers)
        }
    }

    /// `name=route` of every limit that applies, in configuration order.
    fn meets(&self, stage: Stage, limits: &[Limit]) -> String {
        let client_ip =
            ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() };
        let policy = Policy::new(limits.to_vec(), Vec::new(), client_ip);
        let mut found = Vec::new();
        policy.for_each_applied(stage, &self.facts(), |applied| {
            found.push((applied.index, format!("{}={}", applied.limit.name, applied.route)));
        });
        found.sort();
        found.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn the_most_specific_pattern_counts() {
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
        // Leftmost first: the literal wins, although the rest of its pattern is less specific.
        (&["/{a}/y", "/x/{*rest}"], "/x/y", "/x/{*rest}"),
        (&["/{a}/y/z", "/x/{b}/z"], "/x/y/z", "/x/{b}/z"),
        // The search returns from a branch without a match.
        (&["/x/y/z", "/{a}/y/w"], "/x/y/w", "/{a}/y/w"),
        (&["/x/y/z", "/x/{*rest}"], "/x/y/w", "/x/{*rest}"),
    ] {
        assert_eq!(
            MatchedRequest::to(path).meets(Stage::Identified, &[limit("l", patterns)]),
            format!("l={route}"),
            "{path}"
        );
    }
}

#[test]
fn the_rest_may_be_missing_if_trailing_slashes_are_folded() {
    let fold = path::Fold { trailing_slash: true, ..Default::default() };
    let rules = path::PathRules { fold, ..Default::default() };
    let folded = |mut limit: Limit| {
        limit.matches.paths = limit.matches.paths.into_iter().map(|path| path.folded(rules).unwrap()).collect();
        limit
    };
    let limits = [limit("rest", &["/a/{*rest}"]), limit("both", &["/a/{*rest}", "/a/"])].map(folded);
    for (path, met) in
        [("/a", "rest=/a/{*rest} both=/a/"), ("/a/b", "rest=/a/{*rest} both=/a/{*rest}"), ("/ab", ""), ("/", "")]
    {
        assert_eq!(MatchedRequest::to(path).meets(Stage::Identified, &limits), met, "{path}");
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
        let met = !MatchedRequest::to(path).meets(Stage::Identified, &[limit("l", &[pattern])]).is_empty();
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
        assert_eq!(MatchedRequest::to(path).meets(Stage::Identified, &limits), expected, "{path}");
    }
}

#[test]
fn methods_hosts_and_headers() {
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
        let mut request = MatchedRequest { method: method.parse().unwrap(), host, ..MatchedRequest::to("/") };
        for (name, value) in headers {
            request.headers.push(name.as_bytes(), value.as_bytes());
        }
        let met = !request.meets(Stage::Identified, limits).is_empty();
        assert_eq!(met, matches, "{method} {host} {headers:?}");
    }
}

#[test]
fn regular_expressions_and_networks() {
    let regex = |text| TextRegex::new(text, false).unwrap();
    let name = HeaderName::from_static("user-agent");
    let limits = [
        Limit {
            matches: Match { path_regexes: vec![regex("[.]csv$"), regex("^/b/")], ..Match::default() },
            ..limit("path", &[])
        },
        Limit {
            matches: Match { path_regexes: vec![regex("[.]csv$")], ..limit("l", &["/a/{*rest}"]).matches },
            ..limit("both", &[])
        },
        Limit {
            matches: Match { headers: vec![(name, HeaderTest::Matches(regex("^curl/")))], ..Match::default() },
            ..limit("header", &[])
        },
        Limit {
            matches: Match { networks: ["192.0.2.0/24".parse().unwrap()].into_iter().collect(), ..Match::default() },
            ..limit("client", &[])
        },
    ];
    for (path, agent, client, expected) in [
        ("/a/x.csv", "a", "198.51.100.1", "path= both=/a/{*rest}"),
        ("/x.csv", "a", "198.51.100.1", "path="),
        ("/b/x", "curl/8", "192.0.2.255", "path= header= client="),
        ("/a/x.csv/", "a curl/8", "192.0.3.1", ""),
        ("/c", " curl/8", "198.51.100.1", "header="),
    ] {
        let mut request = MatchedRequest { ip: client.parse().unwrap(), ..MatchedRequest::to(path) };
        request.headers.push(b"user-agent", agent.as_bytes());
        assert_eq!(request.meets(Stage::Identified, &limits), expected, "{path} {agent} {client}");
    }
}

#[test]
fn stages_modes_exceptions_and_preflights() {
    let limits = [
        Limit { stage: Stage::Arrival, ..limit("early", &[]) },
        Limit { mode: Mode::Shadow, ..limit("shadow", &[]) },
        Limit { mode: Mode::Off, ..limit("off", &[]) },
        Limit {
            except: crate::engine::policy::Except {
                networks: ["192.0.2.0/24".parse().unwrap()].into_iter().collect(),
                ..Default::default()
            },
            ..limit("except", &[])
        },
    ];
    let mut request = MatchedRequest::to("/");
    assert_eq!(request.meets(Stage::Arrival, &limits), "early=");
    assert_eq!(request.meets(Stage::Identified, &limits), "shadow=");
    request.ip = IpAddr::from([192, 0, 3, 1]);
    assert_eq!(request.meets(Stage::Identified, &limits), "shadow= except=");
    request.is_free_preflight = true;
    assert_eq!(request.meets(Stage::Identified, &limits), "");
    assert_eq!(request.meets(Stage::Arrival, &limits), "early=");
}

/// The specificity of a pattern for a path, smallest first; `None` if it does not match. A simple model.
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

/// A few paths, hosts and headers, so that many limits are in one place of the trie.
fn matches() -> impl Strategy<Value = Match> {
    let path = prop::sample::select(vec!["/a", "/{x}", "/{*rest}"]);
    let hosts = ["a.test", "b.test", "A.test", "c.b.test", ".test", ".b.test", "test"];
    let host = |host: &str| {
        if host.starts_with('.') { HostPattern::Below(host.into()) } else { HostPattern::Exact(host.into()) }
    };
    let hosts = prop::collection::vec(prop::sample::select(hosts.to_vec()).prop_map(host), 0..3);
    let paths = prop::collection::vec(path.prop_map(|path| PathPattern::parse(path).unwrap()), 0..3);
    let methods = prop::collection::vec(prop::sample::select(vec![Method::GET, Method::PUT]), 0..2);
    let test = prop_oneof![
        Just(HeaderTest::Present),
        header_value().prop_map(|value| HeaderTest::Is(HeaderValue::from_bytes(value).unwrap())),
        Just(HeaderTest::Matches(TextRegex::new("1|a", false).unwrap())),
    ];
    let headers = prop::collection::vec((header_name().prop_map(|name| name.parse().unwrap()), test), 0..3);
    (paths, hosts, methods, headers).prop_map(|(paths, hosts, methods, headers)| Match {
        paths,
        hosts,
        methods,
        headers,
        ..Match::default()
    })
}

fn header_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["x-a", "x-b", "X-A", "cookie"])
}

fn header_value() -> impl Strategy<Value = &'static [u8]> {
    prop::sample::select(vec![&b"1"[..], b"2", b" 1", b"1\t", b"1\x85", b"\xC2\xA01", b"1, 2", b"1,2", b"", b"A", b"a"])
}

proptest! {
    #[test]
    fn the_index_agrees_with_a_linear_search(
        all in prop_oneof![prop::collection::vec(matches(), 0..20), prop::collection::vec(matches(), 50..100)],
        path in "/[ab]?|/a/b|\\*",
        host in prop::sample::select(vec!["a.test", "b.test", "c.b.test", "d.b.test", "A.test", "test", ".test", ""]),
        headers in prop::collection::vec((header_name(), header_value()), 0..6),
    ) {
        let headers = headers.into_iter().collect();
        let limits: Vec<_> = all.into_iter().enumerate()
            .map(|(index, matches)| Limit { matches, ..limit(&index.to_string(), &[]) })
            .collect();
        let request = MatchedRequest { host, headers, ..MatchedRequest::to(&path) };
        let expected: Vec<_> = limits.iter().filter_map(|limit| {
            let ranked = limit.matches.paths.iter().filter_map(|one| Some((rank(one.as_str(), &path)?, one.as_str())));
            let route = if limit.matches.paths.is_empty() { Some("") } else { ranked.min().map(|(_, route)| route) };
            let meets = limit.matches.matches_beyond_path(&request.facts());
            route.filter(|_| meets).map(|route| format!("{}={route}", limit.name))
        }).collect();
        prop_assert_eq!(request.meets(Stage::Identified, &limits), expected.join(" "));
    }

    #[test]
    fn the_trie_agrees_with_a_linear_search(
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
        prop_assert_eq!(MatchedRequest::to(&path).meets(Stage::Identified, &limits), expected.join(" "));
    }
}
