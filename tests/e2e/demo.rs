//! What `weir demo` prints comes true.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::ops::until;
use crate::support::{Answer, Client};

/// A running demo; killed on drop.
struct Demo {
    child: Child,
    guide: Vec<String>,
    /// Its output stays open.
    _lines: BufReader<ChildStdout>,
}

impl Demo {
    fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("demo").args(options).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let guide =
            lines.by_ref().lines().map_while(Result::ok).take_while(|line| line != "Ctrl-C stops it.").collect();
        Self { child, guide, _lines: lines }
    }

    /// The commands of the guide, each with the line below it.
    fn commands(&self) -> impl Iterator<Item = (Curl, &str)> {
        let pairs = self.guide.windows(2).filter(|pair| pair[0].starts_with("  curl "));
        pairs.map(|pair| (Curl::parse(&pair[0]), &*pair[1]))
    }

    /// Presses Ctrl-C.
    fn stop(mut self) {
        let status = Command::new("kill").arg("-INT").arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One command of the guide, taken apart.
#[derive(Debug)]
struct Curl {
    address: SocketAddr,
    targets: Vec<String>,
    headers: String,
    grep: Option<String>,
    tail: Option<usize>,
}

impl Curl {
    /// Reads a `curl` line: `http://` words are URLs with an optional `[1-N]`, `-H` gives a header.
    fn parse(line: &str) -> Self {
        let (curl, pipe) = line.split_once(" | ").unwrap_or((line, ""));
        let words = words(curl);
        let url = words.iter().find(|word| word.starts_with("http://")).unwrap();
        let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let targets = match path.split_once("[1-") {
            None => vec![format!("/{path}")],
            Some((path, count)) => {
                let count: usize = count.trim_end_matches(']').parse().unwrap();
                (1..=count).map(|n| format!("/{path}{n}")).collect()
            }
        };
        let headers = words.windows(2).filter(|pair| pair[0] == "-H").flat_map(|pair| [&*pair[1], "\r\n"]).collect();
        Self {
            address: authority.parse().unwrap(),
            targets,
            headers,
            grep: pipe.strip_prefix("grep ^").map(str::to_owned),
            tail: pipe.strip_prefix("tail -n ").map(|count| count.parse().unwrap()),
        }
    }

    /// The answers to its requests, which share a connection. All are sent at once, so that few units come back meanwhile.
    fn run(&self) -> Vec<Answer> {
        let mut client = Client::connect(self.address);
        let head = |target: &String| format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{}\r\n", self.address, self.headers);
        client.send(self.targets.iter().map(head).collect::<String>());
        self.targets.iter().map(|_| client.answer()).collect()
    }

    /// The answer to its only request, as JSON.
    fn json(&self) -> Value {
        serde_json::from_str(&self.run()[0].text()).unwrap()
    }
}

fn statuses(answers: &[Answer]) -> String {
    answers.iter().map(|answer| answer.status.to_string()).collect::<Vec<_>>().join(", ")
}

/// Splits as a shell does, as far as single quotes go.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let split = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    split.collect()
}

/// Load of the demo comes from other addresses and sellers, so the text is true with it.
#[test]
fn every_command_does_what_its_text_says() {
    for options in [&["--listen", "127.0.0.1:0"][..], &["--listen", "127.0.0.1:0", "--load"]] {
        check_commands(Demo::start(options));
    }
}

fn check_commands(demo: Demo) {
    let mut commands = 0;
    for (curl, below) in demo.commands() {
        let promised = below.strip_prefix("  prints: ").unwrap();
        let answers = curl.run();
        if let Some(start) = &curl.grep {
            let series = promised.strip_prefix("lines such as ").unwrap();
            assert!(series.starts_with(start), "{series}");
            // The value of a line depends on the time between the commands.
            let (name, _) = series.rsplit_once(' ').unwrap();
            let text = answers[0].text();
            let found = text.lines().filter_map(|line| line.rsplit_once(' ')).find(|(found, _)| *found == name);
            assert!(found.is_some_and(|(_, value)| value != "0"), "{series}");
        } else {
            let shown = &answers[answers.len() - curl.tail.unwrap_or(answers.len())..];
            assert_eq!(statuses(shown), promised, "{curl:?}");
        }
        match curl.targets[0].as_str() {
            "/hello" => assert_eq!(answers[0].header("x-ratelimit-remaining"), Some("99")),
            "/ip" => assert!(answers[0].header("retry-after").is_some() && answers[0].text().contains("per-ip")),
            _ => {}
        }
        commands += 1;
    }
    assert_eq!(commands, 8, "{:#?}", demo.guide);
    // What the guide does not name works, too.
    let (metrics, _) = demo.commands().find(|(curl, _)| curl.grep.is_some()).unwrap();
    let edit = r#"{"limit":"per-ip","key":{"ip":"127.0.0.1"},"to":"100/min"}"#;
    let length = edit.len();
    let head = "POST /v1/overrides HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let answer =
        Client::connect(metrics.address).send(format!("{head}content-length: {length}\r\n\r\n{edit}")).answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (first, _) = demo.commands().next().unwrap();
    assert_eq!(Client::connect(first.address).get("/ip").status, 200);
    demo.stop();
}

/// The guide names the page and the commands of operators. With load they have something to show.
#[test]
fn the_demo_with_load_is_alive() {
    let demo = Demo::start(&["--listen", "127.0.0.1:0", "--load"]);
    let page = demo.guide.windows(2).find(|pair| pair[0].contains("web page")).map(|pair| pair[1].trim()).unwrap();
    let (_, page) = page.split_once("http://").unwrap();
    let look = || {
        let mut client = Client::connect(page.trim_end_matches('/').parse().unwrap());
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").answer().text()
    };
    until("the page has refused keys and a sample", || {
        let page = look();
        page.contains("href=\"/key?limit=per-seller")
            && page.contains("href=\"/key?limit=per-ip")
            && page.contains("of the last")
    });
    let commands: Vec<_> = demo.guide.iter().filter_map(|line| line.strip_prefix("  weir ")).collect();
    assert_eq!(commands.iter().map(|line| words(line)[0].clone()).collect::<Vec<_>>(), ["top", "tap", "explain"]);
    for (command, more, said) in [
        (commands[0], &["--once"][..], "per-seller"),
        (commands[1], &["--count", "3"], "/s"),
        (commands[2], &[], "per-ip"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words(command)).args(more).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(said), "{command}: {text}");
    }
    demo.stop();
}

#[test]
fn three_replicas_admit_what_their_guide_says() {
    let demo = Demo::start(&["--fleet"]);
    let commands: Vec<_> = demo.commands().collect();
    let [(first, _), (second, _), (third, _), (fleet, _), (key, _)] = &commands[..] else {
        panic!("{:#?}", demo.guide);
    };
    until("all replicas are connected", || {
        let view = fleet.json();
        let members = view["members"].as_array().unwrap();
        let is_met = view["replicas"] == 3 && view["isolated"] == false;
        is_met && members.iter().filter(|member| member["connected"] == true).count() == 2
    });
    let promised = |index: usize| commands[index].1.strip_prefix("  prints: ").unwrap();
    for (index, curl) in [first, second].into_iter().enumerate() {
        assert_eq!(statuses(&curl.run()), promised(index));
    }
    until("the third replica has heard of all charges", || key.json()["remaining"] == 0);
    assert_eq!(statuses(&third.run()), promised(2));
    demo.stop();
}
