//! `GET /v1/tap`: decisions as they happen.

use std::io::{BufRead, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::limiter;
use crate::ops::replace;
use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = r#"
[identity.seller]
header = "x-seller"
on_missing = "reject"

[[limit]]
name = "per-ip"
stage = "arrival"
key = ["ip"]
rate = "1000/day"

[[limit]]
name = "sellers"
key = ["seller"]
rate = "2/h"
"#;

/// A tap that is open.
pub struct Watcher(Client);

impl Watcher {
    pub fn open(weir: &Weir, query: &str) -> Self {
        Self::open_as(weir, query, "")
    }

    fn open_as(weir: &Weir, query: &str, more: &str) -> Self {
        let mut client = Client::connect(weir.admin());
        client.send(format!("GET /v1/tap{query} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"));
        let head = client.head().unwrap();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")), "{}", head.head);
        let mut watcher = Self(client);
        while watcher.line() != ": open" {}
        watcher
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.reader().read_line(&mut line).unwrap(), 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    /// The next decision. Sizes of chunks and comments come between events.
    pub fn next(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

fn get(weir: &Weir, target: &str) -> Answer {
    Client::connect(weir.admin()).send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer()
}

fn ask(weir: &Weir, path: &str, seller: &str) -> u16 {
    ask_on(&mut Client::connect(weir.address()), path, seller)
}

/// Asks on a connection, whose requests end one after another.
fn ask_on(client: &mut Client, path: &str, seller: &str) -> u16 {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: shop\r\n{seller}\r\n")).answer().status
}

#[test]
fn a_tap_shows_each_decision_with_its_keys() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    let mut all = Watcher::open(&weir, "");
    let mut one = Watcher::open(&weir, "?limit=sellers&key=secret-shop&refused_by=limit,ban");
    let seller = "X-Seller: secret-shop\r\n";
    let mut client = Client::connect(weir.address());
    let answers =
        [seller, "X-Seller: another\r\n", seller, seller, ""].map(|seller| ask_on(&mut client, "/a?token=1", seller));
    assert_eq!(answers, [200, 200, 200, 429, 401]);
    let seen = answers.map(|status| {
        let decision = all.next();
        assert_eq!((&decision["status"], &decision["path"]), (&json!(status), &json!("/a")), "{decision}");
        assert_eq!((&decision["client"], &decision["host"]), (&json!("127.0.0.1"), &json!("shop")));
        decision
    });
    let verdicts = seen.each_ref().map(|decision| decision["verdict"].as_str().unwrap());
    assert_eq!(verdicts, ["forwarded", "forwarded", "forwarded", "refused", "refused"]);
    let refused_by = seen.each_ref().map(|decision| decision["refused_by"].as_str());
    assert_eq!(refused_by, [None, None, None, Some("limit"), Some("identity")]);
    assert_eq!((&seen[0]["limit"], &seen[3]["limit"]), (&json!(null), &json!("sellers")));
    // The arrival stage has its key, also if the next one finds no seller.
    assert_eq!(seen[4]["keys"].as_array().unwrap().len(), 1);
    assert_eq!((&seen[4]["keys"][0]["limit"], &seen[4]["keys"][0]["key"]), (&json!("per-ip"), &json!("127.0.0.1")));
    let key = &seen[3]["keys"][1];
    assert!(key["key"].as_str().unwrap().starts_with("secr..#"), "{key}");
    let known = get(&weir, "/v1/keys?limit=sellers&key=secret-shop").text();
    assert!(known.contains(key["id"].as_str().unwrap()), "{known} {key}");

    // The other tap has only what it wants. A ban is a reason of its own.
    assert_eq!(one.next(), seen[3]);
    let ban = r#"{"limit": "sellers", "key": "secret-shop", "for": "forever"}"#;
    let head = format!(
        "POST /v1/bans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{ban}",
        ban.len()
    );
    assert_eq!(Client::connect(weir.admin()).send(head).answer().status, 200);
    assert_eq!(["X-Seller: another\r\n", seller].map(|seller| ask_on(&mut client, "/b", seller)), [200, 403]);
    let banned = one.next();
    assert_eq!((&banned["refused_by"], &banned["path"]), (&json!("ban"), &json!("/b")));
    assert_eq!((all.next()["verdict"].clone(), all.next()), (json!("forwarded"), banned));
}

#[test]
fn taps_are_bounded_and_end_with_their_readers_or_weir() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    let mut taps: Vec<_> = (0..8).map(|_| Watcher::open(&weir, "")).collect();
    assert_eq!(weir.metric("weir_taps"), 8.0);
    let refused = get(&weir, "/v1/tap");
    assert_eq!((refused.status, refused.header("content-type")), (503, Some("application/problem+json")));
    // Probes and scrapes have connections of their own.
    assert_eq!(get(&weir, "/readyz").status, 200);
    taps.remove(0);
    weir.wait_until("a free tap", || {
        ask(&weir, "/", "");
        weir.metric("weir_taps") < 8.0
    });
    let mut two = Watcher::open(&weir, "?count=2");
    for path in ["/1", "/2", "/3"] {
        ask(&weir, path, "");
    }
    assert_eq!([two.next(), two.next()].map(|decision| decision["path"].clone()), [json!("/1"), json!("/2")]);
    // The size of the last chunk.
    while two.line() != "0" {}
    drop(two);
    let mut last = Watcher::open(&weir, "?client=127.0.0.1&sample=1");
    ask(&weir, "/last", "");
    while last.next()["path"] != "/last" {}
    weir.signal("TERM");
    last.0.rest();
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn the_command_prints_requests_until_there_are_enough() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    let weir_tap = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("tap").args(arguments).args(["--admin", &weir.admin().to_string()]);
        command.env_remove("WEIR_ADMIN_TOKEN").stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    };
    let seller = "X-Seller: secret-shop\r\n";
    let mut taps = [
        weir_tap(&["sellers", "secret-shop", "--refused-by", "limit", "-n", "2"]),
        weir_tap(&["--count", "3", "--json"]),
        weir_tap(&["--client", "192.0.2.1"]),
    ];
    weir.wait_until("the taps", || weir.metric("weir_taps") == 3.0);
    let mut client = Client::connect(weir.address());
    let answers = [(); 4].map(|()| ask_on(&mut client, "/", seller));
    assert_eq!(answers, [200, 200, 429, 429]);
    let [mut refused, mut first] = [[200; 0].to_vec(), Vec::new()];
    for (tap, seen) in taps.iter_mut().zip([&mut refused, &mut first]) {
        let (code, out) = tap.end();
        assert_eq!(code, Some(0), "{out}");
        let statuses = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].as_u64().unwrap());
        seen.extend(statuses);
    }
    assert_eq!((refused, first), (vec![429, 429], vec![200, 200, 429]));
    // Ctrl-C ends it as usual; the end of Weir is a failure.
    let mut last = weir_tap(&[]);
    weir.wait_until("the other tap", || weir.metric("weir_taps") == 2.0);
    taps[2].signal("INT");
    assert_eq!(taps[2].end(), (Some(0), String::new()));
    weir.signal("TERM");
    assert_eq!(last.end(), (Some(1), String::new()));
    assert_eq!(weir_tap(&["none"]).end().0, Some(1));
    assert_eq!(weir_tap(&["--count", "0"]).end().0, Some(2));
}

/// A command; killed on drop.
struct Running(Child);

impl Running {
    /// Waits for the end. Returns the exit code and the output.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut out = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (self.0.wait().unwrap().code(), out)
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.0.id().to_string()).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn wrong_filters_are_problems() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    for (query, status, detail) in [
        ("?limit=none", 404, "no such limit"),
        ("?limit=none&key=a", 404, "no such limit"),
        ("?key=a", 400, "key: needs `limit`"),
        ("?limit=per-ip&key=a", 400, "ip"),
        ("?limit=sellers&key=a&id=b", 400, "excludes"),
        ("?verdict=refused,rejected", 400, "verdict: expected forwarded, held, refused, abandoned"),
        ("?refused_by=ban,list", 400, "refused_by: expected limit, ban, access, identity, overload, other"),
        ("?sample=0", 400, "sample"),
        ("?count=0", 400, "count"),
        ("?client=here", 400, "client"),
        ("?limits=a", 400, "limits"),
    ] {
        let answer = get(&weir, &format!("/v1/tap{query}"));
        assert!(
            answer.status == status && answer.text().contains(detail),
            "{query} {} {}",
            answer.status,
            answer.text()
        );
    }
    assert_eq!(weir.metric("weir_taps"), 0.0);
}

#[test]
fn a_token_that_is_gone_ends_its_tap() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(&upstream, "", LIMITS);
    let config = config.replacen("[admin]\n", "[admin]\ntoken = { file = \"token\" }\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    std::fs::write(folder.path().join("token"), "0123456789abcdef-one").unwrap();
    let weir = Weir::start_in(folder);
    assert_eq!(get(&weir, "/v1/tap").status, 401);
    let mut tap = Watcher::open_as(&weir, "", "Authorization: Bearer 0123456789abcdef-one\r\n");
    replace(&weir.folder().join("token"), "0123456789abcdef-two");
    let other = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef-two\r\n\r\n";
    weir.wait_until("the new token", || Client::connect(weir.admin()).send(other).answer().status == 200);
    // A decision ends it, in place of the next sign of life.
    ask(&weir, "/", "");
    tap.0.rest();
}

/// A caller of the limiter service has no path and no host: the event has the path of its call.
#[test]
fn a_tap_shows_checks_of_callers() {
    let upstream = Upstream::start();
    let tables = r#"
[[grpc.check]]
limits = { sellers = { "name:seller" = "{actor}" } }

[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "seller" }]
limits = { sellers = { "name:seller" = "{seller}" } }

[[limit]]
name = "sellers"
key = ["name:seller"]
rate = "1/day"
"#;
    let weir = limiter::start(&upstream, tables);
    let mut caller = limiter::Caller::of(&weir);
    let mut sellers = Watcher::open(&weir, "?limit=sellers&client=127.0.0.1");
    let mut refused = Watcher::open(&weir, "?verdict=refused");
    assert!(caller.ask("shop", "get", 1).0);
    assert!(!caller.ask("shop", "get", 1).0);
    limiter::rate_limit::ask(&weir, 0, &[("seller=shop", None)]).unwrap();
    let check = "/weir.v1.Limiter/Check";
    let envoy = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let seen = [(200, "forwarded", check), (429, "refused", check), (429, "refused", envoy)].map(|expected| {
        let decision = sellers.next();
        let of = |name: &str| decision[name].clone();
        let (status, verdict, path) = expected;
        assert_eq!([of("status"), of("verdict"), of("path")], [json!(status), json!(verdict), json!(path)]);
        assert_eq!(decision["keys"][0]["limit"], "sellers");
        decision
    });
    assert_eq!([&seen[0]["limit"], &seen[1]["limit"]], [&json!(null), &json!("sellers")]);
    assert_eq!([refused.next(), refused.next()], [seen[1].clone(), seen[2].clone()]);
}
