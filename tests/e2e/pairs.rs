//! Pairs of requests over HTTP/1 and HTTP/2: requests that a service reads alike share a bucket, and no others.

use std::sync::atomic::{AtomicU32, Ordering};

use http::{HeaderName, HeaderValue, Request};
use serde_json::Value;

use crate::support::{Client, H2Client, Kind, NEVER, Server, Upstream, Weir, over_h2};

/// A request: the method, the target and the fields. `V` stands for the value that both requests of a pair have.
type Sent<'a> = (&'a str, &'a str, &'a [(&'a str, &'a [u8])]);

/// Both requests, and whether they share a bucket.
type Row<'a> = (Sent<'a>, Sent<'a>, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    H1,
    H2,
}

const PROTOCOLS: [(Protocol, Protocol); 4] = [
    (Protocol::H1, Protocol::H1),
    (Protocol::H1, Protocol::H2),
    (Protocol::H2, Protocol::H1),
    (Protocol::H2, Protocol::H2),
];

const LIMITS: &str = r#"
[identity.partner]
header = "x-partner"
on_missing = "ip"

[identity.team]
header = "x-team"
several = "join"

[[limit]]
name = "header"
match = { path = "/header" }
key = ["header:x-key"]
rate = "1/h"

[[limit]]
name = "joined"
match = { path = "/joined" }
key = ["header:x-key", "query:key", "cookie:key"]
several = "join"
rate = "1/h"

[[limit]]
name = "first"
match = { path = "/first" }
key = ["header:x-key", "query:key", "cookie:key"]
several = "first"
rate = "1/h"

[[limit]]
name = "last"
match = { path = "/last" }
key = ["header:x-key", "query:key", "cookie:key"]
several = "last"
rate = "1/h"

[[limit]]
name = "query"
match = { path = "/query" }
key = ["query:key"]
rate = "1/h"

[[limit]]
name = "cookie"
match = { path = "/cookie" }
key = ["cookie:key"]
rate = "1/h"

[[limit]]
name = "partner"
match = { path = "/partner" }
key = ["partner"]
rate = "1/h"

[[limit]]
name = "team"
match = { path = "/team" }
key = ["team"]
rate = "1/h"

[[limit]]
name = "path"
match = { path = "/path/{*rest}" }
key = ["path"]
rate = "1/h"

[[limit]]
name = "get"
match = { path = "/get/{*rest}", method = "GET" }
key = ["path"]
rate = "1/h"

[[limit]]
name = "kind"
match = { path = "/kind/{*rest}", header = { x-kind = "bot" } }
key = ["path"]
rate = "1/h"
"#;

const NO_FIELDS: &[(&str, &[u8])] = &[];

const ROWS: &[Row<'_>] = &[
    // White space around the value of a field.
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("X-Key", b"V")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b" V")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"V\t ")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"\xA0V")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"V \x85")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"\xC2\xA0V\xC2\x85")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"v V")]), false),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"V.")]), false),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"V,V")]), false),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"V,")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b" , V,,")]), true),
    (("GET", "/header", &[("x-key", b"V,a")]), ("GET", "/header", &[("x-key", b"V ,\ta")]), true),
    (("GET", "/header", &[("x-key", b"V,a")]), ("GET", "/header", &[("x-key", b"a,V")]), false),
    (("GET", "/header", NO_FIELDS), ("GET", "/header", &[("x-key", b"V")]), false),
    (("GET", "/partner", &[("x-partner", b"V")]), ("GET", "/partner", &[("x-partner", b" V\t")]), true),
    (("GET", "/partner", &[("x-partner", b"V")]), ("GET", "/partner", &[("x-partner", b"\x85V\xA0")]), true),
    (("GET", "/partner", &[("x-partner", b"V")]), ("GET", "/partner", &[("x-partner", b"V.")]), false),
    (("GET", "/partner", &[("x-partner", b"V")]), ("GET", "/partner", &[("x-partner", b"V,")]), true),
    (("GET", "/partner", &[("x-partner", b"V,a")]), ("GET", "/partner", &[("x-partner", b"V, a")]), true),
    (("GET", "/partner", NO_FIELDS), ("GET", "/partner", &[("x-partner", b"\xA0")]), true),
    (("GET", "/first", &[("x-key", b"V")]), ("GET", "/first", &[("x-key", b"V,"), ("x-key", b"a")]), true),
    // Repeated fields, where a limit allows them.
    (("GET", "/first", &[("x-key", b"V")]), ("GET", "/first", &[("x-key", b"V"), ("x-key", b"a")]), true),
    (("GET", "/first", &[("x-key", b"V")]), ("GET", "/first", &[("x-key", b"V"), ("X-KEY", b"V")]), true),
    (("GET", "/first", &[("x-key", b"V")]), ("GET", "/first", &[("x-key", b"aV"), ("x-key", b"V")]), false),
    (("GET", "/last", &[("x-key", b"V")]), ("GET", "/last", &[("x-key", b"a"), ("x-key", b"V")]), true),
    (("GET", "/last", &[("x-key", b"V")]), ("GET", "/last", &[("x-key", b"V"), ("x-key", b"V.")]), false),
    (("GET", "/joined", &[("x-key", b"V, a")]), ("GET", "/joined", &[("x-key", b"V"), ("x-key", b"a")]), true),
    (("GET", "/joined", &[("x-key", b"V, a")]), ("GET", "/joined", &[("x-key", b"V ,a,")]), true),
    (("GET", "/joined", &[("x-key", b"V, a")]), ("GET", "/joined", &[("x-key", b"a"), ("x-key", b"V")]), false),
    (("GET", "/team", &[("x-team", b"V, a")]), ("GET", "/team", &[("x-team", b"V"), ("x-team", b"\xA0a")]), true),
    (("GET", "/team", &[("x-team", b"V, a")]), ("GET", "/team", &[("x-team", b"V,a")]), true),
    (("GET", "/first?key=V", NO_FIELDS), ("GET", "/first?key=V&key=a", NO_FIELDS), true),
    (("GET", "/last?key=V", NO_FIELDS), ("GET", "/last?key=a&%6bey=V", NO_FIELDS), true),
    (("GET", "/joined?key=V&key=a", NO_FIELDS), ("GET", "/joined?key=V&b&key=%61", NO_FIELDS), true),
    (("GET", "/joined?key=V&key=a", NO_FIELDS), ("GET", "/joined?key=V", NO_FIELDS), false),
    (("GET", "/first", &[("cookie", b"key=V; key=a")]), ("GET", "/first", &[("cookie", b"key=V")]), true),
    (("GET", "/last", &[("cookie", b"key=a; key=V")]), ("GET", "/last", &[("cookie", b"key=V")]), true),
    // Escapes of parameters.
    (("GET", "/query?key=Vabc", NO_FIELDS), ("GET", "/query?key=V%61%62c", NO_FIELDS), true),
    (("GET", "/query?key=Vabc", NO_FIELDS), ("GET", "/query?%6B%65y=Vabc&a=b", NO_FIELDS), true),
    (("GET", "/query?key=V+a", NO_FIELDS), ("GET", "/query?key=V%20a", NO_FIELDS), true),
    (("GET", "/query?key=V", NO_FIELDS), ("GET", "/query?key=%20V+", NO_FIELDS), true),
    (("GET", "/query?key=V", NO_FIELDS), ("GET", "/query?key=VV", NO_FIELDS), false),
    (("GET", "/query?key=Va", NO_FIELDS), ("GET", "/query?key=VA", NO_FIELDS), false),
    (("GET", "/query?key=Vé", NO_FIELDS), ("GET", "/query?key=V%C3%a9", NO_FIELDS), true),
    (("GET", "/query?key=Và", NO_FIELDS), ("GET", "/query?key=V%c3%A0", NO_FIELDS), true),
    (("GET", "/query?key=Và", NO_FIELDS), ("GET", "/query?key=Vá", NO_FIELDS), false),
    (("GET", "/query?key=V{|}^", NO_FIELDS), ("GET", "/query?key=V%7b|%7d%5e", NO_FIELDS), true),
    // White space, quotes and escapes of cookies.
    (("GET", "/cookie", &[("cookie", b"key=V")]), ("GET", "/cookie", &[("cookie", b"a=b;  key = V ;c=d")]), true),
    (
        ("GET", "/cookie", &[("cookie", b"key=V")]),
        ("GET", "/cookie", &[("cookie", b"a=b"), ("cookie", b"key=V")]),
        true,
    ),
    (("GET", "/cookie", &[("cookie", b"key=V")]), ("GET", "/cookie", &[("cookie", b"\xA0key=V\xA0; a=b")]), true),
    (("GET", "/cookie", &[("cookie", b"key=Vab")]), ("GET", "/cookie", &[("cookie", b"key=\"V\\141b\"")]), true),
    (("GET", "/cookie", &[("cookie", b"key=Vab")]), ("GET", "/cookie", &[("cookie", b"%6bey=V%61b")]), true),
    (("GET", "/cookie", &[("cookie", b"key=V")]), ("GET", "/cookie", &[("cookie", b"key=vV")]), false),
    // Paths.
    (("GET", "/path/V", NO_FIELDS), ("GET", "/path/./a/..//V?b", NO_FIELDS), true),
    (("GET", "/path/Va", NO_FIELDS), ("GET", "/path/V%61", NO_FIELDS), true),
    (("GET", "/path/V", NO_FIELDS), ("GET", "/path/V.", NO_FIELDS), false),
    (("GET", "/path/Vé", NO_FIELDS), ("GET", "/path/V%c3%A9", NO_FIELDS), true),
    (("GET", "/path/Vé", NO_FIELDS), ("GET", "/path/Ve", NO_FIELDS), false),
    // Conditions of a limit.
    (("GET", "/get/V", NO_FIELDS), ("HEAD", "/get/V", NO_FIELDS), true),
    (("HEAD", "/get/V", NO_FIELDS), ("GET", "/get/V", NO_FIELDS), true),
    (("GET", "/get/V", NO_FIELDS), ("DELETE", "/get/V", NO_FIELDS), false),
    // Names that services fold.
    (("GET", "/first", &[("x-key", b"V")]), ("GET", "/first", &[("x_key", b"a"), ("x-key", b"V")]), true),
    (("GET", "/last", &[("x-key", b"V")]), ("GET", "/last", &[("x-key", b"V"), ("x.key", b"a")]), true),
    (("GET", "/header", &[("x-key", b"V")]), ("GET", "/header", &[("x-key", b"V"), ("x_key", b"a")]), true),
    (("GET", "/kind/V", &[("x-kind", b"bot")]), ("GET", "/kind/V", &[("x-kind", b" bot\t")]), true),
    (("GET", "/kind/V", &[("x-kind", b"bot")]), ("GET", "/kind/V", &[("x-kind", b"\xA0bot")]), true),
    (("GET", "/kind/V", &[("x-kind", b"bot")]), ("GET", "/kind/V", &[("x-kind", b"a"), ("x-kind", b"bot")]), true),
    (("GET", "/kind/V", &[("x-kind", b"bot")]), ("GET", "/kind/V", &[("x-kind", b"robot")]), false),
];

/// Requests that a limit refuses with 400.
const AMBIGUOUS: &[Sent<'_>] = &[
    ("GET", "/header", &[("x-key", b"a"), ("X-Key", b"b")]),
    ("GET", "/header", &[("x-key", b"a"), ("x-key", b"a")]),
    ("GET", "/query?key=a&key=b", NO_FIELDS),
    ("GET", "/query?key=a&b&k%65y", NO_FIELDS),
    ("GET", "/query?key=a&KEY=b", NO_FIELDS),
    ("GET", "/query?key=a&key[]=b", NO_FIELDS),
    ("GET", "/query?a=b;key=a&key=b", NO_FIELDS),
    ("GET", "/cookie", &[("cookie", b"key=a; key=b")]),
    ("GET", "/cookie", &[("cookie", b"key=a"), ("cookie", b"c=d; key=b")]),
    // `;` within quotes, with any `several`: servers disagree about the end of the value.
    ("GET", "/cookie", &[("cookie", b"c=\"; key=a\"")]),
    ("GET", "/first", &[("cookie", b"c=\"; key=a; d=\"; key=b")]),
    ("GET", "/last", &[("cookie", b"key=b; c=\"; key=a\"")]),
    ("GET", "/joined", &[("cookie", b"key=\"a;b\"")]),
];

/// Clients of one Weir over both protocols.
struct Clients<'w> {
    weir: &'w Weir,
    h2: H2Client,
}

impl Clients<'_> {
    /// The status of the answer, and the values that the service read.
    async fn ask(&mut self, by: Protocol, (method, target, fields): Sent<'_>, value: &str) -> (u16, Option<String>) {
        let put = |bytes: &[u8]| bytes.split(|&byte| byte == b'V').collect::<Vec<_>>().join(value.as_bytes());
        let target = String::from_utf8(put(target.as_bytes())).unwrap();
        match by {
            Protocol::H1 => {
                let mut head = format!("{method} {target} HTTP/1.1\r\nhost: weir.test\r\n").into_bytes();
                for (name, value) in fields {
                    head.extend([name.as_bytes(), b": ", &put(value), b"\r\n"].concat());
                }
                let mut client = Client::connect(self.weir.address());
                client.send(head).send("\r\n");
                let answer = if method == "HEAD" { client.head().unwrap() } else { client.answer() };
                (answer.status, answer.header("x-seen").map(str::to_owned))
            }
            Protocol::H2 => {
                let mut head = Request::builder().method(method).uri(format!("http://weir.test{target}"));
                for (name, value) in fields {
                    let name = name.parse::<HeaderName>().unwrap();
                    head = head.header(name, HeaderValue::from_bytes(&put(value)).unwrap());
                }
                let answer = self.h2.ask(head).await.unwrap();
                (answer.status, answer.header("x-seen").map(str::to_owned))
            }
        }
    }

    async fn share(&mut self, by: (Protocol, Protocol), one: Sent<'_>, other: Sent<'_>, value: &str) -> bool {
        let (first, _) = self.ask(by.0, one, value).await;
        let (second, _) = self.ask(by.1, other, value).await;
        match (first, second) {
            // An absent value has one bucket, which an earlier pair may have emptied.
            (200 | 429, 429) => true,
            (200 | 429, 200) => false,
            other => panic!("{one:?} {other:?}"),
        }
    }
}

/// A value that no other request has.
fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("v{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn equal_requests_share_a_bucket() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    over_h2(weir.address(), async |h2, _| {
        let mut clients = Clients { weir: &weir, h2 };
        let mut wrong = Vec::new();
        for &(one, other, expected) in ROWS {
            for by in PROTOCOLS {
                if clients.share(by, one, other, &fresh()).await != expected {
                    wrong.push(format!("{by:?} {one:?} {other:?}: {}", !expected));
                }
            }
        }
        assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong.join("\n"));
        for &said in AMBIGUOUS {
            for by in [Protocol::H1, Protocol::H2] {
                assert_eq!(clients.ask(by, said, "").await.0, 400, "{by:?} {said:?}");
            }
        }
    });
    assert!(weir.metric("weir_problems_total{kind=\"several_values\"}") >= AMBIGUOUS.len() as f64);
}

#[test]
fn a_repeated_value_is_named_and_not_charged() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"tried\"\nkey = [\"header:x-try\"]\nrate = \"1/h\"\nmode = \"shadow\"\n";
    let weir = Weir::start(&upstream, &format!("{LIMITS}{limit}"));
    let mut client = Client::connect(weir.address());
    let mut get = |fields: &str| client.send(format!("GET /header HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).answer();
    let answer = get("x-key: secret\r\nx-key: b\r\n");
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &problem["detail"]), (400, &"header:x-key has several values".into()));
    assert_eq!(get("x-key: secret\r\n").status, 200);
    // A limit in shadow mode refuses nothing.
    assert_eq!(get("x-key: c\r\nx-try: a\r\nx-try: b\r\n").status, 200);
    assert_eq!(upstream.received_count(), 2);
}

#[test]
fn white_space_around_values_is_not_forwarded() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, NEVER);
    let fields: &[(&str, &[u8])] = &[("x-a", b" \t1 "), ("x-b", b"\xA02\xA0"), ("x-c", b"3\t"), ("x-d", b" ")];
    over_h2(weir.address(), async |h2, _| {
        let mut clients = Clients { weir: &weir, h2 };
        for by in [Protocol::H1, Protocol::H2] {
            assert_eq!(clients.ask(by, ("GET", "/", fields), "").await.0, 200);
            let head = upstream.received().pop().unwrap().head;
            let lines: Vec<_> = head.lines().filter(|line| line.starts_with("x-")).take(4).collect();
            assert_eq!(lines, ["x-a: 1", "x-b: \u{FFFD}2\u{FFFD}", "x-c: 3", "x-d: "], "{by:?}");
        }
    });
}

#[test]
fn names_that_services_may_read_as_others_are_dropped_kept_or_refused() {
    let fields: &[(&str, &[u8])] = &[
        ("x_forwarded_for", b"192.0.2.1"),
        ("x.forwarded.for", b"192.0.2.1"),
        ("x-a", b"1"),
        ("content!length", b"3"),
    ];
    for (option, status, expected) in [
        ("", 200, &["x-a"][..]),
        ("underscores = \"keep\"", 200, &["x_forwarded_for", "x.forwarded.for", "x-a", "content!length"]),
        ("underscores = \"refuse\"", 400, &[]),
    ] {
        let upstream = Upstream::saying("HTTP/1.1 200 OK\r\nx_b: 1\r\ncontent-length: 0\r\n\r\n");
        let weir = Weir::start_with(&upstream, option, NEVER);
        over_h2(weir.address(), async |h2, _| {
            let mut clients = Clients { weir: &weir, h2 };
            for by in [Protocol::H1, Protocol::H2] {
                assert_eq!(clients.ask(by, ("GET", "/", fields), "").await.0, status, "{option} {by:?}");
                let Some(received) = upstream.received().pop() else { continue };
                let names: Vec<_> = received.head.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
                let sent = names.iter().filter(|name| fields.iter().any(|(field, _)| field == *name));
                assert_eq!(sent.copied().collect::<Vec<_>>(), expected, "{option} {by:?}");
            }
        });
        if status == 200 {
            // Fields of the answer are not checked.
            assert_eq!(Client::connect(weir.address()).get("/").header("x_b"), Some("1"));
        } else {
            assert!(upstream.received().is_empty());
        }
    }
}

/// Spellings of one value in each place, as far as services decode them.
const SPELLINGS: &[(&str, &[Sent<'_>])] = &[
    (
        "header",
        &[
            ("GET", "/header", &[("x-key", b"Vab")]),
            ("GET", "/header", &[("x-key", b" Vab ")]),
            ("GET", "/header", &[("x-key", b"\tVab\t")]),
            ("GET", "/header", &[("x-key", b"\xA0Vab\xA0")]),
            ("GET", "/header", &[("x-key", b"\x85 Vab")]),
            ("GET", "/header", &[("x-key", b"Vab\xC2\xA0")]),
            ("GET", "/header", &[("x-key", b"Vab\xC2")]),
            ("GET", "/header", &[("x-key", b"VAB")]),
            ("GET", "/header", &[("x-key", b"\"Vab\"")]),
            ("GET", "/header", &[("x-key", b"V%61b")]),
        ],
    ),
    (
        "query",
        &[
            ("GET", "/query?key=Vab", NO_FIELDS),
            ("GET", "/query?key=V%61b", NO_FIELDS),
            ("GET", "/query?%6bey=V%61%62", NO_FIELDS),
            ("GET", "/query?&a&key=Vab&b=c", NO_FIELDS),
            ("GET", "/query?key=+Vab%20", NO_FIELDS),
            ("GET", "/query?key=Vab%C2%A0", NO_FIELDS),
            ("GET", "/query?key=V%2561b", NO_FIELDS),
            ("GET", "/query?key=Vab;", NO_FIELDS),
            ("GET", "/query?key=Vé", NO_FIELDS),
            ("GET", "/query?key=V%c3%A9", NO_FIELDS),
            ("GET", "/query?key=V{}", NO_FIELDS),
            ("GET", "/query?key=V%7B}", NO_FIELDS),
        ],
    ),
    (
        "cookie",
        &[
            ("GET", "/cookie", &[("cookie", b"key=Vab")]),
            ("GET", "/cookie", &[("cookie", b" key=Vab ")]),
            ("GET", "/cookie", &[("cookie", b"a=b;key = Vab")]),
            ("GET", "/cookie", &[("cookie", b"a=b"), ("cookie", b"key=Vab")]),
            ("GET", "/cookie", &[("cookie", b"key=\"Vab\"")]),
            ("GET", "/cookie", &[("cookie", b"a=\"b; c=d\"; key=Vab")]),
            ("GET", "/cookie", &[("cookie", b"key=\"V\\141b\"")]),
            ("GET", "/cookie", &[("cookie", b"key=\"V\\a\\b\"; c=d")]),
            ("GET", "/cookie", &[("cookie", b"key=V\\141b")]),
            ("GET", "/cookie", &[("cookie", b"key=V%61b")]),
            ("GET", "/cookie", &[("cookie", b"KEY=Vab")]),
        ],
    ),
];

/// Services that return the values that they read in `x-seen`.
const NODE: &str = r#"
require("node:http").createServer((request, response) => {
    const query = new URL(request.url, "http://a").searchParams.get("key");
    const seen = [(request.headers["x-key"] ?? "").trim(), query?.trim(), request.headers.cookie];
    response.setHeader("x-seen", Buffer.from(JSON.stringify(seen)).toString("hex"));
    response.end("hello");
}).listen("socket");
"#;

const PYTHON: &str = r#"
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

def answer(environ, start_response):
    cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get("key")
    query = parse_qs(environ.get("QUERY_STRING", "")).get("key", [""])[0].strip()
    # As wsgiref does to all fields.
    seen = (environ.get("HTTP_X_KEY", "").strip(), query, cookie and cookie.value)
    start_response("200 OK", [("content-length", "5"), ("x-seen", repr(seen).encode().hex())])
    return [b"hello"]
"#;

#[test]
fn spellings_that_real_services_read_alike_share_a_bucket() {
    for (kind, text) in [(Kind::Node, NODE), (Kind::Gunicorn, PYTHON)] {
        let server = Server::running(kind, text);
        let upstream = format!("[upstream]\nurl = \"unix:{}\"\n", server.socket().display());
        let weir = Weir::with(&format!("{upstream}{LIMITS}"));
        over_h2(weir.address(), async |h2, _| {
            let mut clients = Clients { weir: &weir, h2 };
            for &(place, spellings) in SPELLINGS {
                let mut read = Vec::new();
                for by in [Protocol::H1, Protocol::H2] {
                    for &said in spellings {
                        let value = fresh();
                        // No limit matches this path.
                        let target = said.1.replacen(place, "read", 1);
                        let seen = clients.ask(by, (said.0, &target, said.2), &value).await.1.unwrap();
                        let marked = seen.replace(&hex(&value), "-");
                        // A service may find no value.
                        if marked.contains('-') {
                            read.push((by, said, marked));
                        }
                    }
                }
                let mut alike = 0;
                for (by, one, seen) in &read {
                    // The key depends on the request alone, so the first request that is read so stands for all others.
                    let (first_by, first, _) = read.iter().find(|(_, _, also)| also == seen).unwrap();
                    let share = clients.share((*first_by, *by), *first, *one, &fresh()).await;
                    assert!(share, "{kind:?} reads as one: {first_by:?} {first:?} and {by:?} {one:?}");
                    alike += usize::from(one != first);
                }
                assert!(alike > 0 || (kind, place) == (Kind::Node, "cookie"), "{kind:?} {place}: {read:?}");
            }
        });
    }
}

fn hex(text: &str) -> String {
    text.bytes()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}
