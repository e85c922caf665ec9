//! `weir explain`, by a file and in a running Weir.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Client, Upstream, Weir};

const LIMITS: &str = r#"
[identity.seller]
jwt = { claim = "sellerId", algorithms = ["HS256"], keys = [{ secret = { file = "secret" } }] }

[[limit]]
name = "flood"
stage = "arrival"
key = ["ip"]
rate = "50/s"
burst = 100

[[limit]]
name = "reports"
match = { path = "/report/{id}", method = "GET" }
key = ["header:x-api-key"]
rate = "2/h"
cost = 2

[[limit]]
name = "prices"
match = { path = "/prices", host = "shop.example" }
except = { ip = ["192.0.2.0/24"] }
key = ["path"]
rate = "1/h"
on_limit = "hold"

[[limit]]
name = "sellers"
match = { path = "/sellers" }
key = ["seller"]
rate = "1/s"

[[limit]]
name = "later"
key = []
rate = "1/s"
mode = "off"
"#;

fn start(upstream: &Upstream) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::write(folder.path().join("weir.toml"), Weir::config(upstream, "", LIMITS)).unwrap();
    Weir::start_in(folder)
}

fn explain(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_weir")).arg("explain").args(args).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

/// What follows `#` is different each time.
fn without_fingerprints(text: &str) -> String {
    text.split('#').enumerate().map(|(at, part)| if at == 0 { part } else { &part[8..] }).collect::<Vec<_>>().join("#")
}

#[test]
fn by_a_file_everything_is_unspent() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let ask = |args: &[&str]| {
        let (code, said) = explain(weir.folder(), &[&["--config", "weir.toml"], args].concat());
        assert_eq!(code, Some(0), "{said}");
        let offline = "offline: weir.toml with full buckets and without bans; no running Weir was asked\n";
        without_fingerprints(said.strip_prefix(offline).unwrap())
    };
    let args = ["--path", "/report/7?x=1", "--host", "Shop.example:80", "--ip", "192.0.2.7"];
    insta::assert_snapshot!(ask(&[&args[..], &["--header", "X-Api-Key: sk-0123456789"]].concat()), @r#"
    GET shop.example/report/7 from 192.0.2.7
    limit flood (arrival, enforce) applies
      key: ip = 192.0.2.7
      rule: 50/s, burst 100, token bucket, by limit; cost 1
      admits; remaining 99, reset after 20ms
    limit reports (identified, enforce) applies
      key: header:x-api-key = sk-0..#
      rule: 2/h, token bucket, by limit; cost 2
      admits; remaining 0, reset after 1h
    limit prices (identified, enforce) does not apply: match.path has no pattern for this path; except.ip has the client in 192.0.2.0/24
    limit sellers (identified, enforce) does not apply: match.path has no pattern for this path
    limit later (identified, off) does not apply: its mode is off
    decision: admitted: no limit refuses it; remaining 0
    "#);
    insta::assert_snapshot!(ask(&["--path", "/sellers", "--token", "abc"]), @r#"
    GET localhost/sellers from 127.0.0.1
    limit flood (arrival, enforce) applies
      key: ip = 127.0.0.1
      rule: 50/s, burst 100, token bucket, by limit; cost 1
      admits; remaining 99, reset after 20ms
    limit reports (identified, enforce) does not apply: match.path has no pattern for this path
    limit prices (identified, enforce) does not apply: match.path has no pattern for this path; match.host does not have this host
    limit sellers (identified, enforce) applies, but the request does not get so far
    limit later (identified, off) does not apply: its mode is off
    decision: refused: seller: the token is malformed
    "#);
}

/// A question has no body: the answer leaves open what limits that read it decide.
#[test]
fn what_the_body_decides_is_left_open() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "[upstream]\nurl = 'http://127.0.0.1:9'\n\
        [[limit]]\nname = 'large'\nmatch = { path = '/v1/{*rest}', json = { '/model' = 'large' } }\nkey = []\nrate = '1/s'\n\
        [[limit]]\nname = 'models'\nkey = ['json:/model']\nrate = '1/s'\n\
        [[limit]]\nname = 'tokens'\nkey = []\nrate = '9/s'\ncost = { json = '/max_tokens', default = 3, max = 9 }\n\
        [[limit]]\nname = 'all'\nkey = []\nrate = '2/s'\n";
    std::fs::write(folder.path().join("weir.toml"), limits).unwrap();
    let (code, said) = explain(folder.path(), &["--config", "weir.toml", "--method", "POST", "--path", "/v1/chat"]);
    let (_, said) = said.split_once('\n').unwrap();
    assert_eq!(code, Some(0), "{said}");
    insta::assert_snapshot!(said, @"
    POST localhost/v1/chat from 127.0.0.1
    limit large (identified, enforce) may apply; it depends on the body, which this question does not have
    limit models (identified, enforce) applies; it depends on the body, which this question does not have
      key: json:/model = (none)
      rule: 1/s, token bucket, by limit; cost 1
      admits; remaining 0, reset after 1s
    limit tokens (identified, enforce) applies; it depends on the body, which this question does not have
      key: one for all
      rule: 9/s, token bucket, by limit; cost 3
      admits; remaining 6, reset after 334ms
    limit all (identified, enforce) applies
      key: one for all
      rule: 2/s, token bucket, by limit; cost 1
      admits; remaining 1, reset after 500ms
    decision: admitted: no limit refuses it; remaining 0
    ");
    let (_, said) = explain(folder.path(), &["--config", "weir.toml", "--json"]);
    let told: Value = serde_json::from_str(&said[..=said.rfind('}').unwrap()]).unwrap();
    let limits = told["limits"].as_array().unwrap();
    let reasons: Vec<_> = limits.iter().map(|limit| limit["reason"].as_str().unwrap()).collect();
    let open = "it depends on the body, which this question does not have";
    let wanted = [
        "does not apply".to_owned(),
        format!("admits: the request takes 1, and 0 remain; {open}"),
        format!("admits: the request takes 3, and 6 remain; {open}"),
        "admits: the request takes 1, and 1 remain".to_owned(),
    ];
    assert_eq!(reasons, wanted);
}

#[test]
fn a_running_weir_says_what_is_so_and_charges_nothing() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let url = format!("http://{}/", weir.admin());
    let ask = || {
        let args = ["--admin", &url, "--path", "/report/1", "--header", "x-api-key: k", "--json"];
        let (code, said) = explain(weir.folder(), &args);
        assert_eq!(code, Some(0), "{said}");
        let told: Value = serde_json::from_str(&said).unwrap();
        (told["decision"].as_str().unwrap().to_owned(), told["remaining"].as_u64(), told["violated"].to_string())
    };
    for _ in 0..3 {
        assert_eq!(ask(), ("admitted".to_owned(), Some(0), "[]".to_owned()));
    }
    let head = "GET /report/1 HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\n\r\n";
    assert_eq!(Client::connect(weir.address()).send(head).answer().status, 200);
    assert_eq!(ask(), ("refused".to_owned(), Some(0), "[\"reports\"]".to_owned()));
    let refused = Client::connect(weir.address()).send(head).answer();
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (429, Some("0")));
    // A question is no decision.
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"reports\"}"), 1.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"reports\"}"), 1.0);
}

/// An operator states the identity and the plan; the route and every reason are in the answer.
#[test]
fn an_operator_states_the_client() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let routes = format!(
        "[plans]\nfrom = 'seller.plan'\n[access.deny]\nidentity = {{ seller = ['bad'] }}\n\
         [upstreams.api]\nendpoints = ['http://{0}']\n[upstreams.other]\nendpoints = ['http://{0}']\n\
         [[route]]\nmatch = {{ path = '/other/{{*rest}}' }}\nupstream = 'other'\n\
         [[route]]\nmatch = {{ path = ['/sellers', '/bulk', '/shop'] }}\nupstream = 'api'\n\
         [[limit]]\nname = 'bulk'\nmatch = {{ path = '/bulk' }}\nkey = ['seller']\nrate = '1/h'\n\
         plans = {{ big = '9/h' }}\n\
         [identity.shop]\nheader = 'x-shop'\n\
         [[limit]]\nname = 'shops'\nmatch = {{ path = '/shop' }}\nkey = ['shop']\nrate = '5/h'\n",
        upstream.address()
    );
    std::fs::write(folder.path().join("weir.toml"), Weir::text(&format!("{LIMITS}{routes}"))).unwrap();
    let weir = Weir::start_in(folder);
    let ask = |more: Value| {
        let mut body = serde_json::json!({ "method": "GET", "host": "a", "ip": "192.0.2.1" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = body.to_string();
        let head = format!(
            "POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = Client::connect(weir.admin()).send(head).send(body).answer();
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let of = |told: &Value, name: &str| {
        told["limits"].as_array().unwrap().iter().find(|one| one["limit"] == name).unwrap().clone()
    };
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (_, told) = ask(json(r#"{"path": "/bulk", "identities": {"seller": "7"}}"#));
    assert_eq!((&told["decision"], &told["route"]["number"]), (&json("\"admitted\""), &json("2")), "{told}");
    assert_eq!((&told["route"]["upstream"], &told["route"]["paths"][1]), (&json("\"api\""), &json("\"/bulk\"")));
    let bulk = of(&told, "bulk");
    assert_eq!(bulk["reason"], "admits: the request takes 1, and 0 remain");
    assert_eq!((&bulk["strategy"], &bulk["budget"]["from"]), (&json("\"local\""), &json("\"limit\"")));
    assert_eq!(of(&told, "sellers")["reason"], "does not apply");
    // The claim of a token is no secret; the value of a header may be one, and is shown as for a request.
    assert_eq!(bulk["budget"]["key"], json(r#"[["seller", "7"]]"#));
    let (_, stated) = ask(json(r#"{"path": "/shop", "identities": {"shop": "shop-4711"}}"#));
    let (_, shown) = ask(json(r#"{"path": "/shop", "headers": [["x-shop", "shop-4711"]]}"#));
    assert_eq!(of(&stated, "shops"), of(&shown, "shops"), "{stated}");
    assert!(!stated.to_string().contains("shop-4711") && !of(&stated, "shops")["budget"].is_null(), "{stated}");
    let (_, told) = ask(json(r#"{"path": "/bulk", "identities": {"seller": 7}, "plan": "big"}"#));
    assert_eq!(of(&told, "bulk")["budget"]["from"], "plan big");
    let (_, told) = ask(json(r#"{"path": "/bulk", "identities": {"seller": "bad"}}"#));
    assert_eq!((&told["decision"], &told["refused_by"]), (&json("\"refused\""), &json("\"access\"")));
    let (_, told) = ask(json(r#"{"path": "/bulk"}"#));
    assert_eq!(told["refused_by"], "identity");
    let (_, told) = ask(json(r#"{"path": "/none", "identities": {"seller": "7"}}"#));
    assert_eq!((&told["refused_by"], &told["route"]), (&json("\"other\""), &Value::Null));
    for (more, why) in [
        (
            r#"{"path": "/", "identities": {"buyer": "7"}}"#,
            "there is no identity `buyer`; the configuration has `seller`",
        ),
        (r#"{"path": "/", "identities": {"seller": ""}}"#, "`seller` is empty"),
        (r#"{"path": "/", "identities": {"seller": ["7"]}}"#, "`seller`: expected a text or a whole number"),
        (r#"{"path": "/", "identities": 7}"#, "expected a map"),
    ] {
        let (status, problem) = ask(json(more));
        assert!(status == 400 && problem["detail"].as_str().unwrap().contains(why), "{more}: {problem}");
    }
    let config = weir.config_file();
    let by_file = |args: &[&str]| {
        let args = [&["--config", config.to_str().unwrap(), "--path", "/bulk"], args].concat();
        explain(weir.folder(), &args)
    };
    let (code, said) = by_file(&["--identity", "seller=7", "--plan", "big"]);
    assert!(code == Some(0) && said.contains("route 2 (/sellers, /bulk, /shop) to upstream api"), "{said}");
    assert!(said.contains("by plan big; cost 1"), "{said}");
    let (code, said) = by_file(&["--identity", "buyer=7"]);
    assert!(code == Some(1) && said.contains("there is no identity `buyer`"), "{said}");
    assert_eq!(by_file(&["--identity", "seller"]).0, Some(2));
}

#[test]
fn what_goes_wrong_has_an_exit_code() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let url = weir.admin().to_string();
    std::fs::write(weir.folder().join("broken.toml"), "[upstream]\n").unwrap();
    for (args, code, words) in [
        (&["--config", "broken.toml"][..], 3, "url"),
        (&["--config", "missing.toml"], 3, "cannot read"),
        (&["--config", "weir.toml", "--header", "x"], 2, "name: value"),
        (&["--config", "weir.toml", "--ip", "here"], 2, "--ip"),
        (&["--config", "weir.toml", "--path", "/a%2Fb"], 1, "weir: path: "),
        (&["--config", "weir.toml", "--method", "post"], 1, "weir: method: has lower-case letters"),
        (&["--admin", &url, "--path", "/a%2Fb"], 1, "400 Bad Request: path: "),
        (&["--config", "weir.toml", "--plan", "nope"], 1, "weir: plan: there is no plan `nope`"),
        (
            &["--admin", &url, "--plan", "nope"],
            1,
            "400 Bad Request: plan: there is no plan `nope`; the configuration has none",
        ),
        (&["--admin", "127.0.0.1:1"], 1, "does not answer"),
    ] {
        let (found, said) = explain(weir.folder(), args);
        assert!(found == Some(code) && said.contains(words), "{args:?}: {found:?} {said}");
    }
}

#[test]
fn lists_and_plans_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let access = "[upstream]\nurl = \"http://127.0.0.1:9\"\n[access]\ndeny = { path = \"/internal/{*rest}\" }\n\
        allow = { ip = \"192.0.2.7\" }\nrequire = [{ path = \"/pro\", plan = \"premium\" }]\n\
        [plans]\nfrom = \"header:x-plan\"\n[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"";
    std::fs::write(folder.path().join("weir.toml"), access).unwrap();
    for (path, ip, plan, said) in [
        ("/internal/a", "192.0.2.1", "premium", "decision: refused: this path is refused"),
        ("/a", "192.0.2.7", "free", "decision: admitted: [access] frees it from limits"),
        ("/pro", "192.0.2.7", "free", "decision: refused: this path needs the plan premium"),
        ("/pro", "192.0.2.1", "premium", "decision: admitted: no limit refuses it; remaining 0"),
    ] {
        let plan = format!("x-plan: {plan}");
        let args = ["--config", "weir.toml", "--path", path, "--ip", ip, "--host", "a", "--header", &plan];
        let (code, found) = explain(folder.path(), &args);
        assert_eq!((code, found.lines().last()), (Some(0), Some(said)), "{found}");
    }
    // An access list alone names this plan.
    for (plan, code, said) in [("premium", 0, "decision: admitted"), ("nope", 1, "the configuration has `premium`")] {
        let (found, text) = explain(folder.path(), &["--config", "weir.toml", "--path", "/pro", "--plan", plan]);
        assert!(found == Some(code) && text.contains(said), "{plan}: {text}");
    }
}
