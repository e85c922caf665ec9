//! TLS in front: certificates and how one is chosen, whose clients are let in, and the session on a socket. TLS to
//! services is in `client`.
//!
//! The library's provider is called by name instead of installed for the process: then there is nothing to forget.
//! Not here: reading files, and what an identity is used for.

mod client;
mod names;
mod sealed;
mod session;

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig};

pub use client::{ClientTls, ServerName};
pub(crate) use session::{HandshakeError, TlsStream};

/// Names of protocols (RFC 7301, RFC 9113).
const ALPN_H2: &[u8] = b"h2";
const ALPN_HTTP_11: &[u8] = b"http/1.1";
const ALPN_HTTP_10: &[u8] = b"http/1.0";

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// What clients are met with. Clones are the same.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// A digest of the files and options that it was made from.
    made_from: u64,
}

/// A certificate with its chain and key.
pub struct ServerCertificate {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
    made_from: u64,
}

/// Whose certificates clients must, or may, show.
pub struct ClientAuth {
    roots: Arc<RootCertStore>,
    is_required: bool,
    made_from: u64,
}

/// What is wrong with a certificate or its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateProblem {
    /// With the file of the certificate.
    Certificate(String),
    /// With that of the key.
    Key(String),
}

impl ServerCertificate {
    /// From the text of both files: the certificate first, what signed it after it.
    ///
    /// # Errors
    /// If one of them is not that, or the key is another's.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self, CertificateProblem> {
        let made_from = digest(&(chain, key));
        let chain = certificates(chain).map_err(CertificateProblem::Certificate)?;
        let names = chain.first().and_then(names::of_server);
        let names = names.ok_or_else(|| CertificateProblem::Certificate(NO_CERTIFICATE.into()))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| CertificateProblem::Key("no private key in PEM, or one behind a password".into()))?;
        let key = PROVIDER
            .key_provider
            .load_private_key(key)
            .map_err(|_| CertificateProblem::Key("not a private key of type RSA, ECDSA or Ed25519".into()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => {
                return Err(CertificateProblem::Key("not the key of this certificate".into()));
            }
            Err(error) => return Err(CertificateProblem::Certificate(error.to_string())),
        }
        Ok(Self { key: Arc::new(certified), names, made_from })
    }
}

const NO_CERTIFICATE: &str = "no certificate in PEM";

/// All certificates of a file, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| NO_CERTIFICATE.into())
}

impl ClientAuth {
    /// From the text of the file of those who sign clients' certificates. If they are not required, clients may also
    /// show none.
    ///
    /// # Errors
    /// If it is not that.
    pub fn new(authorities: &[u8], is_required: bool) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|_| "a certificate in it cannot be read".to_owned())?;
        }
        let made_from = digest(&(authorities, is_required));
        Ok(Self { roots: Arc::new(roots), is_required, made_from })
    }
}

impl Tls {
    /// One with these certificates, of which the first is for whoever names no host that another is for.
    ///
    /// # Errors
    /// If the library refuses them, which it has no reason to.
    pub fn new(certificates: Vec<ServerCertificate>, clients: Option<ClientAuth>) -> Result<Self, String> {
        let parts: Vec<_> = certificates.iter().map(|certificate| certificate.made_from).collect();
        let made_from = digest(&(parts, clients.as_ref().map(|clients| clients.made_from)));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| error.to_string())?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ClientAuth { roots, is_required, .. }) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&PROVIDER));
                let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver::new(certificates)));
        config.alpn_protocols = [ALPN_H2, ALPN_HTTP_11, ALPN_HTTP_10].map(<[u8]>::to_vec).to_vec();
        // Sessions are kept by clients, sealed, so that any worker can resume them. There is no early data: it can be
        // replayed.
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| error.to_string())?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        Ok(Self { config: Arc::new(config), made_from })
    }

    /// For a new session of those who speak HTTP/1 only.
    pub fn http1_config(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = [ALPN_HTTP_11, ALPN_HTTP_10].map(<[u8]>::to_vec).to_vec();
        Arc::new(config)
    }

    /// For a new session.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// Whether they were made from the same. If so, either can go on with the other's sessions.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.made_from == other.made_from
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Chooses the certificate by the host that the client names.
struct Resolver {
    certificates: Vec<Arc<CertifiedKey>>,
    /// Those for a host, by their index, in the order they are listed; `*.` stands for one label.
    by_name: HashMap<String, Vec<usize>>,
}

impl Resolver {
    fn new(certificates: Vec<ServerCertificate>) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, certificate) in certificates.iter().enumerate() {
            for name in &certificate.names {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        Self { certificates: certificates.into_iter().map(|certificate| certificate.key).collect(), by_name }
    }

    /// The places of those for `host`: its own before those of all beside it.
    fn of_host(&self, host: &str) -> impl Iterator<Item = usize> {
        let host = host.to_ascii_lowercase();
        let wildcard = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let places = |name: &str| self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        places(&host).iter().chain(wildcard.map_or(&[][..], |name| places(&name))).copied()
    }
}

impl ResolvesServerCert for Resolver {
    /// The first that the client can verify, among those for its host, or else among all.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().into_iter().flat_map(|host| self.of_host(host));
        let mut all = named.chain(0..self.certificates.len()).filter_map(|index| self.certificates.get(index));
        all.find(|certified| certified.key.choose_scheme(hello.signature_schemes()).is_some()).map(Arc::clone)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("by_name", &self.by_name).finish_non_exhaustive()
    }
}
