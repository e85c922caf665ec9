//! Servers of the distribution behind a Unix socket. Each writes a line per request that it reads.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::poll;
use super::programs::installed;

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Haproxy,
    Node,
    Gunicorn,
}

/// A server that reads the body of each request, and responds with 200.
pub struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Nginx, Self::Haproxy, Self::Node, Self::Gunicorn];

    fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Node => "node",
            Self::Gunicorn => "gunicorn",
        }
    }

    /// The name and the text of its configuration or program.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Nginx => ("nginx.conf", NGINX),
            Self::Haproxy => ("haproxy.cfg", HAPROXY),
            Self::Node => ("server.js", NODE),
            Self::Gunicorn => ("server.py", PYTHON),
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["-p", ".", "-c", "nginx.conf", "-e", "errors"],
            Self::Haproxy => &["-db", "-f", "haproxy.cfg"],
            Self::Node => &["server.js"],
            // Threads, because the default worker closes after each response.
            Self::Gunicorn => &["-k", "gthread", "--threads", "8", "-b", "unix:socket", "server:answer"],
        }
    }
}

const NGINX: &str = r#"
daemon off; master_process off; pid pid;
events {}
http {
    log_format seen "$request_method $request_uri";
    access_log seen seen;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server { listen unix:socket; location / { return 200 "hello"; } }
}
"#;

const HAPROXY: &str = r#"
global
    log stdout format raw local0
defaults
    mode http
    timeout client 10s
    timeout http-request 10s
    option dontlognull
frontend all
    bind unix@socket
    log global
    log-format "%HM %HU"
    http-request wait-for-body time 2s
    http-request return status 200 content-type text/plain string hello
"#;

const NODE: &str = r#"
const { appendFileSync } = require("node:fs");
require("node:http").createServer((request, response) => {
    appendFileSync("seen", `${request.method} ${request.url}\n`);
    request.resume().on("end", () => response.end("hello"));
}).on("clientError", (error, socket) => {
    // A request that the server refuses counts, unless the connection just closed.
    if (error.rawPacket) appendFileSync("seen", `${error.rawPacket.toString("latin1").split(" HTTP")[0]}\n`);
    socket.destroy();
}).listen("socket");
"#;

const PYTHON: &str = r#"
def answer(environ, start_response):
    with open("seen", "a") as seen:
        seen.write(environ["REQUEST_METHOD"] + " " + environ["RAW_URI"] + "\n")
    while environ["wsgi.input"].read(65536):
        pass
    start_response("200 OK", [("content-length", "5")])
    return [b"hello"]
"#;

impl Server {
    pub fn start(kind: Kind) -> Self {
        Self::running(kind, kind.file().1)
    }

    /// Runs this configuration or program, which listens on `socket`.
    pub fn running(kind: Kind, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (name, _) = kind.file();
        std::fs::write(folder.path().join(name), text).unwrap();
        let mut command = Command::new(installed(kind.program()));
        command.args(kind.arguments()).current_dir(folder.path()).stdin(Stdio::null());
        let said = |name: &str| File::create(folder.path().join(name)).unwrap();
        // HAProxy writes its log here; the others write their own.
        command.stdout(said(if kind == Kind::Haproxy { "seen" } else { "said" })).stderr(said("complaints"));
        let server = Self { child: command.spawn().unwrap(), folder };
        poll(|| UnixStream::connect(server.socket()).ok());
        server
    }

    /// The path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Method and target of each request so far, answered or not.
    pub fn seen(&self) -> Vec<String> {
        let text = std::fs::read(self.folder.path().join("seen")).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This signal lets gunicorn end its worker.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// A free port that the kernel gives to no connection and to no listener without a port, so that a server can be
/// started again on it. The port 10,000 above it is free too: a Redis cluster needs both.
pub fn free_port() -> u16 {
    const FIRST: u16 = 11_000;
    const COUNT: u32 = 11_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Tests run in several processes; each begins elsewhere, and processes of near ids far from each other (the golden
    // ratio of all ports), because a port is free for another process while the server on it starts again.
    let start = std::process::id() % COUNT * 6_798;
    poll(|| {
        let port = FIRST + ((start + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT) as u16;
        let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        (is_free(port) && is_free(port + 10_000)).then_some(port)
    })
}
