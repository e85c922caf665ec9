//! What `weir demo` prints comes true.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::support::Client;

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

#[test]
fn every_command_does_what_its_text_says() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["demo", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let guide: Vec<String> = lines.by_ref().take_while(|line| line != "Ctrl-C stops it.").collect();

    let mut commands = 0;
    for (index, line) in guide.iter().enumerate().filter(|(_, line)| line.starts_with("  curl ")) {
        let curl = Curl::parse(line);
        let promised = guide[index + 1].strip_prefix("  prints: ").unwrap();
        let mut client = Client::connect(curl.address);
        let ask = |target: &String| {
            let head = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{}\r\n", curl.address, curl.headers);
            client.send(head).answer()
        };
        let answers: Vec<_> = curl.targets.iter().map(ask).collect();
        if let Some(start) = &curl.grep {
            let series = promised.strip_prefix("lines such as ").unwrap();
            assert!(series.starts_with(start) && answers[0].text().lines().any(|line| line == series), "{series}");
        } else {
            let shown = &answers[answers.len() - curl.tail.unwrap_or(answers.len())..];
            let statuses: Vec<_> = shown.iter().map(|answer| answer.status.to_string()).collect();
            assert_eq!(statuses.join(", "), promised, "{line}");
        }
        match curl.targets[0].as_str() {
            "/hello" => assert_eq!(answers[0].header("x-ratelimit-remaining"), Some("99")),
            "/ip" => assert!(answers[0].header("retry-after").is_some() && answers[0].text().contains("per-ip")),
            _ => {}
        }
        commands += 1;
    }
    assert_eq!(commands, 8, "{guide:#?}");
    let status = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
