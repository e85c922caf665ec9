//! Redis servers that tests start, break, restart and end: single ones, a cluster, and a group with sentinels.

mod cluster;
mod sentinel;
mod session;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

pub use cluster::Cluster;
pub use sentinel::Sentinels;
pub use session::{Reply, Session};

use super::programs::installed;
use super::servers::free_port;
use super::{Cert, poll};

/// A server without persistence on a port of 127.0.0.1; killed on drop. `WEIR_REDIS_SERVER` is the path of its program, such
/// as another version or a Valkey.
///
/// Tests command it through a Unix socket, as a user whom passwords and TLS do not concern.
pub struct Redis {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
    mode: &'static [&'static str],
}

/// The user of the tests.
const OPERATOR: &str = "operator";

/// The configuration of a server, in its folder.
const FILE: &str = "redis.conf";

impl Redis {
    /// Starts a server that accepts everybody.
    pub fn start() -> Self {
        Self::with("")
    }

    /// Starts a server with these lines at the end of its configuration.
    pub fn with(lines: &str) -> Self {
        Self::run(lines, None, &[])
    }

    /// Starts a server that speaks TLS only, with this certificate.
    pub fn with_tls(cert: &Cert, lines: &str) -> Self {
        let files = "tls-cert-file redis.pem\ntls-key-file redis.key\ntls-ca-cert-file redis.pem\ntls-auth-clients no";
        Self::run(&format!("{files}\n{lines}"), Some(cert), &[])
    }

    /// Starts a server in a mode. Takes another port if this one is in use.
    fn run(lines: &str, cert: Option<&Cert>, mode: &'static [&'static str]) -> Self {
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let port = free_port();
            let listen = if let Some(cert) = cert {
                cert.write(folder.path(), "redis");
                format!("port 0\ntls-port {port}")
            } else {
                format!("port {port}")
            };
            let no_persistence = if mode.is_empty() { "save \"\"\nappendonly no" } else { "" };
            let text = format!(
                "{listen}\nbind 127.0.0.1\nprotected-mode no\nunixsocket socket\nlogfile log\n\
                 user {OPERATOR} on nopass ~* &* +@all\n{no_persistence}\n{lines}\n"
            );
            std::fs::write(folder.path().join(FILE), text).unwrap();
            let mut server = Self { child: spawn(&folder, mode), port, folder, mode };
            if server.is_up() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// Waits until the server answers; `false` if it has ended.
    fn is_up(&mut self) -> bool {
        poll(|| match self.child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => (self.try_call(&["PING"]).ok()?.text() == "PONG").then_some(true),
        })
    }

    /// The address of its port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The address as configurations write it, without TLS.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Its process id.
    #[allow(dead_code)] // for benchmarks
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log of the server.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Sends a command, and returns its reply. Panics if the reply is an error.
    #[track_caller]
    pub fn call(&self, words: &[&str]) -> Reply {
        match self.try_call(words) {
            Ok(Reply::Error(error)) => panic!("{words:?}: {error}"),
            Ok(reply) => reply,
            Err(error) => panic!("{words:?}: {error}; {}", self.log()),
        }
    }

    /// Sends a command, and returns its reply.
    pub fn try_call(&self, words: &[&str]) -> std::io::Result<Reply> {
        let mut session = Session::connect(&self.socket())?;
        // Sentinels have no users from their file.
        if self.mode.is_empty() {
            session.call(&["AUTH", OPERATOR, "x"])?;
        }
        session.call(words)
    }

    /// All keys.
    pub fn keys(&self) -> Vec<String> {
        let reply = self.call(&["KEYS", "*"]);
        reply.texts().into_iter().map(str::to_owned).collect()
    }

    /// The value of a field of `INFO SECTION`. `None` also if the server ends the connection, as while it is promoted.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let reply = self.try_call(&["INFO", section]).ok()?;
        reply.text().lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
    }

    /// Calls of a command so far, such as `evalsha`.
    pub fn calls(&self, command: &str) -> u64 {
        let Some(fields) = self.info("commandstats", &format!("cmdstat_{command}")) else { return 0 };
        fields.split(',').find_map(|field| field.strip_prefix("calls=")).unwrap().parse().unwrap()
    }

    /// Waits until each of so many replicas has looked twice from now on, so that the last look of each is after this call.
    pub fn until_looked_at(&self, replicas: usize) {
        let looks = || {
            let keys = self.keys().into_iter().filter(|name| name.contains(":look:"));
            keys.map(|key| (self.call(&["GET", &key]).number(), key)).collect::<Vec<_>>()
        };
        let before = looks();
        poll(|| {
            let now = looks();
            let has_looked =
                |(number, key): &(i64, String)| !before.iter().any(|(known, of)| of == key && known + 2 > *number);
            (now.iter().filter(|look| has_looked(look)).count() >= replicas).then_some(())
        });
    }

    /// Ends the connections of all clients but the tests.
    pub fn disconnect_all(&self) {
        self.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    /// Kills the server: it writes nothing. Its data are gone but for those that it was told to save.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    /// Kills the server when `replica` has what it sent: few changes are lost, also on a busy machine.
    fn kill_after_copying(&mut self, replica: &Self) {
        let offset = |server: &Self, field: &str| server.info("replication", field)?.parse::<u64>().ok();
        let is_promoted = || replica.info("replication", "role").is_some_and(|role| role == "master");
        // A new replica gets nothing before its first report to the master, which may take a second.
        let sent = poll(|| offset(self, "master_repl_offset"));
        let has_all = || is_promoted() || offset(replica, "slave_repl_offset").is_some_and(|offset| offset >= sent);
        poll(|| has_all().then_some(()));
        self.freeze();
        // A server reads what has arrived between two commands.
        let mut copied = None;
        poll(|| {
            let now = offset(replica, "slave_repl_offset");
            (is_promoted() || now.is_some() && copied == now).then_some(()).or_else(|| {
                copied = now;
                None
            })
        });
        self.kill();
    }

    /// Starts the killed server again on its port, empty or with what it has saved.
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder, self.mode);
        assert!(self.is_up(), "{}", self.log());
    }

    /// Stops the process: connections stay open, and nothing is answered.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets the stopped process go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &tempfile::TempDir, mode: &[&str]) -> Child {
    let program = std::env::var_os("WEIR_REDIS_SERVER").map_or_else(|| installed("redis-server"), PathBuf::from);
    let mut command = Command::new(program);
    command.arg(FILE).args(mode).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
