//! A Weir to attack, and the checks after each attack.

use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Answer, Client, Upstream, Weir};

/// Failed rows after which the others are not tried. Each may wait for a timeout.
const FAILURES_MAX: usize = 5;

/// A Weir with a recording upstream.
pub struct Lab {
    pub upstream: Upstream,
    pub weir: Weir,
    probes: AtomicU32,
}

/// The expected result of an attack.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// This status as problem+json, then the end of the stream. The upstream gets nothing.
    Closed(u16),
    /// This status as problem+json, and the connection continues. The upstream gets nothing.
    Open(u16),
    /// The end of the stream, with at most an error before it. The upstream gets no whole request.
    Cut,
    /// 200. The upstream gets one request with this target, and the connection continues.
    Passes(&'static str),
    /// 200 as in `Pass`, and the connection ends after the response.
    PassesOnce(&'static str),
}

/// An attack: its name, the bytes of the client, and the expected result.
pub type Row<'a> = (&'a str, &'a [u8], Expect);

impl Lab {
    pub fn start(server: &str, rest: &str) -> Self {
        Self::behind(Upstream::start(), server, rest)
    }

    pub fn behind(upstream: Upstream, server: &str, rest: &str) -> Self {
        let weir = Weir::start_with(&upstream, server, rest);
        Self::of(upstream, weir)
    }

    pub fn of(upstream: Upstream, weir: Weir) -> Self {
        Self { upstream, weir, probes: AtomicU32::new(0) }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.weir.address())
    }

    /// Tries every row, then checks that Weir still works.
    pub fn check(&self, rows: &[Row<'_>]) {
        let failures: Vec<_> = rows
            .iter()
            .filter_map(|(name, bytes, expect)| {
                let failure = self.attack(bytes, *expect).err()?;
                Some(format!("{name}: {failure}\n    in {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(300)])))
            })
            .take(FAILURES_MAX)
            .collect();
        assert!(failures.is_empty(), "{} rows:\n{}", failures.len(), failures.join("\n"));
        self.is_well();
    }

    /// Tries attacks with one expected result.
    pub fn check_all(&self, name: &str, attacks: &[impl AsRef<[u8]>], expect: Expect) {
        let rows: Vec<Row<'_>> = attacks.iter().map(|bytes| (name, bytes.as_ref(), expect)).collect();
        self.check(&rows);
    }

    fn attack(&self, bytes: &[u8], expect: Expect) -> Result<(), String> {
        let before = self.upstream.received_count();
        let mut client = self.client();
        client.send(bytes);
        let mut targets = Vec::new();
        match expect {
            Expect::Closed(status) => {
                is_problem(&client.try_answer().ok_or("no answer")?, status)?;
                is_closed(&mut client)?;
            }
            Expect::Open(status) => {
                is_problem(&client.try_answer().ok_or("no answer")?, status)?;
                targets.push(self.probe(&mut client)?);
            }
            Expect::Cut => {
                if let Some(answer) = client.try_answer() {
                    if answer.status < 400 {
                        return Err(format!("answered {}", answer.status));
                    }
                    is_closed(&mut client)?;
                }
            }
            Expect::Passes(target) | Expect::PassesOnce(target) => {
                let answer = client.try_answer().ok_or("no answer")?;
                if answer.status != 200 {
                    return Err(format!("{} {}", answer.head, answer.text()));
                }
                targets.push(target.to_owned());
                if matches!(expect, Expect::Passes(_)) {
                    targets.push(self.probe(&mut client)?);
                } else {
                    is_closed(&mut client)?;
                }
            }
        }
        targets.push(self.probe(&mut self.client())?);
        let seen = self.upstream.targets().split_off(before);
        if seen == targets { Ok(()) } else { Err(format!("the upstream saw {seen:?}, not {targets:?}")) }
    }

    /// Sends a valid request, and returns its target.
    pub fn probe(&self, client: &mut Client) -> Result<String, String> {
        let target = format!("/probe/{}", self.probes.fetch_add(1, Ordering::Relaxed));
        client.send(format!("GET {target} HTTP/1.1\r\nhost: weir.test\r\nx-key: {target}\r\n\r\n"));
        let answer = client.try_answer().ok_or("no answer to a clean request")?;
        if answer.status == 200 {
            Ok(target)
        } else {
            Err(format!("a clean request: {} {}", answer.head, answer.text()))
        }
    }

    /// Asserts that Weir works and has not panicked.
    pub fn is_well(&self) {
        assert_eq!(self.weir.metric("weir_panics_total"), 0.0);
        assert!(self.weir.metric("weir_requests_total{verdict=\"forwarded\"}") > 0.0);
        let lines = self.weir.lines();
        assert!(!lines.iter().any(|line| line.to_lowercase().contains("panic")), "{lines:#?}");
    }
}

/// Checks that the response is a problem of Weir with this status.
pub fn is_problem(answer: &Answer, status: u16) -> Result<(), String> {
    if answer.status != status {
        return Err(format!("{} instead of {status}: {}", answer.status, answer.text()));
    }
    if answer.header("content-type") != Some("application/problem+json") {
        return Err(format!("no problem: {}", answer.head));
    }
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    if problem["status"] == status { Ok(()) } else { Err(format!("{problem} with {status}")) }
}

/// Checks that the stream ends without another byte.
pub fn is_closed(client: &mut Client) -> Result<(), String> {
    match client.read_some() {
        Ok(rest) if rest.is_empty() => Ok(()),
        Ok(rest) => Err(format!("then came {:?}", String::from_utf8_lossy(&rest))),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(format!("not closed: {error}")),
    }
}

impl Client {
    /// Returns the next bytes, at least one; empty at the end of the stream.
    pub fn read_some(&mut self) -> std::io::Result<Vec<u8>> {
        let mut some = vec![0; 4096];
        let len = self.reader().read(&mut some)?;
        some.truncate(len);
        Ok(some)
    }
}

/// The metric series of Weir, by name and labels.
pub fn series(weir: &Weir) -> Vec<String> {
    let text = Client::connect(weir.admin()).get("/metrics").text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}
