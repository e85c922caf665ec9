//! Several Weirs with one configuration, and clients that ask all of them at once.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::servers::library;
use super::{Client, PATIENCE, Upstream, Weir};

/// The secret of every fleet, in the environment variable `WEIR_FLEET_SECRET`.
const SECRET: &str = "5c6f1e0b7a9d4283bd01f6e2c4a85790";

/// Weirs that share limits.
pub struct Fleet {
    pub weirs: Vec<Weir>,
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

#[allow(dead_code)] // some suites do not use everything
impl Fleet {
    /// Starts so many Weirs with `upstream` and `rest` (any TOML, except the tables that `Weir::config` writes).
    pub fn start(replicas: usize, upstream: &Upstream, rest: &str) -> Self {
        Self::of(replicas, &Weir::config(upstream, "", rest))
    }

    /// Starts so many Weirs with this configuration.
    pub fn of(replicas: usize, config: &str) -> Self {
        Self { weirs: (0..replicas).map(|_| replica(config, &[])).collect() }
    }

    /// Starts so many Weirs that look up names in the file `hosts` first.
    pub fn with_hosts(replicas: usize, config: &str, hosts: &Path) -> Self {
        let (library, hosts) = (library("libnss_wrapper.so").display().to_string(), hosts.display().to_string());
        let variables = [("LD_PRELOAD", &*library), ("NSS_WRAPPER_HOSTS", &*hosts)];
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

    /// The sum of a metric over all replicas.
    pub fn metric(&self, series: &str) -> f64 {
        self.weirs.iter().map(|weir| weir.metric(series)).sum()
    }

    /// Sends so many requests for these targets in turn, from so many clients at once that ask all replicas in turn.
    pub fn ask(&self, requests: usize, clients: usize, targets: &[impl AsRef<str> + Sync]) -> Samples {
        let (next, all) = (AtomicUsize::new(0), Mutex::default());
        thread::scope(|scope| {
            for first in 0..clients {
                let (next, all, mut asker) = (&next, &all, Asker::new(&self.weirs, first));
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= requests {
                            break;
                        }
                        asker.ask(targets[index % targets.len()].as_ref());
                    }
                    asker.give(all);
                });
            }
        });
        sorted(all)
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
                let (next, is_over, all, mut asker) = (&next, &is_over, &all, Asker::new(&self.weirs, first));
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        asker.ask(targets[index % targets.len()].as_ref());
                        thread::sleep(pace.saturating_sub(began.elapsed()));
                    }
                    asker.give(all);
                });
            }
            // Also if it panics, so that there is an end.
            let _over = Over(&is_over);
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

struct Over<'l>(&'l AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn sorted(all: Mutex<Vec<Sample>>) -> Samples {
    let mut all = all.into_inner().unwrap();
    all.sort_by_key(|sample| sample.at);
    Samples(all)
}

/// A client with one connection to each replica.
struct Asker {
    connections: Vec<(SocketAddr, Option<Client>)>,
    turn: usize,
    samples: Vec<Sample>,
}

impl Asker {
    fn new(weirs: &[Weir], first: usize) -> Self {
        let connections = weirs.iter().map(|weir| (weir.address(), None)).collect();
        Self { connections, turn: first, samples: Vec::new() }
    }

    fn ask(&mut self, target: &str) {
        let at = Instant::now();
        let status = self.try_ask(target);
        let index = self.turn % self.connections.len();
        if status.is_err() {
            self.connections[index].1 = None;
        }
        self.samples.push(Sample { at, took: at.elapsed(), status });
        self.turn += 1;
    }

    fn try_ask(&mut self, target: &str) -> Result<u16, String> {
        let index = self.turn % self.connections.len();
        let (address, connection) = &mut self.connections[index];
        if connection.is_none() {
            let stream = TcpStream::connect(*address).map_err(|error| format!("connecting: {error}"))?;
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            *connection = Some(Client::over(stream));
        }
        let client = connection.as_mut().unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nhost: weir.test\r\n\r\n");
        client.stream().write_all(request.as_bytes()).map_err(|error| format!("sending: {error}"))?;
        Ok(client.try_answer().ok_or("no answer")?.status)
    }

    fn give(self, all: &Mutex<Vec<Sample>>) {
        all.lock().unwrap().extend(self.samples);
    }
}

#[allow(dead_code)] // some suites do not use everything
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
