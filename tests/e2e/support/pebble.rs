//! A real Pebble: an authority with ACME, for tests.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};

use super::programs::installed;
use super::servers::free_port;
use super::{Cert, Dns, connect_tls, poll, trusting, trusting_roots};

/// A Pebble with a name server of its own; killed on drop. It validates at `tls_port` of the addresses of the hosts.
pub struct Pebble {
    child: Option<Child>,
    port: u16,
    management_port: u16,
    folder: tempfile::TempDir,
    cert: Cert,
    pub dns: Dns,
}

impl Pebble {
    /// A Pebble that does not run yet. Its certificates are valid for `validity_s` seconds.
    pub fn new(tls_port: u16, validity_s: u64, hosts: &[&'static str]) -> Self {
        let (folder, dns, cert) = (tempfile::tempdir().unwrap(), Dns::start(), Cert::of_hosts(&["127.0.0.1"]));
        for host in hosts {
            dns.addresses(host, 60, &[Ipv4Addr::LOCALHOST]);
        }
        cert.write(folder.path(), "pebble");
        let (port, management_port) = (free_port(), free_port());
        let config = format!(
            r#"{{"pebble": {{"listenAddress": "127.0.0.1:{port}", "managementListenAddress": "127.0.0.1:{management_port}",
                "certificate": "pebble.pem", "privateKey": "pebble.key", "httpPort": 1, "tlsPort": {tls_port},
                "externalAccountBindingRequired": false, "certificateValidityPeriod": {validity_s}}}}}"#
        );
        std::fs::write(folder.path().join("pebble.json"), config).unwrap();
        Self { child: None, port, management_port, folder, cert, dns }
    }

    /// Lets it accept only accounts that are bound to this one.
    pub fn require_account(&self, key_id: &str, key: &str) {
        let (file, keys) = (self.folder.path().join("pebble.json"), format!("{{\"{key_id}\": \"{key}\"}}"));
        let required = format!("\"externalAccountBindingRequired\": true, \"externalAccountMACKeys\": {keys}");
        let config = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, config.replace("\"externalAccountBindingRequired\": false", &required)).unwrap();
    }

    /// Starts it, and waits until it answers. It asks for each validation. It rejects no nonce at random: the library sends a
    /// request three times, and would fail one order of about 1,000.
    pub fn start(&mut self) {
        let mut command = Command::new(installed("pebble"));
        command.args(["-config", "pebble.json", "-dnsserver", &self.dns.address().to_string()]);
        command.envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0"), ("PEBBLE_AUTHZREUSE", "0")]);
        let log = || File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(log()).stderr(log());
        self.child = Some(command.spawn().unwrap());
        poll(|| std::net::TcpStream::connect(local(self.port)).ok());
    }

    /// Kills it. It forgets its accounts and its keys.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The URL of its directory.
    pub fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.port)
    }

    /// The certificate of its own listener in PEM.
    pub fn ca(&self) -> &str {
        &self.cert.pem
    }

    /// The configuration of a client that trusts its certificates.
    pub fn client(&self, alpn: &[&str], own: Option<&Cert>) -> ClientConfig {
        let config = trusting(&[&self.cert], &[&TLS12, &TLS13], &["http/1.1"], None);
        let mut management = connect_tls(local(self.management_port), &config, "127.0.0.1").unwrap();
        let root = CertificateDer::from_pem_slice(&management.get("/roots/0").body).unwrap();
        trusting_roots([root].into_iter(), &[&TLS12, &TLS13], alpn, own)
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.kill();
    }
}
