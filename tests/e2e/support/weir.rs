//! The binary under test, on ephemeral ports.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Answer, Client, PATIENCE, Upstream};

/// How long a change may take after its line of the log before it is looked for again.
const QUIET: Duration = Duration::from_millis(200);

/// The pause after a look, as a multiple of the time that it took.
const PAUSE: u32 = 9;

/// A limit that no test reaches, in place of the default one.
pub const NEVER: &str = "[[limit]]\nname = \"unused\"\nkey = []\nrate = \"1/h\"\nmatch = { path = [\"/unused\"] }\n";

/// A running Weir; killed on drop.
pub struct Weir {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    more_lines: Receiver<()>,
    #[allow(dead_code)] // removed on drop
    folder: tempfile::TempDir,
}

impl Weir {
    /// Starts a Weir with `upstream` and `limits` (any TOML, except the tables that are written here).
    pub fn start(upstream: &Upstream, limits: &str) -> Self {
        Self::start_with(upstream, "", limits)
    }

    /// Starts a Weir with more options in `[server]`.
    pub fn start_with(upstream: &Upstream, server: &str, rest: &str) -> Self {
        Self::start_as(&Self::config(upstream, server, rest))
    }

    /// Starts a Weir without limits, and an upstream that always responds with `answer`.
    pub fn in_front_of(answer: &str) -> (Upstream, Self) {
        let upstream = Upstream::saying(answer);
        let weir = Self::start(&upstream, NEVER);
        (upstream, weir)
    }

    /// The text of a configuration with ephemeral ports and a JSON log of every event.
    pub fn config(upstream: &Upstream, server: &str, rest: &str) -> String {
        let url = format!("http://{}", upstream.address());
        let log = if rest.contains("[log]") { "" } else { "[log]\nformat = \"json\"\nlevel = \"trace\"\n" };
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 2\n{server}\n[upstream]\nurl = \"{url}\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n{log}{rest}\n"
        )
    }

    /// Starts a Weir with this configuration.
    pub fn start_as(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("weir.toml"), config).unwrap();
        Self::start_in(folder)
    }

    /// The text of a configuration that allows upgrades to these protocols.
    pub fn upgrading(upstream: &Upstream, protocols: &[&str], server: &str, rest: &str) -> String {
        let config = Self::config(upstream, server, rest);
        config.replace("[upstream]\n", &format!("[upstream]\nupgrade = {protocols:?}\n"))
    }

    /// Starts a Weir with the upstreams in `rest`, ephemeral ports and a JSON log of every event.
    pub fn with(rest: &str) -> Self {
        Self::start_as(&Self::text(rest))
    }

    /// The text of a configuration for [`Weir::with`].
    pub fn text(rest: &str) -> String {
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [log]\nformat = \"json\"\nlevel = \"trace\"\n{rest}\n"
        )
    }

    /// Starts a Weir with the file `weir.toml` in `folder`.
    pub fn start_in(folder: tempfile::TempDir) -> Self {
        Self::start_in_env(folder, &[])
    }

    /// Starts a Weir with the file `weir.toml` in `folder` and more environment variables.
    pub fn start_in_env(folder: tempfile::TempDir, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("run").arg("--config").arg(folder.path().join("weir.toml"));
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        Self::of_command(command, folder)
    }

    /// Starts a Weir by `command`.
    pub fn of_command(mut command: Command, folder: tempfile::TempDir) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (tell, more_lines) = channel();
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
                let _ = tell.send(());
            }
        });
        let unset = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut weir = Self { child, address: unset, admin: unset, lines, more_lines, folder };
        weir.admin = weir.address_in_line("serving operators");
        // A Weir without a service only answers checks.
        let config = std::fs::read_to_string(weir.config_file()).unwrap_or_default();
        if config.contains("upstream") || !config.contains("[check]") {
            weir.address = weir.address_in_line("\"listening\"");
        }
        weir
    }

    /// The address for checks of other proxies.
    pub fn checks(&self) -> SocketAddr {
        self.address_in_line("answering checks")
    }

    fn address_in_line(&self, words: &str) -> SocketAddr {
        let line = self.wait_for_line(words);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let place = line["address"].as_str().unwrap();
        // A Unix socket has no address.
        if place.starts_with("unix:") { SocketAddr::from(([0, 0, 0, 0], 0)) } else { place.parse().unwrap() }
    }

    /// The address for requests.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Sends a request with a JSON body, or none if it is null, to the admin listener.
    pub fn ask_admin(&self, method: &str, target: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        Client::connect(self.admin).send(head).send(body).answer()
    }

    /// The address of the limiter service.
    pub fn grpc(&self) -> SocketAddr {
        self.address_in_line("serving checks over gRPC")
    }

    /// The folder of its configuration.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of its configuration.
    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join("weir.toml")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory in bytes, without pages of files: the kernel loads pages of the binary at any time.
    pub fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// All log lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits for the first line that contains `words`, and returns it.
    pub fn wait_for_line(&self, words: &str) -> String {
        self.wait_for_lines(words, 1).swap_remove(0)
    }

    /// Waits until at least `count` lines contain `words`, and returns all such lines.
    #[track_caller]
    pub fn wait_for_lines(&self, words: &str, count: usize) -> Vec<String> {
        let found = || {
            let lines = self.lines.lock().unwrap();
            lines.iter().filter(|line| line.contains(words)).cloned().collect::<Vec<_>>()
        };
        self.wait_for(&format!("{count} lines with {words:?}"), || Some(found()).filter(|lines| lines.len() >= count))
    }

    /// Calls `look` now, after lines of the log and after each [`QUIET`] without one, until it returns a value. Between two
    /// looks it pauses for [`PAUSE`] times the duration of one: a request to the admin listener writes lines itself.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            // One look is enough for all lines so far.
            let has_ended = loop {
                match self.more_lines.try_recv() {
                    Ok(()) => {}
                    Err(error) => break error == TryRecvError::Disconnected,
                }
            };
            let began = Instant::now();
            if let Some(seen) = look() {
                return seen;
            }
            let took = began.elapsed();
            let may_change = !has_ended && Instant::now() < until;
            assert!(may_change, "never: {what}, in: {:#?}", self.lines());
            std::thread::park_timeout((PAUSE * took).min(QUIET));
            let _ = self.more_lines.recv_timeout(QUIET);
        }
    }

    /// Waits until `is_so`, which is checked now and after each line of the log.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        self.wait_for(what, || is_so().then_some(()));
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Waits until the process has ended, and returns its exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// All metrics.
    pub fn metrics(&self) -> String {
        Client::connect(self.admin).get("/metrics").text()
    }

    /// Decisions that it has made without the store, for all limits.
    pub fn fallbacks(&self) -> f64 {
        let text = self.metrics();
        let series = text.lines().filter(|line| line.starts_with("weir_fallback_decisions_total{"));
        series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// The value of a metric, by its series in the exposition; 0 without such a series.
    pub fn metric(&self, series: &str) -> f64 {
        assert!(series.split(['{', ',']).skip(1).is_sorted(), "the labels of {series} are in another order there");
        let text = self.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    /// Waits until a metric `is_enough`, and returns it. A line of the log must follow the change: at level `trace`,
    /// changes of gauges have lines.
    #[track_caller]
    pub fn wait_for_metric(&self, series: &str, is_enough: impl Fn(f64) -> bool) -> f64 {
        self.wait_for(series, || Some(self.metric(series)).filter(|value| is_enough(*value)))
    }
}

/// Time to wait for checks that need not succeed.
const AT_HAND: Duration = Duration::from_secs(1);

impl Weir {
    /// The panics in the metrics, if the process still answers.
    fn panics(&mut self) -> Option<String> {
        if self.admin.port() == 0 || !matches!(self.child.try_wait(), Ok(None)) {
            return None;
        }
        let stream = TcpStream::connect_timeout(&self.admin, AT_HAND).ok()?;
        stream.set_read_timeout(Some(AT_HAND)).ok()?;
        let mut client = Client::over(stream);
        client.stream().write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").ok()?;
        let text = client.try_answer()?.text();
        let counted = text.lines().find(|line| line.starts_with("weir_panics_total "))?;
        (counted != "weir_panics_total 0").then(|| counted.to_owned())
    }

    /// The first log line about a panic, after all lines are read.
    fn line_of_panic(&self) -> Option<String> {
        while self.more_lines.recv_timeout(AT_HAND).is_ok() {}
        let tells = |line: &String| line.contains("\"message\":\"panic\"") || line.contains("panicked at");
        self.lines().into_iter().find(tells)
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let panics = self.panics();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            return eprintln!("{}", self.lines().join("\n"));
        }
        // No test expects a panic.
        assert_eq!(panics.or_else(|| self.line_of_panic()), None);
    }
}
