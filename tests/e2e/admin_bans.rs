//! Bans that operators set, list and lift, over requests, reloads and restarts.

use serde_json::{Value, json};

use crate::ops::replace;
use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = r#"
[log]
format = "json"
level = "trace"
access = "all"

[identity.seller]
header = "x-seller"
on_missing = "anonymous"

[[limit]]
name = "sellers"
key = ["seller"]
rate = "100/s"

[[limit]]
name = "logins"
match = { path = "/login" }
key = ["seller"]
rate = "1/h"
ban = { after = "2/min", for = "10min", for_max = "24h" }
"#;

fn read(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

fn set(weir: &Weir, ban: &Value) -> Value {
    read(&weir.ask_admin("POST", "/v1/bans", ban))
}

fn listed(weir: &Weir) -> Vec<Value> {
    read(&weir.ask_admin("GET", "/v1/bans", &Value::Null))["bans"].as_array().unwrap().clone()
}

fn ask(weir: &Weir, path: &str, seller: &str) -> Answer {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\n\r\n");
    Client::connect(weir.address()).send(head).answer()
}

fn start(upstream: &Upstream) -> Weir {
    Weir::start(upstream, LIMITS)
}

#[test]
fn a_key_is_banned_and_the_ban_is_lifted() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    assert_eq!(ask(&weir, "/", "shop-1").status, 200);
    let ban = json!({ "limit": "sellers", "key": { "seller": "shop-1" }, "for": "1h", "reason": "scrapes prices" });
    let set = set(&weir, &ban);
    assert_eq!((&set["was"], &set["not_kept"], &set["ban"]["by"]), (&json!(null), &json!(null), &json!("operator")));
    let refused = ask(&weir, "/", "shop-1");
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 403 && (3500..=3600).contains(&retry), "{retry}");
    assert!(refused.text().contains("banned by sellers; retry after"), "{}", refused.text());
    // Other keys, and other limits of the key, are not concerned.
    assert_eq!([ask(&weir, "/", "shop-2").status, ask(&weir, "/login", "shop-3").status], [200, 200]);

    let bans = listed(&weir);
    assert_eq!((bans.len(), &bans[0]["reason"], &bans[0]["limit"]), (1, &json!("scrapes prices"), &json!("sellers")));
    let shown = bans[0]["key"]["seller"].as_str().unwrap();
    assert!(shown.starts_with("sho..#") || shown.starts_with("shop..#"), "{shown}");
    let key = read(&weir.ask_admin("GET", "/v1/keys?limit=sellers&key=shop-1", &Value::Null));
    assert_eq!(key["banned_until"], bans[0]["until"]);
    let top = read(&weir.ask_admin("GET", "/v1/top?limit=sellers", &Value::Null));
    assert_eq!(top["limits"][0]["total"], 1, "{top}");
    weir.wait_for_line("\"refused_by\":\"ban\"");
    assert!(weir.wait_for_line("a ban begins").contains("scrapes prices"));
    assert_eq!(weir.metric("weir_operator_bans"), 1.0);

    let lifted = read(&weir.ask_admin("DELETE", "/v1/bans?limit=sellers&key=shop-1&reason=paid", &Value::Null));
    assert_eq!((&lifted["ban"], &lifted["was"]["reason"]), (&json!(null), &json!("scrapes prices")));
    assert_eq!(ask(&weir, "/", "shop-1").status, 200);
    weir.wait_for_line("a ban was lifted");
    assert_eq!(weir.wait_for_lines("changed by an operator", 2).len(), 2);
    assert_eq!(weir.ask_admin("DELETE", "/v1/bans?limit=sellers&key=shop-1", &Value::Null).status, 404);
}

#[test]
fn an_address_is_banned_for_all_limits_and_for_a_time() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    set(&weir, &json!({ "address": "203.0.113.0/24", "for": "forever", "reason": "attack" }));
    assert_eq!(ask(&weir, "/", "a").status, 200);
    // For good, for a network; a shorter ban of the address within it changes nothing.
    set(&weir, &json!({ "address": "127.0.0.0/8", "for": "forever" }));
    set(&weir, &json!({ "address": "127.0.0.1", "for": "1ms" }));
    let refused = ask(&weir, "/none", "a");
    assert_eq!((refused.status, refused.header("retry-after")), (403, None));
    assert!(refused.text().contains("\"detail\":\"banned\""), "{}", refused.text());
    let top = read(&weir.ask_admin("GET", "/v1/top", &Value::Null));
    assert_eq!(
        (&top["banned_addresses"][0]["key"], &top["banned_addresses"][0]["count"]),
        (&json!("127.0.0.1"), &json!(1))
    );
    assert_eq!(weir.metric("weir_banned_address_requests_total"), 1.0);
    let explained = json!({ "method": "GET", "path": "/", "host": "a", "ip": "127.9.9.9" });
    let explained = read(&weir.ask_admin("POST", "/v1/explain", &explained));
    let said = ["decision", "refused_by", "why"].map(|name| explained[name].clone());
    assert_eq!(said, ["refused", "ban", "it is banned"]);
    // A second ban of a network replaces the first one. It ends after its time.
    let again = set(&weir, &json!({ "address": "127.255.255.255/8", "for": "1s" }));
    assert!(again["was"]["until"].is_null() && again["ban"]["until"].is_string(), "{again}");
    assert!(weir.wait_for_lines("a ban has ended", 2)[1].contains("127.0.0.0/8"));
    assert_eq!((ask(&weir, "/", "a").status, listed(&weir).len()), (200, 1));
}

#[test]
fn bans_outlive_reloads_and_restarts() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().to_owned(), Weir::config(&upstream, "", LIMITS));
    std::fs::write(path.join("weir.toml"), &config).unwrap();
    let weir = Weir::start_in(folder);
    set(&weir, &json!({ "limit": "sellers", "key": "shop-1", "for": "forever", "reason": "fraud" }));
    set(&weir, &json!({ "address": "2001:db8::/32", "for": "24h" }));
    replace(&weir.config_file(), &config.replace("100/s", "200/s"));
    weir.wait_for_line("reloaded");
    assert_eq!((ask(&weir, "/", "shop-1").status, ask(&weir, "/", "shop-2").status), (403, 200));
    // A limit without this key keeps its ban, which does not apply.
    let other = config.replacen("key = [\"seller\"]", "key = [\"ip\", \"seller\"]", 1);
    replace(&weir.config_file(), &other);
    weir.wait_for_lines("reloaded", 2);
    assert_eq!(ask(&weir, "/", "shop-1").status, 200);
    assert!(listed(&weir)[0]["left_out"].as_str().unwrap().contains("2 parts"));
    replace(&weir.config_file(), &config);
    weir.wait_for_lines("reloaded", 3);
    assert_eq!(ask(&weir, "/", "shop-1").status, 403);

    let again = tempfile::tempdir().unwrap();
    for name in ["weir.toml", "weir.bans.jsonl"] {
        std::fs::copy(weir.folder().join(name), again.path().join(name)).unwrap();
    }
    drop(weir);
    let weir = Weir::start_in(again);
    assert_eq!((ask(&weir, "/", "shop-1").status, ask(&weir, "/", "shop-2").status), (403, 200));
    let bans = listed(&weir);
    assert_eq!((bans.len(), &bans[0]["reason"], &bans[1]["address"]), (2, &json!("fraud"), &json!("2001:db8::/32")));
}

#[test]
fn the_ban_of_a_limit_is_listed_and_lifted() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let statuses = [200, 429, 429, 403].map(|_| ask(&weir, "/login", "shop-7").status);
    assert_eq!(statuses, [200, 429, 429, 403]);
    let bans = listed(&weir);
    assert_eq!((bans.len(), &bans[0]["by"], &bans[0]["limit"]), (1, &json!("limit"), &json!("logins")));
    let id = bans[0]["id"].as_str().unwrap();
    let lifted = read(&weir.ask_admin("DELETE", &format!("/v1/bans?limit=logins&id={id}"), &Value::Null));
    assert_eq!(lifted["was"]["by"], "limit");
    // The units stay spent; the refusals are forgotten.
    assert_eq!([ask(&weir, "/login", "shop-7").status, ask(&weir, "/login", "shop-7").status], [429, 429]);
    for (ban, status) in [
        (json!({}), 400),
        (json!({ "limit": "sellers" }), 400),
        (json!({ "limit": "none", "key": "a" }), 404),
        (json!({ "limit": "sellers", "key": "a", "address": "::1" }), 400),
        (json!({ "address": "0.0.0.0/0" }), 400),
        (json!({ "address": "here" }), 400),
        (json!({ "address": "::1", "for": "0s" }), 400),
        (json!({ "address": "::1", "for": "soon" }), 400),
        (json!({ "address": "::1" }), 400),
        (json!({ "address": "::1", "why": "x" }), 400),
        (json!({ "address": "::1", "for": "1h", "reason": "x".repeat(1025) }), 400),
        (json!({ "limit": "sellers", "key": "x".repeat(4097), "for": "1h" }), 400),
    ] {
        assert_eq!(weir.ask_admin("POST", "/v1/bans", &ban).status, status, "{ban}");
    }
}

/// The next process draws another secret for ids, unless it is kept.
#[test]
fn a_ban_by_id_says_that_it_ends_with_the_process() {
    let upstream = Upstream::start();
    for (rest, is_kept) in [("", false), ("[snapshot]\npath = \"state\"\n", true)] {
        let weir = Weir::start(&upstream, &format!("{LIMITS}{rest}"));
        let by_key = set(&weir, &json!({ "limit": "sellers", "key": { "seller": "shop-1" }, "for": "forever" }));
        let by_id =
            set(&weir, &json!({ "limit": "sellers", "id": "00000000000000000000000000000001", "for": "forever" }));
        assert_eq!((by_key["not_kept"].is_null(), by_id["not_kept"].is_null()), (true, is_kept), "{by_id}");
    }
}

#[test]
fn a_ban_that_bans_nobody_says_so() {
    let upstream = Upstream::start();
    let limits = ["shadow", "off"]
        .map(|mode| format!("[[limit]]\nname = \"{mode}\"\nkey = [\"seller\"]\nrate = \"1/h\"\nmode = \"{mode}\"\n"));
    let weir = Weir::start(&upstream, &format!("{LIMITS}{}", limits.concat()));
    for mode in ["shadow", "off"] {
        let set = set(&weir, &json!({ "limit": mode, "key": { "seller": "shop-1" }, "for": "forever" }));
        assert_eq!(set["ban"]["left_out"], format!("the limit has the mode `{mode}`"), "{set}");
        assert!(set["ban"]["id"].is_string(), "{set}");
    }
    assert_eq!(ask(&weir, "/", "shop-1").status, 200);
    // The bans apply as soon as the limits do.
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &text.replace("mode = \"off\"", "mode = \"enforce\""));
    weir.wait_until("the ban", || ask(&weir, "/", "shop-1").status == 403);
    let left_out: Vec<_> = listed(&weir).iter().map(|ban| ban["left_out"].is_null()).collect();
    assert_eq!(left_out, [false, true]);
}
