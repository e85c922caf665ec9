//! One client on one screen: `/v1/client`, `weir client` and the page.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = r#"
[identity.seller]
header = "x-seller"
on_missing = "anonymous"
show = "plain"

[access.deny]
identity = { seller = ["outcast"] }

[access.allow]
ip = ["192.0.2.0/24"]

[[limit]]
name = "sellers"
key = ["seller"]
rate = "4/h"
plans = { big = "100/h" }

[[limit]]
name = "pairs"
match = { path = "/pair" }
key = ["ip", "seller"]
rate = "1/h"

[[limit]]
name = "networks"
key = ["ip/24"]
rate = "100/h"

[[limit]]
name = "all"
key = []
rate = "1000/day"

[[limit]]
name = "paths"
key = ["path"]
rate = "1000/day"
"#;

fn get(weir: &Weir, target: &str) -> Answer {
    Client::connect(weir.admin()).send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer()
}

fn run(weir: &Weir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).args(["--admin", &weir.admin().to_string()]).output().unwrap()
}

fn asked(weir: &Weir, arguments: &[&str]) -> Value {
    let output = run(weir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ask(weir: &Weir, path: &str, seller: &str, ip: &str) -> u16 {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\nX-Forwarded-For: {ip}\r\n\r\n");
    Client::connect(weir.address()).send(head).answer().status
}

/// The limits of a client with its keys: name, missing parts, and for each key whether it passes and what remains.
fn limits(client: &Value) -> Vec<String> {
    let key = |key: &Value| format!(" {} {}", key["passes"], key["key"]["remaining"]);
    let limit = |limit: &Value| {
        let keys: String = limit["keys"].as_array().unwrap().iter().map(key).collect();
        format!("{} {}{keys}", limit["limit"].as_str().unwrap(), limit["missing"])
    };
    client["limits"].as_array().unwrap().iter().map(limit).collect()
}

#[test]
fn one_client_is_on_one_screen() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "trusted_proxies = [\"127.0.0.1\"]\n", LIMITS);
    let client = |parts: &[&str]| asked(&weir, &[&["client"], parts].concat());

    // The first look begins to keep requests.
    let fresh = client(&["seller=777"]);
    assert_eq!((&fresh["verdict"], &fresh["passes"]), (&json!("All 2 limits admit it."), &json!(true)));
    assert_eq!(limits(&fresh), ["sellers [] true 4", r#"pairs ["ip"]"#, "all [] true 1000"]);
    assert_eq!(fresh["other_limits"], json!(["networks", "paths"]));
    assert_eq!((&fresh["decisions"]["count"], &fresh["access"]), (&json!(0), &json!(null)));

    assert_eq!(ask(&weir, "/pair", "777", "203.0.113.7"), 200);
    assert_eq!(ask(&weir, "/pair", "777", "203.0.113.7"), 429);
    assert_eq!(ask(&weir, "/pair", "7777", "203.0.113.7"), 200);
    assert_eq!(ask(&weir, "/pair", "7777", "203.0.113.7"), 429);
    assert_eq!([(); 4].map(|()| ask(&weir, "/", "777", "203.0.113.8")), [200, 200, 200, 429]);
    let requests = weir.wait_for("the last requests", || {
        Some(client(&["seller=777"])).filter(|client| client["decisions"]["count"] == 6)
    });
    let verdict = requests["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("Refused by 4/h, token bucket of the limit sellers until a unit is back at "),
        "{verdict}"
    );
    assert_eq!(limits(&requests), ["sellers [] false 0", r#"pairs ["ip"] false 0"#, "all [] true 995"]);
    let pair = &requests["limits"][1]["keys"][0]["key"]["key"];
    assert_eq!(pair, &json!({ "ip": "203.0.113.7", "seller": "777" }));
    // Requests of different connections may come in another order.
    let mut last = requests["decisions"]["requests"].as_array().unwrap().iter();
    let refused = last.find(|request| request["path"] == "/" && request["status"] == 429).unwrap();
    assert_eq!(refused["identities"]["seller"], "777");

    // An address: the limits by network, too; requests of all sellers from there.
    let address = client(&["ip=203.0.113.7"]);
    assert_eq!(limits(&address), [r#"pairs ["seller"] false 0 false 0"#, "networks [] true 95", "all [] true 995"]);
    let partly = "Refused in part, by pairs: other requests pass.";
    assert_eq!((&address["verdict"], &address["passes"]), (&json!(partly), &json!(false)));
    // Both: no part is missing.
    let both = client(&["seller=777", "ip=203.0.113.7"]);
    assert_eq!(limits(&both), ["sellers [] false 0", "pairs [] false 0", "networks [] true 95", "all [] true 995"]);

    // Plans, overrides, bans and lists.
    let set = asked(&weir, &["overrides", "set", "sellers", "777", "x2", "--for", "1h"]);
    let raised = client(&["seller=777"]);
    let key = &raised["limits"][0]["keys"][0];
    assert_eq!((&key["key"]["from"], &key["passes"]), (&json!("override set at run time"), &json!(true)));
    assert_eq!(key["override_until"].as_str().unwrap()[..16], set["until"].as_str().unwrap()[..16]);
    assert_eq!(client(&["seller=8", "--plan", "big"])["limits"][0]["keys"][0]["key"]["remaining"], 100);
    asked(&weir, &["bans", "add", "sellers", "777", "--for", "1h"]);
    let banned = client(&["seller=777"]);
    assert!(banned["verdict"].as_str().unwrap().starts_with("sellers: Banned until "), "{banned}");
    asked(&weir, &["bans", "add", "--address", "203.0.113.0/28", "--forever", "--reason", "attack"]);
    let banned = client(&["ip=203.0.113.7"]);
    assert_eq!(banned["verdict"], "The ban of 203.0.113.0/28 refuses each request with 403.");
    assert_eq!((&banned["bans"][0]["reason"], &banned["passes"]), (&json!("attack"), &json!(false)));
    assert_eq!(client(&["ip=203.0.113.99"])["bans"], json!([]));
    for (parts, access, passes) in [
        (&["seller=outcast"][..], "deny", false),
        (&["ip=192.0.2.9"], "allow", true),
        (&["ip=192.0.2.9", "seller=outcast"], "deny", false),
    ] {
        let listed = client(parts);
        assert_eq!((&listed["access"], &listed["passes"]), (&json!(access), &json!(passes)), "{parts:?}");
    }
}

#[test]
fn wrong_clients_are_problems() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    for (key, detail) in [
        ("sellr%3D777", "no limit counts by `sellr`; limits count by `ip`, `path`, `seller`"),
        ("777", "expected a name and a text, as in `seller=777`, or a JSON object"),
        ("%7B%7D", "expected a name and a text"),
        ("ip%3D203.0.113.0%2F24", "`203.0.113.0/24` is not an address"),
        ("ip%2F24%3D203.0.113.0%2F24", "no limit counts by `ip/24`; limits count by `ip`,"),
        ("seller%3D", "`seller` is empty, so no request has it"),
        ("%7B%22seller%22%3A%5B%5D%7D", "`seller` cannot have this value"),
    ] {
        let answer = get(&weir, &format!("/v1/client?key={key}"));
        assert_eq!(answer.status, 400, "{key}");
        assert!(answer.text().contains(detail), "{key}: {}", answer.text());
        let page = get(&weir, &format!("/client?key={key}"));
        assert_eq!(page.status, 400, "{key}");
    }
    assert_eq!(get(&weir, "/v1/client").status, 400);
    let output = run(&weir, &["client", "777"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected a name and a text"));
    let twice = run(&weir, &["client", "seller=1", "seller=2"]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("`seller` occurs twice"));
}

#[test]
fn the_page_of_a_client_leads_to_its_keys() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    for _ in 0..5 {
        ask(&weir, "/", "777", "203.0.113.7");
    }
    let page = get(&weir, "/client?key=seller%3D777").text();
    for part in [
        "<h1>Client seller&#61;777</h1>",
        "Refused by 4/h, token bucket of the limit sellers until a unit is back at",
        "<a href=\"/key?limit=sellers&#38;id=",
        "pairs also counts by ip: name it, too, to see the key.",
        "Limits with other keys: networks, paths.",
        "of this client ended since",
    ] {
        assert!(page.contains(part) || page.contains(&part.replace("&#61;", "=")), "{part}: {page}");
    }
    assert_eq!(get(&weir, "/client").status, 200);
    let hidden = get(&weir, "/client?key=seller%3D%3Cscript%3E").text();
    assert!(!hidden.contains("<script>"), "{hidden}");
}
