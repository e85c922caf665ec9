//! TLS of clients: real handshakes, and requests over them.

mod beside;
mod clients;
mod handshakes;
mod sessions;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::support::{Cert, TlsClient, Upstream, Weir, connect_tls, trusting};

pub(super) const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];
const HOST: &str = "weir.test";

/// A Weir with TLS, and its certificate.
struct Lab {
    upstream: Upstream,
    weir: Weir,
    cert: Cert,
}

impl Lab {
    fn start(rest: &str) -> Self {
        Self::with(Upstream::start(), "", "", rest, &[])
    }

    /// Adds options to `[server.tls]` and `[server]`, `rest`, and certificates beside the configuration.
    fn with(upstream: Upstream, tls: &str, server: &str, rest: &str, certs: &[(&str, &Cert)]) -> Self {
        let (folder, cert) = (tempfile::tempdir().unwrap(), Cert::of_hosts(&[HOST]));
        cert.write(folder.path(), "own");
        for (name, cert) in certs {
            cert.write(folder.path(), name);
        }
        std::fs::write(folder.path().join("weir.toml"), config(&upstream, &[OWN], tls, server, rest)).unwrap();
        Self { upstream, weir: Weir::start_in(folder), cert }
    }

    /// A client that speaks HTTP/1.
    fn client(&self) -> TlsClient {
        self.try_client(None).unwrap()
    }

    /// A client that speaks HTTP/1, with this certificate.
    fn try_client(&self, own: Option<&Cert>) -> std::io::Result<TlsClient> {
        connect_tls(self.weir.address(), &trusting(&[&self.cert], BOTH, &["http/1.1"], own), HOST)
    }
}

const OWN: &str = "own";

fn config(upstream: &Upstream, certs: &[&str], tls: &str, server: &str, rest: &str) -> String {
    let certs: Vec<_> = certs.iter().map(|name| format!("{{ cert = \"{name}.pem\", key = \"{name}.key\" }}")).collect();
    let comma = if tls.is_empty() { "" } else { ", " };
    let tls = format!("tls = {{ certificates = [{}]{comma}{tls} }}\n{server}", certs.join(", "));
    Weir::config(upstream, &tls, rest)
}
