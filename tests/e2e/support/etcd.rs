//! A real etcd, which tests ask with etcdctl as operators do.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::programs::installed;
use super::servers::free_port;
use super::{Cert, poll};

/// The time after which etcd ends the token of a login that is not used. By default it is 5 minutes.
const TOKEN_TTL: Duration = Duration::from_secs(2);

/// An etcd of one member on ports of 127.0.0.1, with a data folder of its own; killed on drop.
pub struct Etcd {
    child: Child,
    port: u16,
    peer_port: u16,
    folder: tempfile::TempDir,
    has_tls: bool,
    /// `user:password` of etcdctl.
    login: Option<String>,
}

impl Etcd {
    /// Starts an etcd that accepts everybody.
    pub fn start() -> Self {
        Self::run(None)
    }

    /// Starts an etcd with TLS, with this certificate for `localhost`.
    pub fn with_tls(cert: &Cert) -> Self {
        Self::run(Some(cert))
    }

    /// Takes other ports if these are in use.
    fn run(cert: Option<&Cert>) -> Self {
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            if let Some(cert) = cert {
                cert.write(folder.path(), "etcd");
            }
            let (port, peer_port, has_tls) = (free_port(), free_port(), cert.is_some());
            let child = spawn(&folder, port, peer_port, has_tls);
            let mut etcd = Self { child, port, peer_port, folder, has_tls, login: None };
            if etcd.is_up() {
                return etcd;
            }
        }
        panic!("etcd does not start");
    }

    /// Waits until etcd answers; `false` if it has ended.
    fn is_up(&mut self) -> bool {
        poll(|| match self.child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => self.ctl(&["endpoint", "health"], Stdio::null()).status.success().then_some(true),
        })
    }

    /// The address of its port for clients.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The address of a key, as `--config` has it.
    pub fn url(&self, key: &str) -> String {
        let scheme = if self.has_tls { "etcds" } else { "etcd" };
        format!("{scheme}://localhost:{}{key}", self.port)
    }

    /// Runs etcdctl with an input.
    fn ctl(&self, words: &[&str], input: Stdio) -> Output {
        let mut command = Command::new(installed("etcdctl"));
        let scheme = if self.has_tls { "https" } else { "http" };
        command.env("ETCDCTL_API", "3").current_dir(self.folder.path()).stdin(input);
        command.arg(format!("--endpoints={scheme}://localhost:{}", self.port));
        if words[0] != "endpoint" {
            command.args(["--dial-timeout=1m", "--command-timeout=1m"]);
        }
        command.args(self.has_tls.then_some("--cacert=etcd.pem"));
        command.args(self.login.as_ref().map(|login| format!("--user={login}")));
        command.args(words).output().unwrap()
    }

    /// Runs etcdctl, and returns what it prints.
    #[track_caller]
    pub fn call(&self, words: &[&str]) -> String {
        let output = self.ctl(words, Stdio::null());
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Sets a key. The value is the input of etcdctl, so that it can be long, and begin with a dash.
    #[track_caller]
    pub fn put(&self, key: &str, value: impl AsRef<[u8]>) {
        let path = self.folder.path().join("value");
        std::fs::write(&path, value).unwrap();
        let output = self.ctl(&["put", key], File::open(&path).unwrap().into());
        assert!(output.status.success(), "{key}: {output:?}");
    }

    /// The value of a key; empty without one.
    #[track_caller]
    pub fn get(&self, key: &str) -> String {
        self.call(&["get", "--print-value-only", key])
    }

    /// The names of all keys that begin so.
    #[track_caller]
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let keys = self.call(&["get", "--prefix", "--keys-only", prefix]);
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The revision of the last change of a key.
    #[track_caller]
    pub fn revision(&self, key: &str) -> i64 {
        let found: serde_json::Value = serde_json::from_str(&self.call(&["get", "-w", "json", key])).unwrap();
        found["kvs"][0]["mod_revision"].as_i64().unwrap()
    }

    /// Requires a login with the password of `root`.
    pub fn require_login(&mut self, password: &str) {
        self.call(&["user", "add", &format!("root:{password}")]);
        self.call(&["user", "grant-role", "root", "root"]);
        self.call(&["auth", "enable"]);
        self.login = Some(format!("root:{password}"));
    }

    /// Waits until all tokens that are not used have ended. etcd looks for them once a second.
    #[track_caller]
    pub fn wait_until_tokens_end() {
        let began = Instant::now();
        poll(|| (began.elapsed() > TOKEN_TTL * 2).then_some(()));
    }

    /// Kills the server. Its data stay.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the killed server again, on its ports and with its data.
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder, self.port, self.peer_port, self.has_tls);
        assert!(self.is_up(), "{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &tempfile::TempDir, port: u16, peer_port: u16, has_tls: bool) -> Child {
    let scheme = if has_tls { "https" } else { "http" };
    let (clients, peers) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    let mut command = Command::new(installed("etcd"));
    command.args(["--name", "a", "--data-dir", "data", "--heartbeat-interval", "20", "--election-timeout", "200"]);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--auth-token-ttl", &TOKEN_TTL.as_secs().to_string(), "--bcrypt-cost", "4"]);
    command.arg("--initial-cluster").arg(format!("a={peers}"));
    if has_tls {
        command.args(["--cert-file", "etcd.pem", "--key-file", "etcd.key"]);
    }
    let log = File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}
