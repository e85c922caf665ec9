//! Receipts of refusals: the id that a client gets, and its explanation for operators.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir, over_h2};

const LIMITS: &str = r#"
[identity.seller]
header = "x-seller"
on_missing = "anonymous"

[[limit]]
name = "sellers"
key = ["seller"]
rate = "1/h"
"#;

fn sell(weir: &Weir, seller: &str) -> Answer {
    Client::connect(weir.address()).send(format!("GET /api HTTP/1.1\r\nHost: h\r\nX-Seller: {seller}\r\n\r\n")).answer()
}

/// The id of a refusal, from its problem document.
fn id_in(answer: &[u8], member: &str) -> String {
    let problem: Value = serde_json::from_slice(answer).unwrap();
    problem[member].as_str().unwrap_or_else(|| panic!("no {member} in {problem}")).to_owned()
}

fn explained(weir: &Weir, id: &str) -> Value {
    let answer = weir.ask_admin("GET", &format!("/v1/refusals?id={id}"), &Value::Null);
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// `weir explain`, as an exit code and what it says.
fn explain(weir: &Weir, args: &[&str]) -> (Option<i32>, String) {
    let admin = weir.admin().to_string();
    let command =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["explain", "--admin", &admin]).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (command.status.code(), text(command.stdout) + &text(command.stderr))
}

#[test]
fn a_refusal_is_explained_by_its_id() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    assert_eq!(sell(&weir, "secret-seller").status, 200);
    assert_eq!(sell(&weir, "other").header("x-refusal-id"), None);
    let refused = sell(&weir, "secret-seller");
    let id = id_in(&refused.body, "refusal_id");
    assert_eq!((refused.status, refused.header("x-refusal-id")), (429, Some(&*id)));
    assert_eq!(id.len(), 16);
    let over_h2 = over_h2(weir.address(), async |mut client, _| {
        let head = http::Request::get("http://weir.test/api").header("x-seller", "secret-seller");
        let answer = client.ask(head).await.unwrap();
        assert_eq!(answer.header("x-refusal-id"), Some(&*id_in(&answer.body, "refusal_id")));
        id_in(&answer.body, "refusal_id")
    });

    let body = explained(&weir, &id);
    let refusal = &body["refusals"][0];
    assert_eq!((&body["id"], &refusal["limit"], &refusal["cause"]), (&json!(id), &json!("sellers"), &json!("limit")));
    assert_eq!((&refusal["capacity"], &refusal["remaining"]), (&json!(1), &json!(0)));
    let retry_s = refused.header("retry-after").unwrap().parse::<u64>().unwrap();
    assert_eq!(refusal["retry_after_s"], retry_s);
    assert!(refusal["reset_after_ms"].as_u64() > Some(3_500_000));
    assert_eq!((&refusal["others_count"], &refusal["others"][0]["id"]), (&json!(1), &json!(over_h2)));
    assert!(refusal["key"].as_str().unwrap().starts_with("secr..#"), "{body}");
    assert_eq!(explained(&weir, &over_h2)["refusals"][0]["others"][0]["id"], id);
    assert_eq!(refusal["charges"].as_array().unwrap().len(), 1, "{body}");
    assert_eq!(refusal["charges"][0]["units"], 1, "{body}");
    let charged = format!("\n  charges of the key:\n    {} +1\n", refusal["charges"][0]["at"].as_str().unwrap());

    let (code, said) = explain(&weir, &[&id]);
    assert_eq!(code, Some(0), "{said}");
    for words in
        [&*format!("refusal {id}\nlimit sellers\n  key: secr..#"), "cause limit, remaining 0 of 1", &charged, &over_h2]
    {
        assert!(said.contains(words), "{said}");
    }
    let (_, as_json) = explain(&weir, &[&id, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&as_json).unwrap(), body);
    let page = weir.ask_admin("GET", &format!("/explain?id={id}"), &Value::Null);
    assert!(
        page.status == 200
            && page.text().contains("+1 at ")
            && page.text().contains("0 of 1")
            && page.text().contains(&over_h2),
        "{}",
        page.text()
    );
    for told in [said, as_json, page.text()] {
        assert!(!told.contains("secret-seller"), "{told}");
    }
}

#[test]
fn unknown_ids_are_not_found() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    for id in ["", "0123456789abcdef", "%00%ff", "%3Cscript%3E", &"a".repeat(5000)] {
        let answer = weir.ask_admin("GET", &format!("/v1/refusals?id={id}"), &Value::Null);
        assert!(answer.status == 404 && answer.text().contains("another replica"), "{id}: {}", answer.text());
        let page = weir.ask_admin("GET", &format!("/explain?id={id}"), &Value::Null);
        assert_eq!(page.status, if id.is_empty() { 200 } else { 404 }, "{id}");
        assert!(!page.text().contains("<script>"), "{}", page.text());
    }
    assert_eq!(weir.ask_admin("GET", "/v1/refusals", &Value::Null).status, 400);
    let (code, said) = explain(&weir, &["<id>"]);
    assert!(code == Some(1) && said.contains("no refusal with this id"), "{code:?} {said}");
    assert_eq!(explain(&weir, &["id", "--path", "/a"]).0, Some(2));
}

/// With request ids, a refusal has no other id.
#[test]
fn the_id_of_the_request_is_that_of_the_refusal() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "request_id = true\ntrusted_proxies = [\"127.0.0.1\"]", LIMITS);
    let ask = |id: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Seller: a\r\nX-Request-Id: {id}\r\n\r\n");
        Client::connect(weir.address()).send(head).answer()
    };
    assert_eq!(ask("first").status, 200);
    let refused = ask("from:proxy/1");
    assert_eq!((refused.status, id_in(&refused.body, "request_id")), (429, "from:proxy/1".to_owned()));
    assert!(refused.header("x-refusal-id").is_none() && !refused.text().contains("refusal_id"));
    assert_eq!(explained(&weir, "from:proxy/1")["refusals"][0]["limit"], "sellers");
    // An id that a proxy uses twice.
    ask("from:proxy/1");
    assert_eq!(explained(&weir, "from:proxy/1")["refusals"].as_array().unwrap().len(), 2);
}

#[test]
fn bans_have_receipts_and_a_reload_turns_receipts_off() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    let ban = |body: Value| assert_eq!(weir.ask_admin("POST", "/v1/bans", &body).status, 200);
    ban(json!({"limit": "sellers", "key": {"seller": "bad"}, "for": "1h", "reason": "fraud"}));
    let banned = sell(&weir, "bad");
    let refusal = &explained(&weir, &id_in(&banned.body, "refusal_id"))["refusals"][0];
    assert_eq!((banned.status, &refusal["cause"], &refusal["remaining"]), (403, &json!("banned"), &Value::Null));
    assert_eq!(refusal["limit"], "sellers");

    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    std::fs::write(weir.config_file(), format!("{config}\n[refusals]\nkeep = \"off\"\n")).unwrap();
    weir.wait_for_line("reloaded");
    let refused = sell(&weir, "bad");
    assert!(
        refused.status == 403 && refused.header("x-refusal-id").is_none() && !refused.text().contains("refusal_id")
    );
    let answer = weir.ask_admin("GET", "/v1/refusals?id=1", &Value::Null);
    assert!(answer.status == 404 && answer.text().contains("`off`"), "{}", answer.text());
    std::fs::write(weir.config_file(), config).unwrap();
    weir.wait_for_lines("reloaded", 2);

    ban(json!({"address": "127.0.0.1", "for": "1h", "reason": "flood"}));
    let banned = sell(&weir, "good");
    let refusal = &explained(&weir, &id_in(&banned.body, "refusal_id"))["refusals"][0];
    assert_eq!((&refusal["limit"], &refusal["key"]), (&Value::Null, &json!("127.0.0.1")));
}

/// While one key is refused very often, the receipts of others stay.
#[test]
fn a_flood_leaves_receipts_of_others() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &format!("{LIMITS}\n[refusals]\nmax = 6400\n"));
    let quiet: Vec<_> = (0..10).map(|seller| format!("quiet-{seller}")).collect();
    let refused = |seller: &String| {
        sell(&weir, seller);
        id_in(&sell(&weir, seller).body, "refusal_id")
    };
    let ids: Vec<_> = quiet.iter().map(refused).collect();
    let mut client = Client::connect(weir.address());
    let mut last = String::new();
    for _ in 0..100 {
        let head = "GET /api HTTP/1.1\r\nHost: h\r\nX-Seller: flood\r\n\r\n";
        client.send(head.repeat(30));
        for _ in 0..30 {
            last = client.answer().header("x-refusal-id").unwrap_or_default().to_owned();
        }
    }
    assert!(explained(&weir, &last)["refusals"][0]["others_count"].as_u64() < Some(100));
    let kept =
        ids.iter().filter(|id| weir.ask_admin("GET", &format!("/v1/refusals?id={id}"), &Value::Null).status == 200);
    assert!(kept.count() >= 8);
}
