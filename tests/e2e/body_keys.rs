//! Limits whose keys and conditions look at the body of a request.

use http::Request;
use serde_json::{Value, json};

use crate::request_bodies::{last, post, post_chunked, post_h2};
use crate::support::{Channel, Client, Upstream, Weir, over_h2};

/// A way to post a body, which returns the status.
type Post = fn(&Weir, &[u8]) -> u16;

const POSTS: [Post; 3] = [
    |weir, body| post(weir, "/", "", body).status,
    |weir, body| post_chunked(weir, "/", body, 3).status,
    |weir, body| post_h2(weir, "/", &[], body).status,
];

/// Fields and bodies of which services may read another model than Weir.
const OTHERWISE_READ: [(&str, &str); 4] = [
    ("Content-Encoding: gzip\r\n", r#"{"model":"i"}"#),
    ("Content-Type: application/json; charset=utf-7\r\n", r#"{"model":"j","+AG0-odel":"large-1"}"#),
    ("Content-Type: application/x-www-form-urlencoded\r\n", r#"{"model":"k","a":"&stream=true&model=large-1&"}"#),
    ("", r#"{"model":"l","a":"&stream=true&model=large-1&"}"#),
];

#[test]
fn each_value_has_its_own_budget() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"models\"\nkey = [\"json:/model\"]\nrate = \"1/h\"\nread_body = \"200B\"\n";
    let long = format!(r#"{{"model":"h","x":"{}"}}"#, "x".repeat(200));
    for send in POSTS {
        let weir = Weir::start(&upstream, limit);
        for (body, status) in [
            (r#"{"model":"a"}"#, 200),
            (r#"{"x":[{"model":"b"}],"model":"\u0061 "}"#, 429),
            (r#"{"model":"b","max_tokens":5}"#, 200),
            (r#"{"model":7}"#, 200),
            (r#"{"model":70e-1}"#, 429),
            (r#"{"model":true}"#, 200),
            (r#"{"model":"true"}"#, 429),
            // Without a value all share a budget.
            ("{}", 200),
            (r#"{"model":null}"#, 429),
            (r#"{"model":["a"]}"#, 429),
            ("", 429),
            // Of bodies that a service may read in another way all share one.
            (r#"{"model":"c","model":"d"}"#, 200),
            (r#"{"model":"e","MODEL":"f"}"#, 429),
            ("model=g", 429),
            (r#"{"model":"g""#, 429),
            (r#"{"model":"g\ud800"}"#, 429),
            (&long, 429),
        ] {
            assert_eq!(send(&weir, body.as_bytes()), status, "{body}");
            assert!(status == 429 || last(&upstream).body == body.as_bytes(), "{body}");
        }
        assert_eq!(Client::connect(weir.address()).get("/").status, 429);
        for (fields, body) in OTHERWISE_READ {
            assert_eq!(post(&weir, "/", fields, body.as_bytes()).status, 429, "{fields} {body}");
        }
    }
}

/// A client that leaves before limits know its body has abandoned its request.
#[test]
fn a_client_may_leave_while_its_body_is_read() {
    let limits = "[[limit]]\nname = \"first\"\nstage = \"arrival\"\nkey = []\nrate = \"100/h\"\n\
                  [[limit]]\nname = \"models\"\nkey = [\"json:/model\"]\nrate = \"1/h\"\n";
    let weir = Weir::start(&Upstream::start(), limits);
    over_h2(weir.address(), async |mut client, _| {
        let (_more, body) = tokio::sync::mpsc::unbounded_channel();
        let head = Request::post("http://weir.test/");
        let leaving = tokio::spawn(async move { client.send(head, Channel(body)).await.map(drop) });
        weir.wait_for_metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"first\"}", |count| count == 1.0);
        leaving.abort();
        weir.wait_for_metric("weir_requests_total{verdict=\"abandoned\"}", |count| count == 1.0);
    });
    assert_eq!(weir.metric("weir_requests_total{verdict=\"refused\"}"), 0.0);
}

#[test]
fn a_value_is_a_part_of_a_key() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"models\"\nkey = [\"header:x-user\", \"json:/model\"]\nrate = \"1/h\"\n\
                 overrides = { \"anna|large-1\" = \"2/h\" }\n";
    let weir = Weir::start(&upstream, limit);
    let ask = |user: &str, body: &str| post(&weir, "/", &format!("X-User: {user}\r\n"), body.as_bytes());
    let (large, small) = (r#"{"model":"large-1"}"#, r#"{"model":"small-1"}"#);
    for (user, body, statuses) in
        [("anna", large, &[200, 200, 429][..]), ("anna", small, &[200, 429]), ("bert", large, &[200, 429])]
    {
        for status in statuses {
            assert_eq!(ask(user, body).status, *status, "{user} {body}");
        }
    }
    let answer = weir.ask_admin("GET", "/v1/keys?limit=models&key=anna%7Clarge-1", &Value::Null);
    let key: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(key["remaining"], json!(0), "{key}");
    assert!(key["key"]["json:/model"].as_str().unwrap().starts_with("lar..#"), "{key}");
    let shown = |body: &str| {
        let id = ask("anna", body).header("x-refusal-id").unwrap().to_owned();
        let answer = weir.ask_admin("GET", &format!("/v1/refusals?id={id}"), &Value::Null);
        let refusal: Value = serde_json::from_slice(&answer.body).unwrap();
        refusal["refusals"][0]["key"].as_str().unwrap().to_owned()
    };
    assert!(shown(large).contains("|lar..#"), "{}", shown(large));
    assert_eq!(ask("anna", "{").status, 200);
    assert!(shown("{").ends_with("|(unreadable)"), "{}", shown("{"));
}

#[test]
fn a_condition_looks_at_the_body() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"streams\"\nkey = []\nrate = \"2/h\"\nread_body = \"200B\"\n\
                 match.json = { \"/stream\" = true, \"/model\" = [\"large-1\", \"large-2\"] }\n";
    let long = format!(r#"{{"x":"{}"}}"#, "x".repeat(200));
    for send in POSTS {
        let weir = Weir::start(&upstream, limit);
        for (body, status) in [
            (r#"{"stream":true,"model":"small-1"}"#, 200),
            (r#"{"stream":true,"model":"large-1"}"#, 200),
            (r#"{"stream":true,"model":"large-2"}"#, 200),
            (r#"{"stream":true,"model":"large-1"}"#, 429),
            (r#"{"stream":false,"model":"large-1"}"#, 200),
            (r#"{"model":"large-1"}"#, 200),
            ("", 200),
            // What a service may read as such a request.
            (r#"{"stream":1,"model":"large-1"}"#, 429),
            (r#"{"stream":true,"model":"large-1","model":"small-1"}"#, 429),
            ("stream=true&model=large-1", 429),
            (&long, 429),
            (r#"{"stream":true,"model":"small-1"}"#, 200),
        ] {
            assert_eq!(send(&weir, body.as_bytes()), status, "{body}");
            assert!(status == 429 || last(&upstream).body == body.as_bytes(), "{body}");
        }
        for (fields, body) in OTHERWISE_READ {
            assert_eq!(post(&weir, "/", fields, body.as_bytes()).status, 429, "{fields} {body}");
        }
    }
}

/// Whatever its body is, a request needs the identity of a limit that looks at it.
#[test]
fn no_body_spares_an_identity() {
    let upstream = Upstream::start();
    for mode in ["enforce", "shadow", "off"] {
        let config = format!(
            "[identity.user]\nheader = \"x-user\"\non_missing = \"reject\"\n\
             [[limit]]\nname = \"large\"\nkey = [\"user\"]\nrate = \"1/h\"\nmode = \"{mode}\"\n\
             match.json.\"/model\" = \"large-1\"\n"
        );
        let weir = Weir::start(&upstream, &config);
        for send in POSTS {
            for body in [r#"{"model":"large-1"}"#, r#"{"model":"small-1"}"#, "{}", "{", ""] {
                assert_eq!(send(&weir, body.as_bytes()), 401, "{mode} {body}");
            }
        }
        let known = |body: &str| post(&weir, "/", "X-User: a\r\n", body.as_bytes()).status;
        let last = if mode == "enforce" { 429 } else { 200 };
        assert_eq!([known("{}"), known("{"), known("{")], [200, 200, last], "{mode}");
    }
}
