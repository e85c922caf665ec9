//! Attacks on request heads: lines, methods, hosts, targets and sizes.

use super::lab::Expect::{Closed, Open, Passes};
use super::lab::Lab;
use crate::support::{Client, Upstream, Weir};

/// All heads of this file on which two readers may differ.
pub fn corpus() -> Vec<Vec<u8>> {
    let paths = NO_PATHS.iter().copied().chain(PATHS.map(|(path, _)| path)).map(get);
    let texts = NO_HOSTS.map(with_lines).into_iter().chain(paths).map(String::into_bytes);
    NO_HEADS.iter().map(|head| head.to_vec()).chain(texts).collect()
}

/// Malformed heads.
const NO_HEADS: &[&[u8]] = &[
    b"GET /a HTTP/1.1\nhost: h\n\n",
    b"GET /a HTTP/1.1\r\nhost: h\n\r\n",
    b"GET /a HTTP/1.1\nhost: h\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\n\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx: a\rb\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx: a\r\r\n\r\n",
    b"GET /a HTTP/1.1\r\r\nhost: h\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n",
    b"GET /a HTTP/1.1\r\n host: h\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx: a\0b\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx\0: a\r\n\r\n",
    b"GET /a\0 HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx : a\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost : h\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx y: a\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\n: a\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx(y): a\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx\xff: a\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\nx: a\x7f\r\n\r\n",
    b" GET /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET  /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET /a  HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET\t/a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET /a b HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET(/a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"G@T /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"get /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"pOST /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"G\xc3\x89T /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"/a HTTP/1.1\r\nhost: h\r\n\r\n",
    b" /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"\r\n\r\n\r\nGET /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"\nGET /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"\0\0\0\0",
    b"\xff\xfe\xfd\xfc",
    b"{\"json\": true}",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client hello",
    b"\x80\x2e\x01\x00\x02 an SSLv2 one",
    b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    b"PRI * HTTP/2.0\r\nhost: h\r\n\r\n",
    b"PRI * HTTP/1.1\r\nhost: h\r\n\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET /a HTTP/1.1\r\nhost: h\r\n\r\n",
];

#[test]
fn malformed_lines_are_refused() {
    let lab = Lab::start("", "[timeouts]\nrequest_head = \"2s\"");
    lab.check_all("line", NO_HEADS, Closed(400));
    lab.check(&[
        ("a head without end", b"GET /a HTTP/1.1\r\nhost: h\r\n", Closed(408)),
        ("a word", b"GET", Closed(408)),
        ("empty lines before", b"\r\n\r\nGET /a HTTP/1.1\r\nhost: h\r\n\r\n", Passes("/a")),
        ("an unknown method", b"B!ND /a HTTP/1.1\r\nhost: h\r\n\r\n", Passes("/a")),
        ("high bytes in a value", b"GET /a HTTP/1.1\r\nhost: h\r\nx: \xff\xfe\r\n\r\n", Passes("/a")),
    ]);
}

#[test]
fn a_truncated_preface_ends_with_its_deadline() {
    let lab = Lab::start("", "[timeouts]\nrequest_head = \"2s\"");
    for len in [1, 3, 14, 18, 23] {
        let mut client = lab.client();
        client.send(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..len]);
        assert_eq!(client.rest(), b"", "{len}");
    }
    let mut client = lab.client();
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n");
    client.rest();
    lab.probe(&mut lab.client()).unwrap();
    assert_eq!(lab.upstream.received_count(), 1);
    lab.is_well();
}

/// Field lines without a valid single Host.
const NO_HOSTS: [&str; 34] = [
    "",
    "host: a\r\nhost: a\r\n",
    "host: a\r\nhost: b\r\n",
    "Host: a\r\nHOST: b\r\n",
    "host:\r\n",
    "host: \r\n",
    "host: u@weir.test\r\n",
    "host: u:p@weir.test\r\n",
    "host: weir.test/a\r\n",
    "host: http://weir.test\r\n",
    "host: weir.test?a\r\n",
    "host: weir.test#a\r\n",
    "host: weir.test\\a\r\n",
    "host: a,b\r\n",
    "host: a, b\r\n",
    "host: a b\r\n",
    "host: a;b\r\n",
    "host: a\"b\r\n",
    "host: a<b\r\n",
    "host: a%00b\r\n",
    "host: weir%2etest\r\n",
    "host: \u{e9}.test\r\n",
    "host: weir.test:x\r\n",
    "host: weir.test:80:80\r\n",
    "host: weir.test:-1\r\n",
    "host: weir.test: 80\r\n",
    "host: weir.test:65536\r\n",
    "host: :80\r\n",
    "host: [::1\r\n",
    "host: ::1\r\n",
    "host: []\r\n",
    "host: [::1]x\r\n",
    "host: [::1%25eth0]\r\n",
    "host: [a b]\r\n",
];

fn with_lines(lines: &str) -> String {
    format!("GET /a HTTP/1.1\r\n{lines}\r\n")
}

#[test]
fn exactly_one_valid_host_is_required() {
    let lab = Lab::start("", "");
    let refused = NO_HOSTS.map(with_lines);
    lab.check_all("host", &refused, Closed(400));
    let passing = ["a", "A.Test", "a:80", "a:", "192.0.2.1", "[::1]", "[::1]:8080", "a_b-c.test", "a.test."];
    let passing = passing.map(|host| with_lines(&format!("host: {host}\r\n")));
    lab.check_all("host", &passing, Passes("/a"));
}

#[test]
fn all_spellings_of_a_host_share_a_bucket() {
    let lab = Lab::start("", "[[limit]]\nname = \"one\"\nkey = []\nmatch = { host = \"weir.test\" }\nrate = \"1/h\"");
    let hosts = ["weir.test", "WEIR.test", "weir.test:80", "weir.test:", "weir.test.", "weir.test.:80"];
    let statuses = hosts.map(|host| {
        let answer = lab.client().send(format!("GET /a HTTP/1.1\r\nhost: {host}\r\n\r\n")).answer();
        answer.status
    });
    assert_eq!(statuses, [200, 429, 429, 429, 429, 429], "{hosts:?}");
    lab.is_well();
}

#[test]
fn targets_have_the_form_of_their_method() {
    let lab = Lab::start("", "");
    let absolute = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    lab.check(&[
        // RFC 9112, section 3.2.2: the authority of the target replaces Host.
        ("other host", absolute("http://other.test/a", "weir.test").as_bytes(), Passes("/a")),
        ("other port", absolute("http://weir.test:81/a", "weir.test").as_bytes(), Passes("/a")),
        ("default port", absolute("http://weir.test:80/a", "weir.test").as_bytes(), Passes("/a")),
        ("other host that is none", absolute("http://weir.test/a", "a/b").as_bytes(), Closed(400)),
        ("no host beside it", b"GET http://weir.test/a HTTP/1.1\r\n\r\n", Closed(400)),
        ("user", absolute("http://u@weir.test/a", "weir.test").as_bytes(), Closed(400)),
        ("user twice", absolute("http://u@weir.test/a", "u@weir.test").as_bytes(), Closed(400)),
        ("no host in it", absolute("http:///a", "weir.test").as_bytes(), Closed(400)),
        ("same host", absolute("http://weir.test/a", "WEIR.test").as_bytes(), Passes("/a")),
        ("no path", absolute("http://weir.test", "weir.test").as_bytes(), Passes("/")),
        ("only a query", absolute("http://weir.test?b", "weir.test").as_bytes(), Passes("/?b")),
        ("GET *", b"GET * HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("OPTIONS *", b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n", Passes("*")),
        ("OPTIONS **", b"OPTIONS ** HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("CONNECT", b"CONNECT other.test:443 HTTP/1.1\r\nhost: other.test:443\r\n\r\nhi", Closed(405)),
        ("CONNECT /", b"CONNECT / HTTP/1.1\r\nhost: h\r\n\r\n", Closed(405)),
        ("authority", b"GET weir.test:80 HTTP/1.1\r\nhost: weir.test:80\r\n\r\n", Closed(400)),
        ("relative", b"GET a HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("fragment", b"GET /a#b HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("fragment in query", b"GET /a?b#c HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("raw UTF-8", b"GET /\xc3\xa9 HTTP/1.1\r\nhost: h\r\n\r\n", Passes("/%C3%A9")),
        ("raw bytes in it", absolute("http://weir.test/é?\"é\"", "h").as_bytes(), Passes("/%C3%A9?%22%C3%A9%22")),
        ("only a raw query", absolute("http://weir.test?<é>", "h").as_bytes(), Passes("/?%3C%C3%A9%3E")),
        ("raw bytes in its host", absolute("http://é.test/", "h").as_bytes(), Closed(400)),
        ("raw Latin-1", b"GET /\xe9 HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("raw Latin-1 in query", b"GET /?\xa0 HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("tab in query", b"GET /?a\tb HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
        ("delete", b"GET /a\x7f HTTP/1.1\r\nhost: h\r\n\r\n", Closed(400)),
    ]);
}

const NO_PATHS: [&str; 16] = [
    "/a\\b",
    "/a%5cb",
    "/a%5Cb",
    "/a%2fb",
    "/a%2Fb",
    "/%2e%2e%2f",
    "/a%00",
    "/a%0a",
    "/a%0d%0ab",
    "/a%1f",
    "/a%7f",
    "/a%",
    "/a%4",
    "/a%zz",
    "/a%u0041",
    "/%%41",
];

/// Paths, and their forwarded form.
const PATHS: [(&str, &str); 19] = [
    ("/%2e%2e/a", "/a"),
    ("/a/%2e%2E/b", "/b"),
    ("/a/..", "/"),
    ("/../../a", "/a"),
    ("//a", "/a"),
    ("//other.test/a", "/other.test/a"),
    ("///", "/"),
    ("/./a/.", "/a/"),
    ("/a/..;/b", "/b"),
    ("/a/..;x=y/b", "/b"),
    ("/a/.;/b", "/a/b"),
    ("/%61", "/a"),
    ("/a?b=/../c%00", "/a?b=/../c%00"),
    ("/a?", "/a?"),
    ("/a??b", "/a??b"),
    ("/%252e%252e/a", "/%252e%252e/a"),
    ("/<é>`{}", "/%3C%C3%A9%3E%60%7B%7D"),
    ("/a?\"é\"<>\\^`{|}", "/a?%22%C3%A9%22%3C%3E%5C%5E%60%7B%7C%7D"),
    ("/a?%c3%a9[]%zz'?", "/a?%c3%a9[]%zz'?"),
];

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n")
}

#[test]
fn paths_are_forwarded_normalised() {
    let lab = Lab::start("", "");
    lab.check_all("path", &NO_PATHS.map(get), Open(400));
    for (target, forwarded) in PATHS {
        lab.check(&[(target, get(target).as_bytes(), Passes(forwarded))]);
    }
}

#[test]
fn heads_are_bounded() {
    let lab = Lab::start("", "");
    let lines = |count: usize| "x: y\r\n".repeat(count);
    let head = |lines: &str| format!("GET /a HTTP/1.1\r\nhost: h\r\n{lines}\r\n");
    let list = |count: usize| vec!["x"; count].join(",");
    let long = |len: usize| format!("x: {}\r\n", "y".repeat(len));
    let path: &'static str = Box::leak(format!("/{}", "a".repeat(8191)).into_boxed_str());
    lab.check(&[
        ("100 fields", head(&lines(99)).as_bytes(), Passes("/a")),
        ("101 fields", head(&lines(100)).as_bytes(), Closed(431)),
        ("5000 fields", head(&lines(5000)).as_bytes(), Closed(431)),
        ("a long value", head(&long(32_000)).as_bytes(), Passes("/a")),
        ("a longer value", head(&long(33_000)).as_bytes(), Closed(431)),
        ("no end", format!("GET /a HTTP/1.1\r\nx: {}", "y".repeat(100_000)).as_bytes(), Closed(431)),
        ("a long name", format!("GET /a HTTP/1.1\r\n{}: y\r\n\r\n", "x".repeat(40_000)).as_bytes(), Closed(431)),
        ("256 members", head(&format!("connection: {}\r\n", list(256))).as_bytes(), Passes("/a")),
        ("257 members", head(&format!("connection: {}\r\n", list(257))).as_bytes(), Closed(431)),
        (
            "members of several",
            head(&format!("trailer: {}\r\nTE: {}\r\n", list(200), list(57))).as_bytes(),
            Closed(431),
        ),
        ("8 KiB", get(path).as_bytes(), Passes(path)),
        ("8 KiB and one", get(&format!("{path}a")).as_bytes(), Closed(414)),
        ("20 KiB", get(&"/a".repeat(10_000)).as_bytes(), Closed(414)),
        ("a target without end", format!("GET /{}", "a".repeat(100_000)).as_bytes(), Closed(414)),
        ("a query", get(&format!("/?{}", "a".repeat(8192))).as_bytes(), Closed(414)),
        ("a method without end", "A".repeat(100_000).as_bytes(), Closed(431)),
        ("a long method", format!("{} /a HTTP/1.1\r\nhost: h\r\n\r\n", "A".repeat(20_000)).as_bytes(), Passes("/a")),
    ]);
}

#[test]
fn answers_say_what_is_wrong() {
    let weir = Weir::start(&Upstream::start(), "");
    for (head, status, allow, detail) in [
        ("get / HTTP/1.1\r\nhost: h", 400, None, "the head is not valid: method"),
        ("GET / HTTP/2.1\r\nhost: h", 400, None, "the head is not valid: version"),
        ("GET / HTTP/1.1\r\nhost: h\r\ncontent-length: x", 400, None, "the head is not valid: content-length"),
        (
            "CONNECT h:443 HTTP/1.1\r\nhost: h:443",
            405,
            Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            "CONNECT is not supported",
        ),
    ] {
        let answer = Client::connect(weir.address()).send(format!("{head}\r\n\r\n")).answer();
        assert_eq!((answer.status, answer.header("allow")), (status, allow), "{head}");
        assert!(answer.text().contains(&format!("\"{detail}\"")), "{head}: {}", answer.text());
    }
}
