//! Keys as operators see them: read by name, reset, given back, and listed while they are limited.

use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = r#"
[identity.seller]
header = "x-seller"
on_missing = "anonymous"

[plans]
from = "header:x-plan"

[[limit]]
name = "cpu"
key = ["seller"]
rate = "10/h"
plans = { premium = "100/h" }
overrides = { "vip" = "unlimited" }

[[limit]]
name = "pairs"
match = { path = "/pair" }
key = ["ip", "seller"]
rate = "1/h"

[[limit]]
name = "wait"
match = { path = "/wait" }
key = ["seller"]
rate = "1/h"
on_limit = "hold"

[[limit]]
name = "in-flight"
match = { path = "/slow" }
key = []
algorithm = "concurrency"
max = 3
"#;

fn send(weir: &Weir, method: &str, target: &str, body: &str) -> Answer {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Client::connect(weir.admin()).send(head).send(body).answer()
}

fn read(weir: &Weir, method: &str, target: &str) -> Value {
    let answer = send(weir, method, target, "");
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

fn ask(weir: &Weir, path: &str, seller: &str) -> u16 {
    ask_at(weir.address(), path, seller)
}

fn ask_at(address: SocketAddr, path: &str, seller: &str) -> u16 {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\n\r\n");
    Client::connect(address).send(head).answer().status
}

#[test]
fn a_key_is_read_by_text_by_parts_and_by_id() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    assert_eq!([ask(&weir, "/", "shop-123"), ask(&weir, "/", "shop-123")], [200, 200]);
    let by_text = read(&weir, "GET", "/v1/keys?limit=cpu&key=shop-123");
    let by_parts = read(&weir, "GET", "/v1/keys?limit=cpu&key=%7B%22seller%22%3A%20%22shop-123%22%7D");
    let id = by_text["id"].as_str().unwrap();
    let by_id = read(&weir, "GET", &format!("/v1/keys?limit=cpu&id={id}"));
    for key in [&by_text, &by_parts, &by_id] {
        assert_eq!((&key["remaining"], &key["debt"], &key["limited"]), (&json!(8), &json!(0), &json!(false)), "{key}");
        assert_eq!((&key["waiting"], &key["from"], &key["banned_until"]), (&json!(0), &json!("limit"), &json!(null)));
        assert!(key["reset_after_ms"].as_u64().unwrap() > 600_000 && key["retry_after_ms"].is_null());
        assert_eq!(key["id"], id);
    }
    // What a client sent in a header is masked; an id has no name.
    let shown = by_text["key"]["seller"].as_str().unwrap();
    assert!(shown.starts_with("shop..#") && by_id["key"].is_null(), "{shown}");
    // A look charges nothing.
    assert_eq!(read(&weir, "GET", "/v1/keys?limit=cpu&key=shop-123")["remaining"], 8);
    let planned = read(&weir, "GET", "/v1/keys?limit=cpu&key=other&plan=premium");
    assert_eq!((&planned["remaining"], &planned["from"]), (&json!(100), &json!("plan premium")));
    let free = read(&weir, "GET", "/v1/keys?limit=cpu&key=vip");
    assert_eq!((&free["remaining"], &free["rule"], &free["from"]), (&json!(null), &json!(null), &json!("override")));
    assert_eq!(ask(&weir, "/pair", "a"), 200);
    let pair = read(&weir, "GET", "/v1/keys?limit=pairs&key=127.0.0.1%7Ca");
    assert_eq!((&pair["remaining"], &pair["limited"]), (&json!(0), &json!(true)), "{pair}");
    assert_eq!(read(&weir, "GET", "/v1/keys?limit=in-flight")["remaining"], 3);

    for (target, status) in [
        ("/v1/keys?limit=gpu&key=1", 404),
        ("/v1/keys?limit=cpu&key=%7B%22ip%22%3A%20%22::1%22%7D", 400),
        ("/v1/keys?limit=pairs&key=127.0.0.1", 400),
        ("/v1/keys?limit=pairs&key=here%7Ca", 400),
        ("/v1/keys?limit=in-flight&key=1", 400),
        ("/v1/keys?limit=cpu&id=12", 400),
        ("/v1/keys?limit=cpu&key=1&id=f8ffaf9b447bb8788ebcc6599a8fb8f2", 400),
        ("/v1/keys?limit=cpu&key=1&limited=true", 400),
        ("/v1/keys?limit=cpu&limited=true&n=0", 400),
        ("/v1/keys?limit=cpu&limited=true&after=1", 400),
        ("/v1/keys?limit=cpu&k=1", 400),
        ("/v1/keys", 400),
    ] {
        assert_eq!(send(&weir, "GET", target, "").status, status, "{target}");
    }
    assert_eq!(send(&weir, "DELETE", "/v1/keys?limit=in-flight", "").status, 400);
}

#[test]
fn units_come_back_by_a_reset_and_by_a_negative_charge() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    let charge = |units: i64| {
        let answer = send(
            &weir,
            "POST",
            "/v1/spend",
            &json!({ "limit": "cpu", "key": { "seller": 7 }, "units": units }).to_string(),
        );
        serde_json::from_slice::<Value>(&answer.body).unwrap()["remaining"].clone()
    };
    assert_eq!([charge(0), charge(10), charge(0), charge(-3), charge(-100)], [10, 0, 0, 3, 10].map(Value::from));
    charge(1000);
    assert_eq!(ask(&weir, "/", "7"), 429);
    let reset = read(&weir, "DELETE", "/v1/keys?limit=cpu&key=7&reason=paid");
    assert_eq!((&reset["before"]["remaining"], &reset["after"]["remaining"]), (&json!(0), &json!(10)), "{reset}");
    assert_eq!((ask(&weir, "/", "7"), charge(0)), (200, json!(9)));
    // Each charge, each give-back and each reset is a line of the audit log; a look is none.
    let lines = weir.wait_for_lines("changed by an operator", 5);
    let actions = ["\"charge\"", "\"give_back\"", "\"give_back\"", "\"charge\"", "\"reset\""];
    assert!(lines.iter().zip(actions).all(|(line, action)| line.contains(action)), "{lines:?}");
    assert!(lines.len() == 5 && lines[4].contains("paid"), "{lines:?}");
    // A reset lets a waiting request go.
    assert_eq!(ask(&weir, "/wait", "9"), 200);
    let address = weir.address();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || ask_at(address, "/wait", "9"));
        let key = weir.wait_for("the request waits", || {
            Some(read(&weir, "GET", "/v1/keys?limit=wait&key=9")).filter(|key| key["waiting"] == 1)
        });
        assert_eq!(key["limited"], true);
        let listed = read(&weir, "GET", "/v1/keys?limit=wait&limited=true");
        assert_eq!((&listed["count"], &listed["keys"][0]["waiting"]), (&json!(1), &json!(1)), "{listed}");
        read(&weir, "DELETE", "/v1/keys?limit=wait&key=9");
        assert_eq!(waiting.join().unwrap(), 200);
    });
}

#[test]
fn limited_keys_are_listed_by_pages() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    let charges: Vec<_> = (0..250)
        .map(
            |seller| json!({ "limit": "cpu", "key": { "seller": seller }, "units": if seller < 205 { 10 } else { 9 } }),
        )
        .collect();
    assert_eq!(send(&weir, "POST", "/v1/spend", &Value::from(charges).to_string()).status, 200);
    // A refused key has a name.
    assert_eq!(ask(&weir, "/", "17"), 429);
    let (mut seen, mut next, mut pages) = (std::collections::BTreeSet::new(), String::new(), 0);
    loop {
        let page = read(&weir, "GET", &format!("/v1/keys?limit=cpu&limited=true&n=60{next}"));
        let keys = page["keys"].as_array().unwrap();
        assert_eq!(page["count"].as_u64().unwrap(), 205 - seen.len() as u64);
        let waits: Vec<_> = keys.iter().map(|key| key["retry_after_ms"].as_u64().unwrap()).collect();
        assert!(waits.is_sorted_by(|one, other| one >= other), "{waits:?}");
        for key in keys {
            assert!(seen.insert(key["id"].as_str().unwrap().to_owned()));
        }
        pages += 1;
        match page["next"].as_str() {
            Some(after) => next = format!("&after={after}"),
            None => break,
        }
    }
    assert_eq!((seen.len(), pages), (205, 4));
    let all = read(&weir, "GET", "/v1/keys?limit=cpu&limited=true&n=1000");
    let named: Vec<_> = all["keys"].as_array().unwrap().iter().filter(|key| key["key"].is_string()).collect();
    assert_eq!(named.len(), 1, "{named:?}");
    let (name, id) = (named[0]["key"].as_str().unwrap(), named[0]["id"].as_str().unwrap());
    let list = |asked: &str| read(&weir, "GET", &format!("/v1/keys?limit=cpu&limited=true&{asked}"));
    let by_id = format!("search={}", &id[..20]);
    let by_name =
        format!("search={}", form_urlencoded::byte_serialize(name.to_uppercase().as_bytes()).collect::<String>());
    for (asked, count, is_named) in [
        ("named_first=true&n=1", 205, true),
        ("sort=name&n=1", 205, true),
        ("sort=wait&n=1", 205, false),
        (&*by_id, 1, true),
        (&by_name, 1, true),
        ("search=none&sort=name", 0, false),
    ] {
        let found = list(asked);
        let first = &found["keys"][0]["id"];
        assert_eq!((&found["count"], first == id), (&json!(count), is_named), "{asked}: {found}");
    }
    // The second page of a list by name begins after the named key.
    let next = list("sort=name&n=1")["next"].as_str().unwrap().to_owned();
    let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
    assert_eq!(list(&format!("sort=name&after={next}"))["count"], 204);
    for wrong in ["sort=size".to_owned(), format!("search={}", "a".repeat(257)), "after=1-2".to_owned()] {
        assert_eq!(send(&weir, "GET", &format!("/v1/keys?limit=cpu&limited=true&{wrong}"), "").status, 400, "{wrong}");
    }
    assert_eq!(
        read(&weir, "GET", &format!("/v1/keys?limit=cpu&id={}", named[0]["id"].as_str().unwrap()))["limited"],
        true
    );
}

/// By choice the values of a header identity are shown whole: to operators, in the access log, and in its key.
#[test]
fn plain_identities_are_shown_whole() {
    let upstream = Upstream::start();
    let limits = "[identity.partner]\nheader = 'x-partner'\nshow = 'plain'\n[identity.other]\nheader = 'x-other'\n\
                  [[limit]]\nname = 'partners'\nkey = ['partner', 'other']\nrate = '1/h'\n\
                  [log]\nformat = 'json'\naccess = 'all'\n";
    let weir = Weir::start(&upstream, limits);
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Partner: acme-of-berlin\r\nX-Other: acme-of-berlin\r\n\r\n";
    let mut client = Client::connect(weir.address());
    assert_eq!([client.send(head).answer().status, client.send(head).answer().status], [200, 429]);
    let top = read(&weir, "GET", "/v1/top");
    let key = top["limits"][0]["keys"][0]["key"].as_str().unwrap();
    assert!(key.starts_with("acme-of-berlin|acme..#"), "{key}");
    let shown = read(&weir, "GET", "/v1/keys?limit=partners&key=acme-of-berlin%7Cacme-of-berlin");
    assert_eq!((&shown["key"]["partner"], &shown["remaining"]), (&json!("acme-of-berlin"), &json!(0)));
    let line = weir.wait_for_line("\"status\":429");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["identities"]["partner"], "acme-of-berlin");
    assert!(line["identities"]["other"].as_str().unwrap().starts_with("acme..#"), "{line}");
}
