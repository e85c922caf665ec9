//! Plans that an operator assigns to single keys.

use serde_json::{Value, json};

use crate::ops::replace;
use crate::support::{Client, Upstream, Weir};

const LIMITS: &str = r#"
[identity.seller]
header = "x-seller"

[plans]
from = "header:x-plan"

[[limit]]
name = "sellers"
key = ["seller"]
rate = "10/h"
plans = { premium = "100/h", pro = "50/h", free = "unlimited" }
overrides = { written = { plan = "pro" } }

[[limit]]
name = "clients"
key = ["ip"]
rate = "1000/day"
"#;

fn send(weir: &Weir, method: &str, target: &str, body: &Value) -> (u16, Value) {
    let answer = weir.ask_admin(method, target, body);
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

fn get(weir: &Weir, target: &str) -> Value {
    let (status, answer) = send(weir, "GET", target, &Value::Null);
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The limit and what remains of it, after a request of this seller.
fn left(weir: &Weir, seller: &str, plan: &str) -> (u64, u64) {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\n{plan}\r\n");
    let answer = Client::connect(weir.address()).send(head).answer();
    let number = |name| answer.header(name).map_or(0, |text| text.parse().unwrap());
    (number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
}

fn start(upstream: &Upstream) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(upstream, "", LIMITS);
    let config = config.replacen("[admin]\n", "[admin]\noverrides = \"overrides.toml\"\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

fn plan(seller: &str, plan: &str) -> Value {
    json!({ "limit": "sellers", "key": { "seller": seller }, "plan": plan })
}

#[test]
fn an_assigned_plan_applies_at_once_and_outlives_reloads() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    assert_eq!((left(&weir, "7", ""), left(&weir, "written", "")), ((10, 9), (50, 49)));
    let (status, made) = send(&weir, "POST", "/v1/plans", &plan("7", "premium"));
    assert_eq!((status, &made["plan"], &made["was"]), (200, &json!("premium"), &Value::Null), "{made}");
    // The plan of the request counts for less, and what is spent stays spent.
    assert_eq!(left(&weir, "7", "X-Plan: pro\r\n"), (100, 98));
    let from = |seller: &str| get(&weir, &format!("/v1/keys?limit=sellers&key={seller}"))["from"].clone();
    assert_eq!(from("7"), "plan premium, assigned to the key at run time");
    assert_eq!(from("written"), "plan pro, assigned to the key");
    assert_eq!(from("8"), "limit");
    let listed = get(&weir, "/v1/plans?limit=sellers");
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["plan"]), (1, &json!("premium")));
    assert_eq!(get(&weir, "/v1/overrides")[0]["to"], json!({ "plan": "premium" }));
    assert_eq!(get(&weir, "/v1/plans?limit=clients"), json!([]));
    // The plan gets other numbers, and then goes.
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &text.replace("premium = \"100/h\"", "premium = \"200/h\""));
    weir.wait_until("the new numbers", || left(&weir, "7", "").0 == 200);
    replace(&weir.config_file(), &text.replace("premium = \"100/h\", ", ""));
    weir.wait_until("the usual numbers", || left(&weir, "7", "").0 == 10);
    let listed = get(&weir, "/v1/plans");
    assert_eq!(listed[0]["left_out"], true);
    assert!(listed[0]["why"].as_str().unwrap().contains("no plan of this name"), "{listed}");
    replace(&weir.config_file(), &text);
    weir.wait_until("the plan again", || left(&weir, "7", "").0 == 100);
    let (status, removed) = send(&weir, "DELETE", "/v1/plans?limit=sellers&key=7", &Value::Null);
    assert_eq!((status, &removed["plan"], &removed["was"]["plan"]), (200, &Value::Null, &json!("premium")));
    assert_eq!((left(&weir, "7", "").0, get(&weir, "/v1/plans")), (10, json!([])));
}

#[test]
fn a_plan_that_cannot_be_assigned() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for (method, target, body, status, why) in [
        ("POST", "/v1/plans", plan("7", "gold"), 400, "it has `premium`, `pro`, `free`"),
        (
            "PUT",
            "/v1/plans",
            json!({ "limit": "clients", "key": "192.0.2.1", "plan": "pro" }),
            400,
            "it has no `plans`",
        ),
        ("POST", "/v1/plans", json!({ "limit": "none", "key": "7", "plan": "pro" }), 404, "no such limit"),
        ("POST", "/v1/plans", json!({ "limit": "sellers", "key": "7" }), 400, "missing field `plan`"),
        ("POST", "/v1/plans", json!({ "limit": "sellers", "key": "7", "plan": null }), 400, "expected a string"),
        ("POST", "/v1/plans", json!([plan("7", "pro"), plan("8", "gold")]), 400, "[1]: "),
        ("DELETE", "/v1/plans?limit=sellers&key=7", Value::Null, 404, "no plan is assigned"),
        ("DELETE", "/v1/plans?limit=none&key=7", Value::Null, 404, "no such limit"),
        ("DELETE", "/v1/plans?limit=sellers", Value::Null, 400, "key"),
    ] {
        let (got, answer) = send(&weir, method, target, &body);
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(got == status && detail.contains(why), "{method} {target} {body}: {got} {answer}");
    }
    assert_eq!(get(&weir, "/v1/plans"), json!([]));
    // Numbers of its own are no plan, and a plan replaces them.
    let numbers = json!({ "limit": "sellers", "key": "7", "to": "3/h" });
    assert_eq!(send(&weir, "POST", "/v1/overrides", &numbers).0, 200);
    assert_eq!(send(&weir, "DELETE", "/v1/plans?limit=sellers&key=7", &Value::Null).0, 404);
    assert_eq!(send(&weir, "PUT", "/v1/plans", &plan("7", "pro")).1["was"], "3/h");
    assert_eq!(left(&weir, "7", ""), (50, 49));
}

/// A banned key stays banned, whatever its numbers are, and the answer says so.
#[test]
fn a_ban_outweighs_plans_and_overrides() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    assert_eq!(send(&weir, "POST", "/v1/bans", &json!({ "limit": "sellers", "key": "7", "for": "forever" })).0, 200);
    let timed = json!({ "limit": "sellers", "key": "8", "for": "1h" });
    assert_eq!(send(&weir, "POST", "/v1/bans", &timed).0, 200);
    assert_eq!(send(&weir, "POST", "/v1/plans", &plan("7", "free")).1["banned_until"], "for good");
    for to in [json!("unlimited"), Value::Null] {
        let body = json!({ "limit": "sellers", "key": "8", "to": to });
        let until = send(&weir, "POST", "/v1/overrides", &body).1["banned_until"].clone();
        assert!(until.as_str().is_some_and(|until| until.ends_with('Z')), "{until}");
    }
    let ask = |seller: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\n\r\n");
        Client::connect(weir.address()).send(head).answer().status
    };
    assert_eq!((ask("7"), ask("8"), ask("9")), (403, 403, 200));
    assert_eq!(send(&weir, "POST", "/v1/plans", &plan("9", "free")).1.get("banned_until"), None);
}
