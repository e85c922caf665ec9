//! `weir keys`, `weir bans` and `weir overrides`, and the page of tasks for operators.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, Upstream, Weir};

const LIMITS: &str = r#"
[identity.seller]
header = "x-seller"
on_missing = "anonymous"

[[limit]]
name = "sellers"
key = ["seller"]
rate = "10/h"
plans = { big = "100/h" }

[[limit]]
name = "pairs"
match = { path = "/pair" }
key = ["ip", "seller"]
rate = "10/h"
"#;

fn run(weir: &Weir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).env("WEIR_ADMIN", weir.admin().to_string()).env_remove("WEIR_ADMIN_TOKEN").output().unwrap()
}

/// The JSON that a command prints.
fn asked(weir: &Weir, arguments: &[&str]) -> Value {
    let output = run(weir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ask(weir: &Weir, seller: &str) -> u16 {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\n\r\n");
    Client::connect(weir.address()).send(head).answer().status
}

fn start(upstream: &Upstream) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(upstream, "", LIMITS);
    let config = config.replacen("[admin]\n", "[admin]\noverrides = \"overrides.toml\"\naudit = \"audit.jsonl\"\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

#[test]
fn commands_do_what_the_api_does() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for _ in 0..10 {
        assert_eq!(ask(&weir, "7"), 200);
    }
    assert_eq!(ask(&weir, "7"), 429);
    assert_eq!(asked(&weir, &["keys", "show", "sellers", "7"])["remaining"], 0);
    assert_eq!(asked(&weir, &["keys", "show", "pairs", "127.0.0.1|7", "--json"])["remaining"], 10);
    assert_eq!(asked(&weir, &["keys", "show", "pairs", r#"{"seller": 7, "ip": "127.0.0.1"}"#])["remaining"], 10);
    let limited = asked(&weir, &["keys", "limited", "sellers"]);
    let id = limited["keys"][0]["id"].as_str().unwrap();
    assert_eq!(limited["count"], 1);
    assert_eq!(asked(&weir, &["keys", "reset", "sellers", "--id", id, "--reason", "paid"])["after"]["remaining"], 10);
    assert_eq!(ask(&weir, "7"), 200);

    let ban = asked(&weir, &["bans", "add", "sellers", "7", "--for", "1h", "--reason", "spam"]);
    assert_eq!((&ban["ban"]["reason"], ask(&weir, "7"), ask(&weir, "8")), (&json!("spam"), 403, 200));
    asked(&weir, &["bans", "add", "--address", "203.0.113.0/24", "--forever"]);
    assert_eq!(asked(&weir, &["bans", "list"])["bans"].as_array().unwrap().len(), 2);
    assert_eq!(asked(&weir, &["bans", "list", "sellers"])["bans"].as_array().unwrap().len(), 1);
    let file = weir.config_file().display().to_string();
    assert_eq!(asked(&weir, &["config", "check", &file])["valid"], true);
    assert_eq!(asked(&weir, &["config", "show", "limit.pairs.rate"])["settings"][0]["value"], "10/h");
    assert_eq!(
        asked(&weir, &["config", "show", "limit.pairs", "--no-defaults"])["settings"].as_array().unwrap().len(),
        4
    );
    assert_eq!(asked(&weir, &["config", "reload", "--reason", "test"])["outcome"], "applied");
    assert_eq!(asked(&weir, &["config", "history"]).as_array().unwrap().len(), 1);
    asked(&weir, &["bans", "lift", "sellers", "7"]);
    asked(&weir, &["bans", "lift", "--address", "203.0.113.0/24"]);
    assert_eq!(ask(&weir, "7"), 200);

    assert_eq!(asked(&weir, &["overrides", "set", "sellers", "7", "1/h", "--reason", "abuse"])["to"], "1/h");
    assert_eq!(ask(&weir, "7"), 429);
    let table = asked(&weir, &["overrides", "set", "pairs", "127.0.0.1|7", r#"{"rate": "5/h", "burst": 2}"#]);
    assert_eq!(table["to"], json!({ "rate": "5/h", "burst": 2 }));
    assert_eq!(asked(&weir, &["overrides", "list", "sellers"])[0]["to"], "1/h");
    assert_eq!(asked(&weir, &["overrides", "remove", "sellers", "7"])["was"], "1/h");
    assert_eq!(asked(&weir, &["overrides", "list", "--left-out"]), json!([]));
    assert_eq!(asked(&weir, &["overrides", "remove", "--left-out"]), json!([]));
    assert_eq!(asked(&weir, &["plans", "set", "sellers", "7", "big", "--reason", "paid"])["plan"], "big");
    assert_eq!(asked(&weir, &["plans", "list", "sellers"])[0]["plan"], "big");
    assert_eq!(asked(&weir, &["plans", "remove", "sellers", "7"])["was"], json!({ "plan": "big" }));
    assert!(asked(&weir, &["overrides", "set", "sellers", "8", "x2", "--for", "1h"])["until"].is_string());
    let set = ["plans", "set", "sellers", "8", "big", "--for", "2h", "--replace"];
    assert_eq!(asked(&weir, &set)["was"]["to"], "x2");
    assert!(asked(&weir, &["plans", "list"])[0]["left_s"].as_u64().unwrap() > 3600);
    assert_eq!(asked(&weir, &["keys", "show", "sellers", "unseen"])["unused"], true);
    assert_eq!(ask(&weir, "unseen"), 200);
    assert_eq!(asked(&weir, &["keys", "show", "sellers", "unseen"])["unused"], false);
    // Without options, `WEIR_ADMIN` names the listener to all commands.
    assert!(run(&weir, &["healthcheck"]).status.success());
    let explained = |arguments: &[&str]| String::from_utf8(run(&weir, arguments).stdout).unwrap();
    assert!(explained(&["explain", "--identity", "seller=unseen"]).contains("remaining 8"));
    let file = weir.config_file();
    let offline = explained(&["explain", "--config", file.to_str().unwrap()]);
    assert!(offline.starts_with("offline: ") && offline.contains("with full buckets"), "{offline}");
    assert_eq!(ask(&weir, "7"), 200);
}

#[test]
fn changes_are_listed_and_wrong_words_are_named() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    asked(&weir, &["keys", "reset", "sellers", "7", "--reason", "paid"]);
    asked(&weir, &["config", "reload", "--reason", "test"]);
    asked(&weir, &["bans", "add", "sellers", "7", "--for", "1h"]);
    asked(&weir, &["bans", "lift", "sellers", "7"]);
    asked(&weir, &["overrides", "set", "sellers", "7", "1/h", "--reason", "abuse"]);
    let audited = |arguments: &[&str]| {
        let listed = asked(&weir, &[&["audit"], arguments].concat());
        let actions = listed.as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap().to_owned());
        actions.collect::<Vec<_>>()
    };
    assert_eq!(audited(&["sellers", "-n", "3"]), ["override", "lift_ban", "ban"]);
    assert_eq!(audited(&["--action", "reload"]), ["reload"]);
    assert_eq!(audited(&["sellers", "--action", "reset"]), ["reset"]);
    assert!(audited(&["none"]).is_empty());
    for (arguments, detail) in [
        (&["audit", "--action", "nonsense"][..], "`nonsense` is none of override, plan, reset"),
        (&["audit", "-n", "0"], "expected a whole number from 1 to 1000"),
        (&["keys", "show", "sellers", "7", "--plan", "gold"], "the limit has no plan `gold`; it has `big`"),
        (&["config", "show", "limit.nosuch"], "no option in force has a name that begins with `limit.nosuch`"),
        (&["keys", "show", "pairs", "here|7"], "`ip` is an address such as 192.0.2.7"),
        (&["keys", "show", "sellers", r#"{"seler": 7}"#], "has no `seler`"),
    ] {
        let output = run(&weir, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(detail), "{arguments:?}: {said}");
    }
    // People read the file, so it has no marks of direction.
    asked(&weir, &["bans", "add", "--address", "198.51.100.1", "--for", "1h", "--reason", "a\u{202e}b"]);
    let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    assert!(audit.contains("a\\u202eb") && !audit.contains('\u{202e}'), "{audit}");
}

#[test]
fn commands_find_the_listener_and_say_what_is_wrong() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let code = |arguments: &[&str]| {
        let output = run(&weir, arguments);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let admin = weir.admin().to_string();
    assert_eq!(code(&["bans", "list", "--admin", &admin]).0, 0);
    // The file of the running Weir names port 0.
    let file = weir.folder().join("other.toml");
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    let written = text.replace("[admin]\nlisten = \"127.0.0.1:0\"", &format!("[admin]\nlisten = \"{admin}\""));
    let written = if written == text {
        text.replace("\nlisten = \"127.0.0.1:0\"\n[log]", &format!("\nlisten = \"{admin}\"\n[log]"))
    } else {
        written
    };
    assert_ne!(written, text);
    std::fs::write(&file, written).unwrap();
    assert_eq!(code(&["bans", "list", "--config", file.to_str().unwrap()]), (0, String::new()));
    std::fs::write(&file, "[server]\nlisten = 7\n").unwrap();
    for (arguments, expected, said) in [
        (&["bans", "list", "--config", file.to_str().unwrap()][..], 3, "server.listen"),
        (&["bans", "list", "--admin", "127.0.0.1:1"], 1, "does not answer"),
        (&["keys", "show", "nothing", "7"], 1, "there is no such limit; there are `sellers`, `pairs`"),
        (&["keys", "show", "pairs", "7"], 1, "2 parts"),
        (&["bans", "lift", "sellers", "7"], 1, "there is no such ban"),
        (&["plans", "set", "sellers", "7", "none"], 1, "it has `big`"),
        (&["plans", "remove", "sellers", "7"], 1, "no plan is assigned"),
        (&["overrides", "remove", "sellers", "7", "--left-out"], 2, "cannot be used with"),
        (&["overrides", "remove", "sellers"], 2, "Usage"),
        (&["config", "check", file.to_str().unwrap()], 3, ""),
        (&["config", "check", "absent.toml"], 1, "cannot read"),
        (&["bans", "add"], 2, "Usage"),
        (&["bans", "add", "sellers", "7"], 2, "--forever"),
        (&["bans", "add", "sellers", "7", "--for", "1h", "--forever"], 2, "cannot be used with"),
        (
            &["bans", "add", "sellers", "7", "--for", "soon"],
            1,
            "expected a duration such as `10min` or `24h`, or `forever`",
        ),
        (&["overrides", "set", "sellers", "7", "2x"], 1, "write it like \"x2\""),
        (&["overrides", "set", "sellers", "7", "9/h", "--for", "0s"], 1, "for: expected a duration"),
        (&["bans", "list", "--token-file", "absent.token"], 1, "cannot read the token file `absent.token`"),
        (&["keys"], 2, "Usage"),
    ] {
        let (status, text) = code(arguments);
        assert!(status == expected && text.contains(said), "{arguments:?}: {status} {text}");
    }
}

/// Requests of the seller of the page, one after another, until dropped.
struct Visits(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Visits {
    fn start(weir: &Weir) -> Self {
        let (ends, address) = (Arc::new(AtomicBool::new(false)), weir.address());
        let ended = Arc::clone(&ends);
        let visit = move || {
            while !ended.load(Ordering::Relaxed) {
                // It ends with Weir.
                let Ok(mut stream) = TcpStream::connect(address) else { return };
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Seller: 12345\r\nConnection: close\r\n\r\n");
                let _ = stream.read_to_end(&mut Vec::new());
                thread::sleep(Duration::from_millis(60));
            }
        };
        Self(ends, Some(thread::spawn(visit)))
    }
}

impl Drop for Visits {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// The blocks of shell commands in a part of a page.
fn blocks(part: &str) -> Vec<&str> {
    part.split("```sh\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// The words between two markers.
fn marked<'p>(text: &'p str, marker: &str) -> Vec<&'p str> {
    text.split(marker).skip(1).step_by(2).collect()
}

/// Every block of shell commands on the page succeeds, in the order of the page. Each task has a request, a command and a
/// page of the web page with the words that the task names.
#[test]
fn every_command_of_the_page_of_tasks_works() {
    let page = include_str!("../../docs/operations/tasks.md");
    let upstream = Upstream::start();
    let config = page.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let config = config.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:9901", "127.0.0.1:0");
    let config = config.replace("127.0.0.1:9000", &upstream.address().to_string());
    let weir = Weir::start_as(&format!("{config}\n[log]\nformat = \"json\"\n"));
    let tasks: Vec<_> = page.split("\n## ").skip(1).collect();
    assert!(tasks.len() >= 20, "{}", tasks.len());
    let _visits = Visits::start(&weir);
    for task in tasks {
        let (name, _) = task.split_once('\n').unwrap();
        let line = task.lines().find_map(|line| line.strip_prefix("Page: `"));
        let (path, line) = line.and_then(|line| line.split_once('`')).unwrap_or_else(|| panic!("{name}: no page"));
        let blocks = blocks(task);
        let commands = blocks.concat();
        assert!(commands.contains("curl "), "{name}: no request");
        assert!(["weir ", "tail "].iter().any(|command| commands.contains(command)), "{name}: no command");
        let look = || {
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let answer = Client::connect(weir.admin()).send(request).answer();
            assert_eq!(answer.status, 200, "{name}: {path}");
            answer.text()
        };
        let mut shown = look();
        for block in blocks {
            run_block(&weir, &block.replace("127.0.0.1:9000", &upstream.address().to_string()));
            shown += &look();
        }
        let (menu, words) = (marked(line, "**"), line.replace("**", ""));
        for word in menu.into_iter().chain(marked(&words, "*")) {
            assert!(shown.contains(word), "{name}: no {word:?} on {path}");
        }
    }
}

fn run_block(weir: &Weir, block: &str) {
    let programs = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().to_str().unwrap();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let admin = weir.admin().to_string();
    let script = block.replace("127.0.0.1:9901", &admin);
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &script]).current_dir(weir.folder());
    shell.env("PATH", &path).env("WEIR_ADMIN", &admin).env_remove("WEIR_ADMIN_TOKEN");
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{block}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!output.stdout.is_empty(), "{block}");
}
