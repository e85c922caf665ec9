//! Other proxies of the distribution, in front of a service.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::programs::installed;
use super::servers::free_port;
use super::{Client, poll};

/// Another proxy on a port of 127.0.0.1; killed on drop.
pub struct Front {
    child: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

/// The lines of a configuration of nginx around its `server` blocks.
const NGINX: &str = "daemon off; master_process off; pid pid;\nevents {}\nhttp {\naccess_log seen;\n\
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; \
    scgi_temp_path scgi;\n";

/// The static configuration of Traefik.
const TRAEFIK: &str = "global: { checkNewVersion: false, sendAnonymousUsage: false }\nlog: { level: ERROR }\n\
    ping: { manualRouting: true }\nentryPoints: { front: { address: '127.0.0.1:$PORT' } }\n\
    providers: { file: { directory: dynamic, watch: false } }\n";

impl Front {
    /// An nginx with these blocks within `http`; `$PORT` in them is its port.
    pub fn nginx(blocks: &str) -> Self {
        let arguments = &["-p", ".", "-c", "nginx.conf", "-e", "errors"];
        Self::start("nginx", arguments, &[("nginx.conf", &format!("{NGINX}{blocks}\n}}\n"))])
    }

    /// A Caddy with this Caddyfile; `$PORT` in it is its port.
    pub fn caddy(file: &str) -> Self {
        let options = "{\nadmin off\nauto_https off\n}\n";
        let arguments = &["run", "--config", "Caddyfile", "--adapter", "caddyfile"];
        Self::start("caddy", arguments, &[("Caddyfile", &format!("{options}{file}\n"))])
    }

    /// A haproxy with this configuration and this file `weir.lua`; `$PORT` in them is its port.
    pub fn haproxy(text: &str, lua: &str) -> Self {
        let files = [("haproxy.cfg", &*format!("{text}\n")), ("weir.lua", lua)];
        Self::start("haproxy", &["-db", "-f", "haproxy.cfg"], &files)
    }

    /// An Envoy with this bootstrap configuration; `$PORT` in it is its port.
    pub fn envoy(text: &str) -> Self {
        let arguments = &["-c", "envoy.yaml", "--disable-hot-restart", "--concurrency", "1", "--log-level", "error"];
        Self::start("envoy", arguments, &[("envoy.yaml", text)])
    }

    /// A Traefik with this dynamic configuration.
    pub fn traefik(text: &str) -> Self {
        let front = Self::start(
            "traefik",
            &["--configFile=traefik.yml"],
            &[
                ("traefik.yml", TRAEFIK),
                ("dynamic/limits.yml", text),
                (
                    "dynamic/ready.yml",
                    "http: { routers: { ready: { rule: Path(`/is-ready`), service: ping@internal } } }",
                ),
            ],
        );
        // It accepts before it knows its routes.
        poll(|| (Client::connect(front.address).get("/is-ready").status == 200).then_some(()));
        front
    }

    /// Takes another port if this one is in use.
    fn start(program: &str, arguments: &[&str], files: &[(&str, &str)]) -> Self {
        for _ in 0..10 {
            let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
            for (name, text) in files {
                std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
                std::fs::write(folder.path().join(name), text.replace("$PORT", &port.to_string())).unwrap();
            }
            let said = std::fs::File::create(folder.path().join("said")).unwrap();
            let mut command = Command::new(installed(program));
            command.args(arguments).current_dir(folder.path()).env("HOME", folder.path()).stdin(Stdio::null());
            command.stdout(said.try_clone().unwrap()).stderr(said);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let mut front = Self { child: command.spawn().unwrap(), address, folder };
            if front.is_up() {
                return front;
            }
        }
        panic!("{program} does not start");
    }

    /// Waits until the proxy accepts; `false` if it has ended.
    fn is_up(&mut self) -> bool {
        let is_up = poll(|| match self.child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => TcpStream::connect(self.address).is_ok().then_some(true),
        });
        if !is_up {
            eprintln!("{}", std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default());
        }
        is_up
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
