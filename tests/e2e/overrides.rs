//! Overrides that are set while Weir runs: they apply at once, refill nothing, and outlive it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::ops::{count_lines, replace};
use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = "\
[identity.seller]
header = \"x-seller\"
on_missing = \"anonymous\"

[[limit]]
name = \"sellers\"
match = { path = \"/seller\" }
key = [\"query:who\"]
rate = \"10/h\"
overrides = { \"written\" = \"30/h\" }

[[limit]]
name = \"paths\"
match = { path = [\"/path/{name}\"] }
key = [\"path\", \"query:who\"]
rate = \"10/h\"

[[limit]]
name = \"all\"
match = { path = \"/all\" }
key = []
rate = \"10/h\"

[[limit]]
name = \"clients\"
match = { path = \"/client\" }
key = [\"ip\"]
rate = \"10/h\"

[[limit]]
name = \"keys\"
match = { path = \"/key\" }
key = [\"header:x-key\"]
rate = \"10/h\"

[[limit]]
name = \"accounts\"
match = { path = \"/account\" }
key = [\"seller\"]
rate = \"10/h\"
";

/// A place for the file, and Weirs one after another that keep overrides in it.
struct Place {
    upstream: Upstream,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { upstream: Upstream::start(), folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("overrides.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// With `[snapshot]`, so that nothing is refilled by a restart, and `server.takeover`.
    fn config(&self, limits: &str) -> String {
        let folder = self.folder.path().display();
        let server = format!("takeover = \"{folder}/takeover.sock\"");
        let rest = format!("[snapshot]\npath = \"{folder}/state\"\ninterval = \"1h\"\n{limits}");
        let admin = format!("[admin]\noverrides = \"{}\"\n", self.file().display());
        Weir::config(&self.upstream, &server, &rest).replacen("[admin]\n", &admin, 1)
    }

    fn start(&self) -> Weir {
        self.start_with(LIMITS)
    }

    fn start_with(&self, limits: &str) -> Weir {
        Weir::start_as(&self.config(limits))
    }
}

fn send(weir: &Weir, method: &str, query: &str, body: &str) -> Answer {
    send_to(weir.admin(), method, query, body)
}

fn send_to(admin: SocketAddr, method: &str, query: &str, body: &str) -> Answer {
    let length = body.len();
    let head = format!(
        "{method} /v1/overrides{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    Client::connect(admin).send(head).send(body).answer()
}

fn post(weir: &Weir, body: &Value) -> (u16, Value) {
    let answer = send(weir, "POST", "", &body.to_string());
    (answer.status, read(&answer))
}

fn read(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

fn list(weir: &Weir, query: &str) -> Value {
    let answer = send(weir, "GET", query, "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    read(&answer)
}

/// What sets the rate of a seller.
fn of(who: &str, to: impl Into<Value>) -> Value {
    json!({ "limit": "sellers", "key": { "query:who": who }, "to": to.into() })
}

fn ask(weir: &Weir, target: &str) -> Answer {
    Client::connect(weir.address()).get(target)
}

/// What is left of how much, after a request.
fn left(weir: &Weir, target: &str) -> (u64, u64) {
    let answer = ask(weir, target);
    let number = |name| answer.header(name).map_or(u64::MAX, |text| text.parse().unwrap());
    (number("x-ratelimit-remaining"), number("x-ratelimit-limit"))
}

#[test]
fn what_is_set_applies_at_once_and_refills_nothing() {
    let place = Place::new();
    let weir = place.start();
    assert_eq!((left(&weir, "/seller?who=a"), left(&weir, "/seller?who=a")), ((9, 10), (8, 10)));
    assert_eq!(list(&weir, ""), json!([]));

    let (status, told) = post(&weir, &of("a", "20/h"));
    assert_eq!(status, 200, "{told}");
    assert_eq!((&told["limit"], &told["to"], &told["was"]), (&json!("sellers"), &json!("20/h"), &Value::Null));
    assert_eq!((left(&weir, "/seller?who=a"), left(&weir, "/seller?who=b")), ((17, 20), (9, 10)));
    let explained = json!({ "method": "GET", "path": "/seller?who=a", "host": "h", "ip": "::1" }).to_string();
    let head = format!(
        "POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        explained.len()
    );
    let explained = read(&Client::connect(weir.admin()).send(head).send(explained).answer());
    let budget = &explained["limits"][0]["budget"];
    assert_eq!(
        (&budget["from"], &budget["remaining"]),
        (&json!("override set at run time"), &json!(16)),
        "{explained}"
    );

    // Less than was spent already.
    let (_, told) = post(&weir, &of("a", json!({ "rate": "5/h", "burst": 2 })));
    assert_eq!(told["was"], "20/h");
    assert_eq!(ask(&weir, "/seller?who=a").status, 429);
    let (_, told) = post(&weir, &of("a", "unlimited"));
    assert_eq!(told["was"], json!({ "rate": "5/h", "burst": 2 }));
    assert_eq!(left(&weir, "/seller?who=a"), (u64::MAX, u64::MAX));
    let (_, told) = post(&weir, &of("a", Value::Null));
    assert_eq!((&told["to"], &told["was"]), (&Value::Null, &json!("unlimited")));
    let (remaining, limit) = left(&weir, "/seller?who=a");
    assert!(remaining <= 7 && limit == 10, "{remaining} of {limit}");
    assert_eq!(list(&weir, ""), json!([]));

    // Before what is written, and that again without it.
    assert_eq!(left(&weir, "/seller?who=written"), (29, 30));
    assert_eq!(post(&weir, &of("written", "40/h")).1["was"], Value::Null);
    assert_eq!(left(&weir, "/seller?who=written"), (38, 40));
    assert_eq!(post(&weir, &of("written", Value::Null)).1["was"], "40/h");
    assert_eq!(left(&weir, "/seller?who=written"), (27, 30));
    // Its own file is no reason to read it again.
    assert_eq!(count_lines(&weir, "\"reloaded\""), 0);
    assert_eq!(weir.wait_for_lines("\"overrides set at run time\"", 6).len(), 6);
    assert!(weir.wait_for_line("\"overrides set at run time\"").contains("\"limit\":\"sellers\",\"changes\":1"));
}

#[test]
fn an_array_is_taken_whole_or_not_at_all() {
    let place = Place::new();
    let weir = place.start();
    let one = of("a", "20/h");
    for (wrong, status, words) in [
        (of("b", "20/fortnight"), 400, "[1]: `limit.overrides.NAME`: unknown unit"),
        (json!({ "limit": "none", "key": {}, "to": "1/h" }), 404, "[1]: there is no such limit"),
        (json!({ "limit": "sellers", "key": {}, "to": "1/h" }), 400, "[1]: key: `query:who` is missing"),
        (of("b", json!(["1/s", "10/h"])), 400, "[1]: `limit.overrides.NAME`: must be one rate"),
    ] {
        let (found, told) = post(&weir, &json!([one, wrong]));
        assert!(found == status && told["detail"].as_str().unwrap().starts_with(words), "{found} {told}");
        assert_eq!((list(&weir, ""), place.text()), (json!([]), String::new()));
    }
    assert_eq!(post(&weir, &json!([one])).0, 200);
    let (status, told) = post(&weir, &json!([of("b", "30/h"), of("a", "40/h")]));
    assert_eq!(status, 200, "{told}");
    let was: Vec<_> = told.as_array().unwrap().iter().map(|one| one["was"].clone()).collect();
    assert_eq!(was, [Value::Null, json!("20/h")]);
    assert_eq!((left(&weir, "/seller?who=a"), left(&weir, "/seller?who=b")), ((39, 40), (29, 30)));
    assert_eq!(post(&weir, &json!([])), (200, json!([])));
    let many = |count: usize| json!((0..count).map(|at| of(&at.to_string(), Value::Null)).collect::<Vec<_>>());
    assert_eq!((post(&weir, &many(1000)).0, post(&weir, &many(1001)).0), (200, 400));
}

#[test]
fn what_is_set_outlives_the_process_however_it_ends() {
    let place = Place::new();
    let weir = place.start();
    assert_eq!(left(&weir, "/seller?who=a"), (9, 10));
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    let broken_off = place.folder.path().join("overrides.toml.0123456789abcdef.tmp");
    fs::write(&broken_off, "[sell").unwrap();
    let weir = place.start();
    assert!(!broken_off.exists());
    assert_eq!(left(&weir, "/seller?who=a"), (18, 20));
    let set = list(&weir, "");
    assert_eq!(post(&weir, &of("b", "30/h")).0, 200);
    weir.signal("KILL");
    weir.wait();
    let weir = place.start();
    assert_eq!((left(&weir, "/seller?who=a").1, left(&weir, "/seller?who=b")), (20, (29, 30)));
    assert_eq!((set.as_array().unwrap().len(), list(&weir, "").as_array().unwrap().len()), (1, 2));
    // And whoever takes over has them.
    let next = place.start();
    weir.wait_for_line("\"stopped\"");
    assert_eq!(left(&next, "/seller?who=b"), (28, 30));
    assert_eq!(post(&next, &of("b", Value::Null)).1["was"], "30/h");
}

#[test]
fn files_are_taken_over_as_ever() {
    let place = Place::new();
    let weir = place.start();
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    replace(&weir.config_file(), &place.config(&LIMITS.replace("rate = \"10/h\"", "rate = \"15/h\"")));
    weir.wait_until("the new file", || left(&weir, "/seller?who=c").1 == 15);
    assert_eq!(left(&weir, "/seller?who=a"), (19, 20));
    // By hand.
    let text = place.text();
    assert!(text.starts_with("# Overrides set at run time.") && text.contains("[sellers]\na = \"20/h\"\n"), "{text}");
    fs::write(place.file(), text.replace("\"20/h\"", "\"25/h\" # until May")).unwrap();
    weir.wait_until("the edit", || left(&weir, "/seller?who=a").1 == 25);
    assert_eq!(post(&weir, &of("b", "30/h")).0, 200);
    let text = place.text();
    assert!(text.contains("a = \"25/h\" # until May\nb = \"30/h\"\n"), "{text}");
    assert_eq!(list(&weir, "?limit=sellers").as_array().unwrap().len(), 2);
    fs::remove_file(place.file()).unwrap();
    weir.wait_until("the removal", || left(&weir, "/seller?who=a").1 == 15);
    weir.wait_for_line("the file of overrides was removed");
    assert_eq!(list(&weir, ""), json!([]));
    // A change leaves the configuration on disk to the watch.
    fs::write(weir.config_file(), place.config(&LIMITS.replace("rate = \"10/h\"", "rate = \"16/h\""))).unwrap();
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    assert_eq!(left(&weir, "/seller?who=a").1, 20);
    weir.wait_until("the new configuration", || left(&weir, "/seller?who=c").1 == 16);
}

#[test]
fn however_a_key_is_spelled_it_is_the_same() {
    let place = Place::new();
    fs::write(place.file(), "[clients]\n\"::ffff:127.0.0.1\" = \"20/h\"\n").unwrap();
    let written = "key = [\"ip\"]\noverrides = { \"127.0.0.1\" = \"30/h\" }\n";
    let weir = place.start_with(&LIMITS.replace("key = [\"ip\"]\n", written));
    assert_eq!((left(&weir, "/client"), weir.metric("weir_overrides_left_out")), ((19, 20), 0.0));
    let to = |to: Value| json!({ "limit": "clients", "key": { "ip": "127.0.0.1" }, "to": to });
    assert_eq!(post(&weir, &to(json!("25/h"))).1["was"], "20/h");
    assert_eq!((left(&weir, "/client").1, list(&weir, "").as_array().unwrap().len()), (25, 1));
    assert_eq!(post(&weir, &to(Value::Null)).1["was"], "25/h");
    assert_eq!((left(&weir, "/client").1, list(&weir, "")), (30, json!([])));
}

#[test]
fn what_does_not_fit_any_more_stops_nothing() {
    const GAUGE: &str = "weir_overrides_left_out";
    const WORDS: &str = "are left out";
    let place = Place::new();
    let weir = place.start();
    let path = json!({ "limit": "paths", "key": { "path": "/path/a", "query:who": "secret-of-acme" }, "to": "20/h" });
    assert_eq!(post(&weir, &json!([of("secret-of-acme", "20/h"), of("b", "30/h"), path])).0, 200);
    assert_eq!(weir.metric(GAUGE), 0.0);
    let (before, rest) = LIMITS.split_at(LIMITS.find("[[limit]]\nname = \"sellers\"").unwrap());
    let without = format!("{before}{}", &rest[rest.find("[[limit]]\nname = \"paths\"").unwrap()..]);
    replace(&weir.config_file(), &place.config(&without));
    weir.wait_for_metric(GAUGE, |count| count == 2.0);
    assert!(weir.wait_for_line(WORDS).contains("there is no limit `sellers`"));
    assert_eq!(weir.metric("weir_config_last_reload_successful"), 1.0);
    assert_eq!(left(&weir, "/path/a?who=secret-of-acme").1, 20);
    let set = list(&weir, "");
    assert_eq!(list(&weir, "?limit=sellers").as_array().unwrap().len(), 2);
    assert_eq!((&set[2]["left_out"], &set[0]["left_out"], &set[0]["to"]), (&Value::Null, &json!(true), &json!("20/h")));
    assert!(set[0]["key"].is_string() && !set.to_string().contains("secret-of-acme"), "{set}");
    // Another change leaves it where it is, and says no more of it.
    let other = json!({ "limit": "clients", "key": { "ip": "192.0.2.1" }, "to": "1/h" });
    assert_eq!(post(&weir, &other).0, 200);
    assert_eq!((count_lines(&weir, WORDS), weir.metric(GAUGE)), (1, 2.0));
    assert!(place.text().contains("secret-of-acme"));
    weir.signal("TERM");
    let lines = weir.lines();
    assert_eq!(weir.wait(), Some(0));
    assert!(!lines.iter().any(|line| line.contains("secret-of-acme")), "{lines:?}");

    let weir = place.start_with(&without);
    weir.wait_for_line(WORDS);
    assert_eq!(weir.metric(GAUGE), 2.0);
    let check = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(weir.config_file()).output().unwrap();
    let said = String::from_utf8(check.stderr).unwrap();
    // Weir starts without these overrides, so a check before a start must not prevent it.
    assert!(check.status.code() == Some(0) && said.contains("there is no limit `sellers`"), "{said}");
    assert!(!said.contains("secret-of-acme"), "{said}");
    replace(&weir.config_file(), &place.config(LIMITS));
    weir.wait_for_metric(GAUGE, |count| count == 0.0);
    assert_eq!(left(&weir, "/seller?who=b").1, 30);
    // A file that nobody can read: what is in force stays, whatever else changes.
    fs::write(place.file(), "[sellers\nsecret-of-acme = 1").unwrap();
    weir.wait_for_metric(GAUGE, |count| count == 1.0);
    assert_eq!(left(&weir, "/seller?who=b").1, 30);
    replace(&weir.config_file(), &place.config(&LIMITS.replace("rate = \"10/h\"", "rate = \"15/h\"")));
    weir.wait_until("the new file", || left(&weir, "/seller?who=other").1 == 15);
    assert_eq!((left(&weir, "/seller?who=b").1, list(&weir, "").as_array().unwrap().len()), (30, 4));
    assert!(!weir.lines().iter().any(|line| line.contains("secret-of-acme")));
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    assert_eq!(place.start().metric(GAUGE), 1.0);
}

/// Overrides that do not fit are removed by their text or all at once; others stay.
#[test]
fn leftovers_are_listed_and_removed() {
    let place = Place::new();
    let weir = place.start();
    assert_eq!(post(&weir, &json!([of("a", "20/h"), of("b", "30/h"), of("c", "40/h")])).0, 200);
    let other = json!({ "limit": "clients", "key": { "ip": "192.0.2.1" }, "to": "1/h" });
    assert_eq!(post(&weir, &other).0, 200);
    let delete = |query: &str| {
        let answer = send(&weir, "DELETE", query, "");
        (answer.status, read(&answer))
    };
    assert_eq!(delete("?left_out=true"), (200, json!([])));
    for query in ["", "?limit=sellers", "?left_out=false", "?limit=sellers&key=a&left_out=true", "?key=a"] {
        assert_eq!(delete(query).0, 400, "{query}");
    }
    assert_eq!((delete("?limit=none&key=a").0, delete("?limit=sellers&key=d").0), (404, 404));
    assert_eq!(delete("?limit=clients&key=192.0.2.1").1["was"], "1/h");
    assert_eq!(post(&weir, &other).0, 200);
    replace(&weir.config_file(), &place.config(&LIMITS.replace("name = \"sellers\"", "name = \"shops\"")));
    weir.wait_for_metric("weir_overrides_left_out", |count| count == 3.0);
    let count = |query: &str| list(&weir, query).as_array().unwrap().len();
    assert_eq!((count("?left_out=true"), count("?left_out=false"), count("")), (3, 1, 4));
    let removed = delete("?limit=sellers&key=a").1;
    assert_eq!((&removed["was"], removed["key"].is_string()), (&json!("20/h"), true));
    assert_eq!(delete("?left_out=true&limit=clients").1, json!([]));
    assert_eq!(delete("?left_out=true").1.as_array().unwrap().len(), 2);
    assert_eq!((count(""), weir.metric("weir_overrides_left_out")), (1, 0.0));
    assert!(!place.text().contains("40/h") && place.text().contains("192.0.2.1"), "{}", place.text());
}

#[test]
fn what_cannot_be_set() {
    let place = Place::new();
    let weir = place.start();
    let two = |path: &str, who: &str| json!({ "path": path, "query:who": who });
    let key = |limit: &str, key: Value| json!({ "limit": limit, "key": key, "to": "1/h" }).to_string();
    for (body, status, words) in [
        (key("none", json!({})), 404, "there is no such limit"),
        (key("all", json!({})), 400, "one budget for all requests"),
        (key("sellers", json!({})), 400, "`query:who` is missing"),
        (key("sellers", json!({ "query:who": "a", "ip": "::1" })), 400, "has no `ip`"),
        (key("paths", two("/path/a", "a|b")), 400, "`query:who` contains `|`"),
        (key("paths", two("/a%2Fb", "a")), 400, "`path` cannot have this value"),
        (key("clients", json!({ "ip": "here" })), 400, "`ip` is an address such as 192.0.2.7"),
        (key("sellers", json!({ "query:who": [] })), 400, "cannot have this value"),
        ("{\"limit\":\"sellers\",\"key\":{\"query:who\":\"a\"}}".to_owned(), 400, "missing field `to`"),
        (
            "{\"limit\":\"sellers\",\"key\":{\"query:who\":\"a\"},\"to\":\"1/h\",\"x\":1}".to_owned(),
            400,
            "unknown field",
        ),
        (of("hunter2", "1/never").to_string(), 400, "unknown unit `never`"),
        (of("hunter2", json!({ "max": 5 })).to_string(), 400, "belongs to `concurrency`"),
        (of("hunter2", json!([null])).to_string(), 400, "`null` stands alone"),
        (key("sellers", json!(["hunter2"])), 400, "key: expected a text"),
        ("{".to_owned(), 400, "not JSON"),
        ("5".to_owned(), 400, "expected an object"),
        ("[[\"sellers\",{\"query:who\":\"a\"},\"1/h\"]]".to_owned(), 400, "[0]: expected an object"),
        (
            json!([of("a", "garbage"), of("a", "1/h")]).to_string(),
            400,
            "[1]: an earlier change has this key of the limit",
        ),
        (key("keys", json!({ "header:x-key": "a\r\nb" })), 400, "`header:x-key` cannot have this value"),
        (key("keys", json!({ "header:x-key": " a" })), 400, "`header:x-key` cannot have this value"),
    ] {
        let answer = send(&weir, "POST", "", &body);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, Some("application/problem+json")),
            "{body}"
        );
        let detail = read(&answer)["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words) && !detail.contains("hunter2"), "{body}: {detail}");
    }
    assert_eq!((send(&weir, "PUT", "", "{}").status, send(&weir, "GET", "?limit=none", "").status), (405, 404));
    assert_eq!(send(&weir, "GET", "?n=1", "").status, 400);
    assert_eq!(list(&weir, "?limit=sellers"), json!([]));
    assert_eq!(place.text(), "");
    // Nowhere to keep it.
    let sound = fs::read_to_string(weir.config_file()).unwrap();
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    replace(&weir.config_file(), &sound.replace("overrides = \"", "overrides = \"off\"#"));
    weir.wait_until("the override is gone", || left(&weir, "/seller?who=a").1 == 10);
    let (status, told) = post(&weir, &of("a", "20/h"));
    assert!(status == 409 && told["detail"].as_str().unwrap().contains("`admin.overrides`"), "{told}");
    assert_eq!(list(&weir, ""), json!([]));
}

/// A length ends an override by itself, across reloads and restarts. The audit log has a line of both ends.
#[test]
fn overrides_end_by_themselves() {
    let place = Place::new();
    let audit = place.folder.path().join("audit.jsonl");
    let line = format!("[admin]\naudit = \"{}\"\n", audit.display());
    let config = place.config(LIMITS).replacen("[admin]\n", &line, 1);
    let lines = || {
        let text = fs::read_to_string(&audit).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let weir = Weir::start_as(&config);
    let timed = |who: &str, to: &str, length: &str| json!({ "limit": "sellers", "key": { "query:who": who }, "to": to, "for": length });
    for (length, status) in [("soon", 400), ("0s", 400), ("", 400), ("forever", 400)] {
        assert_eq!(post(&weir, &timed("a", "20/h", length)).0, status, "{length}");
    }
    let mut removal = timed("a", "20/h", "1h");
    removal["to"] = Value::Null;
    assert_eq!(post(&weir, &removal).0, 400);
    let (status, told) = post(&weir, &timed("long", "x3", "1h"));
    assert!(status == 200 && told["to"] == "x3" && told["until"].as_str().unwrap().ends_with('Z'), "{told}");
    assert_eq!(post(&weir, &timed("a", "20/h", "4s")).0, 200);
    assert_eq!((left(&weir, "/seller?who=long").1, left(&weir, "/seller?who=a").1), (30, 20));
    weir.signal("HUP");
    weir.wait_for_line("\"reloaded\"");
    weir.wait_until("the end", || left(&weir, "/seller?who=a").1 == 10);
    weir.wait_until("its line", || lines().len() == 3);
    let end = lines().pop().unwrap();
    assert_eq!(
        (&end["action"], &end["before"]["to"], &end["after"]),
        (&json!("override"), &json!("20/h"), &Value::Null)
    );
    assert_eq!((&end["reason"], &end["address"]), (&json!("its time is over"), &json!("weir")));
    assert!(!place.text().contains("\na = ") && place.text().contains("long"), "{}", place.text());
    let listed = list(&weir, "");
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert!((3500..=3600).contains(&listed[0]["left_s"].as_u64().unwrap()), "{listed}");
    drop(weir);

    // The file has the dates. What ended while no Weir ran does not apply, and has its line.
    let past = "[clients]\n\"127.0.0.1\" = { to = \"1/h\", until = \"2020-01-01T00:00:00Z\" }\n";
    fs::write(place.file(), place.text() + past).unwrap();
    let weir = Weir::start_as(&config);
    assert_eq!((left(&weir, "/seller?who=long").1, left(&weir, "/client").1), (30, 10));
    weir.wait_until("its line", || lines().len() == 4);
    assert_eq!(lines()[3]["target"], json!({ "ip": "127.0.0.1" }));
    weir.wait_until("a clean file", || !place.text().contains("2020"));
    assert!(list(&weir, "")[0]["left_s"].as_u64().unwrap() > 3000);
}

/// A value that drops a window is refused, unless the request asks for that. A factor keeps each window.
#[test]
fn an_override_keeps_the_windows_of_its_limit() {
    let limits = "[identity.seller]\nheader = \"x-seller\"\n[[limit]]\nname = \"sellers\"\nkey = [\"query:who\"]\n\
        rate = [\"10/min\", \"100/h\"]\nplans = { premium = \"x10\", flat = \"50/min\" }\n";
    let place = Place::new();
    let weir = place.start_with(limits);
    let (status, told) = post(&weir, &of("a", "20/min"));
    let detail = told["detail"].as_str().unwrap();
    assert!(
        status == 400 && detail.contains("drops `100/h`") && detail.contains("`[\"20/min\", \"100/h\"]`"),
        "{told}"
    );
    assert_eq!(post(&weir, &of("a", "x2")).0, 200);
    let rule = |who: &str| {
        let head = format!("GET /v1/keys?limit=sellers&key={who} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = Client::connect(weir.admin()).send(head).answer();
        read(&answer)["rule"].as_str().unwrap().to_owned()
    };
    assert_eq!(rule("a"), "x2 of 10/min and x2 of 100/h, token bucket");
    assert_eq!(post(&weir, &of("b", json!({ "plan": "premium" }))).0, 200);
    assert_eq!(rule("b"), "x10 of 10/min and x10 of 100/h, token bucket");
    assert_eq!(post(&weir, &of("b", json!({ "plan": "flat" }))).0, 400);
    let mut replaced = of("a", "20/min");
    replaced["replace"] = json!(true);
    assert_eq!(post(&weir, &replaced).0, 200);
    assert_eq!(rule("a"), "20/min, token bucket");
}

/// A Weir with the configuration `name` in the folder of `place`.
fn start_named(place: &Place, name: &str, config: &str) -> Weir {
    let file = place.folder.path().join(name);
    fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("run").arg("--config").arg(file).stdin(Stdio::null());
    Weir::of_command(command, tempfile::tempdir().unwrap())
}

/// Without `admin.overrides`, each configuration has a file of its own beside it, from the first override on.
#[test]
fn overrides_have_a_file_by_default() {
    let place = Place::new();
    let config = Weir::config(&place.upstream, "", LIMITS);
    let [one, other] = ["one.toml", "other.toml"].map(|name| start_named(&place, name, &config));
    let files = || {
        let names = fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(files(), ["one.toml", "other.toml"]);
    let (status, told) = post(&one, &of("a", "20/h"));
    assert!(status == 200 && told.get("not_kept").is_none(), "{told}");
    assert_eq!(files(), ["one.overrides.toml", "one.toml", "other.toml"]);
    assert_eq!(post(&other, &of("a", "30/h")).0, 200);
    assert_eq!((left(&one, "/seller?who=a"), left(&other, "/seller?who=a")), ((19, 20), (29, 30)));
    drop(one);
    let one = start_named(&place, "one.toml", &config);
    assert_eq!(left(&one, "/seller?who=a"), (19, 20));
    assert_eq!(count_lines(&one, "end with the process"), 0);
}

/// Overrides in memory outlive a reload and a takeover, and end with the process.
#[test]
fn overrides_can_be_in_memory() {
    let place = Place::new();
    let config = place.config(LIMITS).replace(&*place.file().to_string_lossy(), "memory");
    let old = Weir::start_as(&config);
    let (status, told) = post(&old, &of("a", "20/h"));
    assert!(status == 200 && told["not_kept"] == "`admin.overrides` is `memory`", "{told}");
    assert_eq!((left(&old, "/seller?who=a"), post(&old, &of("b", "30/h")).0), ((19, 20), 200));
    old.signal("HUP");
    old.wait_for_line("\"reloaded\"");
    assert_eq!(left(&old, "/seller?who=a"), (18, 20));

    let new = Weir::start_as(&config);
    new.wait_for_line("\"took over\"");
    assert_eq!((left(&new, "/seller?who=a"), left(&new, "/seller?who=b")), ((17, 20), (29, 30)));
    assert_eq!(post(&new, &of("b", Value::Null)).0, 200);
    assert_eq!(left(&new, "/seller?who=b"), (8, 10));
    assert!(!place.file().exists());
    drop((old, new));
    let last = Weir::start_as(&config);
    assert_eq!((list(&last, ""), left(&last, "/seller?who=a").1), (json!([]), 10));
}

#[test]
fn overrides_in_memory_move_to_a_new_file() {
    let place = Place::new();
    let config = place.config(LIMITS);
    let weir = Weir::start_as(&config.replace(&*place.file().to_string_lossy(), "memory"));
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    assert_eq!(left(&weir, "/seller?who=a"), (19, 20));
    for reload in 1..3 {
        replace(&weir.config_file(), &format!("{config}# {reload}\n"));
        weir.wait_for_lines("\"reloaded\"", reload);
        assert_eq!(left(&weir, "/seller?who=a").1, 20);
    }
    assert!(place.text().contains("20/h") && !weir.lines().iter().any(|line| line.contains("was removed")));
}

#[test]
fn what_cannot_be_written_is_not_set() {
    let place = Place::new();
    let weir = Weir::start_as(&place.config(LIMITS).replace("/overrides.toml", "/missing/overrides.toml"));
    let (status, told) = post(&weir, &of("a", "20/h"));
    assert!(status == 500 && told["detail"].as_str().unwrap().contains("nothing is changed"), "{told}");
    assert_eq!((left(&weir, "/seller?who=a"), list(&weir, "")), ((9, 10), json!([])));
    fs::create_dir(place.folder.path().join("missing")).unwrap();
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    assert_eq!(left(&weir, "/seller?who=a"), (18, 20));
}

/// An invalid file on disk does not prevent a change: overrides are compiled against the configuration in force.
#[test]
fn a_bad_file_on_disk_prevents_no_override() {
    let place = Place::new();
    let weir = place.start();
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    let sound = fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &sound.replace("10/h", "10/fortnight"));
    weir.wait_for_line("the new configuration is invalid");
    let (status, told) = post(&weir, &of("b", "30/h"));
    assert_eq!(status, 200, "{told}");
    assert_eq!((left(&weir, "/seller?who=b"), left(&weir, "/seller?who=a")), ((29, 30), (19, 20)));
    assert_eq!(weir.metric("weir_config_last_reload_successful"), 0.0);
    // Edits by hand apply, too.
    replace(&place.file(), &place.text().replace("30/h", "40/h"));
    weir.wait_until("the edit by hand", || left(&weir, "/seller?who=b").1 == 40);
    // An invalid file of overrides is kept beside the one that replaces it.
    fs::write(place.file(), "[sellers\nsecret-of-acme = 1").unwrap();
    weir.wait_for_metric("weir_overrides_left_out", |count| count == 1.0);
    let (status, told) = post(&weir, &of("c", "50/h"));
    assert_eq!(status, 200, "{told}");
    weir.wait_for_line("keeps a copy");
    assert_eq!((left(&weir, "/seller?who=b").1, left(&weir, "/seller?who=c").1), (40, 50));
    let copy = fs::read_to_string(place.folder.path().join("overrides.invalid")).unwrap();
    assert_eq!((copy.as_str(), weir.metric("weir_overrides_left_out")), ("[sellers\nsecret-of-acme = 1", 0.0));
    replace(&weir.config_file(), &sound.replace("10/h", "15/h"));
    weir.wait_until("the sound file", || left(&weir, "/seller?who=other").1 == 15);
    assert_eq!((left(&weir, "/seller?who=a").1, left(&weir, "/seller?who=c").1), (20, 50));
}

/// A configuration on disk that compiles, and cannot be put in force without the certificates of the system, prevents no
/// change either.
#[test]
fn a_configuration_that_cannot_be_put_in_force_prevents_no_override() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let fleet = "[fleet]\nstrategy = \"local\"\nreplicas = 1\nsecret = { env = \"WEIR_FLEET_SECRET\" }\n";
    let config = Weir::config(&upstream, "", &format!("{fleet}{LIMITS}"));
    let config = config.replacen("[admin]\n", "[admin]\noverrides = \"overrides.toml\"\n", 1);
    fs::write(folder.path().join("weir.toml"), &config).unwrap();
    let secret = ("WEIR_FLEET_SECRET", "5c6f1e0b7a9d4283bd01f6e2c4a85790");
    let variables = [secret, ("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/dev/null")];
    let weir = Weir::start_in_env(folder, &variables);
    assert_eq!(post(&weir, &of("a", "20/h")).0, 200);
    let far = "[[limit]]\nname = \"far\"\nkey = []\nrate = \"1/h\"\nmatch = { path = \"/far\" }\n\
        strategy = { use = \"service\", url = \"https://localhost:9\" }\n";
    replace(&weir.config_file(), &format!("{config}{far}"));
    weir.wait_for_line("the new configuration cannot be used");
    let (status, told) = post(&weir, &of("a", "30/h"));
    assert_eq!(status, 200, "{told}");
    assert_eq!(left(&weir, "/seller?who=a").1, 30);
}

#[test]
fn secrets_are_not_shown() {
    let place = Place::new();
    let weir = place.start();
    let all = json!([
        of("secret-of-acme", "20/h"),
        { "limit": "paths", "key": { "query:who": "secret-of-acme", "path": "//path/a" }, "to": "20/h" },
        { "limit": "accounts", "key": { "seller": "secret-of-acme" }, "to": "20/h" },
        { "limit": "clients", "key": { "ip": "2001:db8::7" }, "to": "20/h" },
    ]);
    let (status, told) = post(&weir, &all);
    assert_eq!(status, 200, "{told}");
    let set = list(&weir, "");
    for shown in [&told, &set] {
        assert!(!shown.to_string().contains("secret-of-acme"), "{shown}");
    }
    let keys: Vec<_> = set.as_array().unwrap().iter().map(|one| one["key"].clone()).collect();
    assert_eq!((&keys[3]["ip"], &keys[1]["path"]), (&json!("2001:db8::/64"), &json!("/path/a")), "{set}");
    for masked in [&keys[2]["seller"], &keys[1]["query:who"], &keys[0]["query:who"]] {
        assert!(masked.as_str().unwrap().starts_with("secr..#"), "{set}");
    }
    // The same key by another spelling.
    let other = json!({ "limit": "clients", "key": { "ip": "2001:db8::8" }, "to": null });
    assert_eq!(post(&weir, &other).1["was"], "20/h");
    assert!(!weir.lines().iter().any(|line| line.contains("secret-of-acme")));
}

#[test]
fn changes_at_the_same_time_all_land() {
    let place = Place::new();
    let weir = place.start();
    thread::scope(|scope| {
        for who in 0..8 {
            let (admin, change) = (weir.admin(), of(&format!("w{who}"), format!("{}/h", 20 + who)).to_string());
            scope.spawn(move || assert_eq!(send_to(admin, "POST", "", &change).status, 200));
        }
    });
    for who in 0..8 {
        assert_eq!(left(&weir, &format!("/seller?who=w{who}")), (19 + who, 20 + who));
    }
    assert_eq!(list(&weir, "").as_array().unwrap().len(), 8);
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 3, "state, socket and overrides");
}
