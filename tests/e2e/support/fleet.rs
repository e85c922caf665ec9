//! Several Weirs with one configuration, and clients that ask all of them at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::programs::library;
use super::{Client, PATIENCE, SetOnDrop, Upstream, Weir, poll_for};

/// The secret of every fleet, in the environment variable `WEIR_FLEET_SECRET`.
const SECRET: &str = "5c6f1e0b7a9d4283bd01f6e2c4a85790";

/// Weirs that share limits.
pub struct Fleet {
    pub weirs: Vec<Weir>,
}

/// A limit `all` over everything, with these lines.
pub fn over_all(lines: &str) -> String {
    format!("[[limit]]\nname = \"all\"\nkey = []\n{lines}\n")
}

/// A limit `l0` over the path `/l0` with the first lines, a limit `l1` over `/l1` with the second ones, and so on.
pub fn over_paths(limits: &[impl AsRef<str>]) -> String {
    let limit = |(index, lines): (usize, &str)| {
        format!("[[limit]]\nname = \"l{index}\"\nkey = []\nmatch = {{ path = \"/l{index}\" }}\n{lines}\n")
    };
    limits.iter().map(AsRef::as_ref).enumerate().map(limit).collect()
}

/// One request: when it began, how long it took, and its result.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: Instant,
    pub took: Duration,
    /// The status, or what went wrong with the connection.
    pub status: Result<u16, String>,
}

/// Results of requests, by the instant of their begin.
#[derive(Clone, Debug, Default)]
pub struct Samples(pub Vec<Sample>);

/// Whether all nodes of its stores decide; `None` if there are none yet.
pub fn has_stores(weir: &Weir) -> Option<bool> {
    let text = weir.metrics();
    let mut nodes = text.lines().filter(|line| line.starts_with("weir_store_up{")).peekable();
    nodes.peek().is_some().then(|| nodes.all(|line| line.ends_with(" 1")))
}

impl Fleet {
    /// Starts so many Weirs with `upstream` and `rest` (any TOML, except the tables that `Weir::config` writes).
    pub fn start(replicas: usize, upstream: &Upstream, rest: &str) -> Self {
        Self::of(replicas, &Weir::config(upstream, "", rest))
    }

    /// Starts so many Weirs with this configuration.
    pub fn of(replicas: usize, config: &str) -> Self {
        Self { weirs: (0..replicas).map(|_| replica(config, &[])).collect() }
    }

    /// Starts a Weir with this configuration.
    pub fn start_one(config: &str) -> Weir {
        replica(config, &[])
    }

    /// Starts so many Weirs that look up names below `test` in the file `hosts`. A library goes beside it.
    pub fn with_hosts(replicas: usize, config: &str, hosts: &Path) -> Self {
        let (library, source) = (hosts.with_extension("so"), "tests/e2e/support/hosts.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", source, "-ldl", "-o"]).arg(&library).status();
        assert!(built.unwrap().success());
        let (library, hosts) = (library.display().to_string(), hosts.display().to_string());
        let variables = [("LD_PRELOAD", &*library), ("WEIR_TEST_HOSTS", &*hosts)];
        Self { weirs: (0..replicas).map(|_| replica(config, &variables)).collect() }
    }

    /// Starts a Weir for each of these seconds, by which its clock is ahead. `+0` is the clock of the machine.
    pub fn with_clocks(config: &str, ahead_s: &[&str]) -> Self {
        let library = library("faketime/libfaketime.so.1").display().to_string();
        let start = |ahead_s: &&str| {
            let variables = [("LD_PRELOAD", &*library), ("FAKETIME", ahead_s), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
            replica(config, &variables)
        };
        Self { weirs: ahead_s.iter().map(start).collect() }
    }

    /// Writes another configuration for all replicas, and waits until all have read it.
    pub fn reload(&self, config: &str) {
        for weir in &self.weirs {
            let before = weir.lines().iter().filter(|line| line.contains("\"reloaded\"")).count();
            crate::ops::replace(&weir.config_file(), config);
            weir.wait_for_lines("\"reloaded\"", before + 1);
        }
    }

    /// Starts one more replica with this configuration.
    pub fn add(&mut self, config: &str) {
        self.weirs.extend(Self::of(1, config).weirs);
    }

    /// Waits until each replica says that all nodes of its stores decide, or that one does not.
    #[track_caller]
    pub fn wait_for_stores(&self, are_up: bool) {
        for weir in &self.weirs {
            poll_for("stores", || (has_stores(weir) == Some(are_up)).then_some(()));
        }
    }

    /// Decisions that all replicas have made without their store, for all limits.
    pub fn fallbacks(&self) -> f64 {
        self.weirs.iter().map(Weir::fallbacks).sum()
    }

    /// The sum of a metric over all replicas.
    pub fn metric(&self, series: &str) -> f64 {
        self.weirs.iter().map(|weir| weir.metric(series)).sum()
    }

    /// Sends so many requests for these targets in turn, from so many clients at once that ask all replicas in turn.
    pub fn ask(&self, requests: usize, clients: usize, targets: &[impl AsRef<str> + Sync]) -> Samples {
        let (next, all) = (AtomicUsize::new(0), Mutex::default());
        thread::scope(|scope| {
            for first in 0..clients {
                let (next, all, mut asker, mut turn) = (&next, &all, Asker::default(), self.turns(first));
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= requests {
                            break;
                        }
                        asker.ask(turn.next().unwrap(), targets[index % targets.len()].as_ref());
                    }
                    asker.give(all);
                });
            }
        });
        sorted(all)
    }

    /// The addresses of all replicas in turn, without an end.
    fn turns(&self, first: usize) -> impl Iterator<Item = SocketAddr> + Send + use<> {
        let addresses: Vec<_> = self.weirs.iter().map(Weir::address).collect();
        (first..).map(move |turn| addresses[turn % addresses.len()])
    }

    /// Lets so many clients ask all replicas while `during` runs, each at most once per `pace`.
    pub fn during(
        &self,
        clients: usize,
        pace: Duration,
        targets: &[impl AsRef<str> + Sync],
        during: impl FnOnce(),
    ) -> Samples {
        let (next, is_over, all) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::default());
        thread::scope(|scope| {
            for first in 0..clients {
                let (next, is_over, all) = (&next, &is_over, &all);
                let (mut asker, mut turn) = (Asker::default(), self.turns(first));
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        asker.ask(turn.next().unwrap(), targets[index % targets.len()].as_ref());
                        thread::sleep(pace.saturating_sub(began.elapsed()));
                    }
                    asker.give(all);
                });
            }
            // Also if it panics, so that there is an end.
            let _over = SetOnDrop(&is_over);
            during();
        });
        sorted(all)
    }
}

fn replica(config: &str, variables: &[(&str, &str)]) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in_env(folder, &[variables, &[("WEIR_FLEET_SECRET", SECRET)]].concat())
}

pub(super) fn sorted(all: Mutex<Vec<Sample>>) -> Samples {
    let mut all = all.into_inner().unwrap();
    all.sort_by_key(|sample| sample.at);
    Samples(all)
}

/// A client with one connection to each address.
#[derive(Default)]
pub(super) struct Asker {
    connections: HashMap<SocketAddr, Client>,
    samples: Vec<Sample>,
}

impl Asker {
    pub(super) fn ask(&mut self, address: SocketAddr, target: &str) -> &Sample {
        let at = Instant::now();
        let status = self.try_ask(address, target);
        if status.is_err() {
            self.connections.remove(&address);
        }
        self.samples.push(Sample { at, took: at.elapsed(), status });
        self.samples.last().unwrap()
    }

    fn try_ask(&mut self, address: SocketAddr, target: &str) -> Result<u16, String> {
        let client = match self.connections.entry(address) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let stream = TcpStream::connect(address).map_err(|error| format!("connecting: {error}"))?;
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                place.insert(Client::over(stream))
            }
        };
        let request = format!("GET {target} HTTP/1.1\r\nhost: weir.test\r\n\r\n");
        client.stream().write_all(request.as_bytes()).map_err(|error| format!("sending: {error}"))?;
        let answer = client.try_answer().ok_or("no answer")?;
        if answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.connections.remove(&address);
        }
        Ok(answer.status)
    }

    /// Asks again over a new connection if the other side has closed the one that was open before, as clients do (RFC 9110,
    /// 9.2.2).
    pub(super) fn ask_again(&mut self, address: SocketAddr, target: &str) -> &Sample {
        let is_open = self.connections.contains_key(&address);
        let has_failed = self.ask(address, target).status.is_err();
        if is_open && has_failed {
            self.samples.pop();
            self.ask(address, target);
        }
        self.samples.last().unwrap()
    }

    pub(super) fn give(self, all: &Mutex<Vec<Sample>>) {
        all.lock().unwrap().extend(self.samples);
    }
}

impl Samples {
    /// Requests with this status.
    pub fn count(&self, status: u16) -> usize {
        self.0.iter().filter(|sample| sample.status == Ok(status)).count()
    }

    /// Requests that passed.
    pub fn passed(&self) -> usize {
        self.count(200)
    }

    /// Requests that began in this span.
    pub fn between(&self, from: Instant, to: Instant) -> Self {
        Self(self.0.iter().filter(|sample| (from..to).contains(&sample.at)).cloned().collect())
    }

    /// Asserts that every request was answered with one of these statuses.
    #[track_caller]
    pub fn assert_only(&self, statuses: &[u16]) {
        let is_wrong = |sample: &&Sample| !sample.status.as_ref().is_ok_and(|status| statuses.contains(status));
        let wrong: Vec<_> = self.0.iter().filter(is_wrong).collect();
        assert!(wrong.is_empty(), "{} of {} requests: {:?}", wrong.len(), self.0.len(), wrong.first());
    }

    /// The time within which so many of a hundred requests were answered.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut times: Vec<_> = self.0.iter().map(|sample| sample.took).collect();
        times.sort();
        let index = (times.len() * percent).div_ceil(100);
        times.get(index.saturating_sub(1)).copied().unwrap_or_default()
    }
}
