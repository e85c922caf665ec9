//! Certificates by ACME (RFC 8555): the settings, the certificate in use, and the answers to challenges in a handshake
//! (TLS-ALPN-01, RFC 8737).
//!
//! Not here: the orders, and the files, which are in `app`.

use std::collections::HashMap;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::Uri;
use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use super::certificate::{PROVIDER, ServerCertificate};
use super::client::ClientTls;
use crate::base::opaque::opaque_debug;
use crate::transport::net::buffer::{BufferPool, InputBuffer};
use crate::transport::net::socket::Socket;

/// The protocol of a validation (RFC 8737, section 6.2).
const ALPN: &[u8] = b"acme-tls/1";

/// The settings of a certificate by ACME.
#[derive(Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// The hosts of the certificate, in lower case; at least one.
    pub domains: Box<[String]>,
    /// A `mailto:` URL for the authority.
    pub contact: Option<String>,
    /// The URL of the directory of the authority.
    pub directory: Uri,
    /// The folder of the account and the certificate.
    pub folder: PathBuf,
    /// TLS to the authority; `None` for the root certificates of the system.
    pub trust: Option<ClientTls>,
    /// The account that the authority already knows, if it asks for one.
    pub external: Option<ExternalAccount>,
}

/// An account of the authority outside ACME (RFC 8555, section 7.3.4). The `Debug` form does not show the key.
#[derive(PartialEq, Eq)]
pub struct ExternalAccount {
    /// The name of the key.
    pub key_id: String,
    /// The key of the MAC.
    pub key: Box<[u8]>,
}

opaque_debug!(ExternalAccount);

/// The certificate by ACME of the listeners for requests. Orders change it while handshakes read it.
#[derive(Debug)]
pub struct Acme {
    /// The settings.
    pub settings: Arc<AcmeSettings>,
    certificate: ArcSwapOption<ServerCertificate>,
    /// The sessions of validations; `None` while no challenge waits for one.
    challenges: ArcSwapOption<ServerConfig>,
}

impl Acme {
    pub(super) fn new(settings: AcmeSettings) -> Self {
        let (certificate, challenges) = Default::default();
        Self { settings: Arc::new(settings), certificate, challenges }
    }

    /// Shows `certificate` from the next handshake on.
    pub fn show(&self, certificate: Option<Arc<ServerCertificate>>) {
        self.certificate.store(certificate);
    }

    /// The certificate in use.
    pub fn certificate(&self) -> Option<Arc<ServerCertificate>> {
        self.certificate.load_full()
    }

    /// Answers challenges by these certificates, each for its host, until the next call.
    ///
    /// # Errors
    ///
    /// If rustls refuses the configuration.
    pub fn answer(&self, certificates: Vec<ServerCertificate>) -> Result<(), String> {
        let challenges = (!certificates.is_empty()).then(|| sessions(certificates)).transpose()?;
        self.challenges.store(challenges.map(Arc::new));
        Ok(())
    }

    /// The configuration of a session with a validation; `None` while no challenge waits for one.
    pub(super) fn challenges(&self) -> Option<Arc<ServerConfig>> {
        self.challenges.load_full()
    }

    /// Continues with the certificate and the challenges of the configuration before.
    pub fn adopt(&self, before: &Self) {
        self.certificate.store(before.certificate.load_full());
        self.challenges.store(before.challenges.load_full());
    }
}

/// A session with a validation asks for no client certificate and cannot be resumed.
fn sessions(certificates: Vec<ServerCertificate>) -> Result<ServerConfig, String> {
    let answers = certificates.into_iter().filter_map(|certificate| {
        let host = certificate.names.first().cloned();
        Some((host?, certificate.key))
    });
    let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(Answers(answers.collect())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The certificates that answer challenges, by host.
#[derive(Debug)]
struct Answers(HashMap<String, Arc<CertifiedKey>>);

impl ResolvesServerCert for Answers {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.get(&hello.server_name()?.to_ascii_lowercase()).map(Arc::clone)
    }
}

/// Bytes of a first message; longer ones are no validation.
const HELLO_MAX: usize = 16 * 1024;

/// Whether the client offers the protocol of validations, and no other. Reads its first message into `records`.
pub(super) async fn asks_for_challenge(socket: &mut Socket, records: &mut InputBuffer, buffers: &BufferPool) -> bool {
    let (mut acceptor, mut seen) = (Acceptor::default(), 0);
    while records.unread().len() < HELLO_MAX {
        let mut fresh = records.unread().get(seen..).unwrap_or_default();
        if acceptor.read_tls(&mut fresh).is_err() {
            return false;
        }
        seen = records.unread().len() - fresh.len();
        match acceptor.accept() {
            Ok(Some(accepted)) => return accepted.client_hello().alpn().is_some_and(|offered| offered.eq([ALPN])),
            Ok(None) if fresh.is_empty() => {}
            Ok(None) => continue,
            // The session meets the same error, and answers it.
            Err(_) => return false,
        }
        let read = poll_fn(|cx| records.poll_fill(cx, &mut socket.split().0, buffers)).await;
        if !matches!(read, Ok(1..)) {
            return false;
        }
    }
    false
}
