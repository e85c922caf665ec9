//! Certificates with their keys. Also what both sides of TLS share: the provider and the names of protocols.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::names;
use crate::base::opaque::opaque_debug;
use crate::base::time::Timestamp;

/// Names of protocols for ALPN (RFC 7301, RFC 9113).
pub(super) const ALPN_H2: &[u8] = b"h2";
pub(super) const ALPN_HTTP_11: &[u8] = b"http/1.1";
pub(super) const ALPN_HTTP_10: &[u8] = b"http/1.0";

pub(super) static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// A certificate with its chain and private key.
pub struct ServerCertificate {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) names: Vec<String>,
    /// The first and the last moment at which it is valid.
    valid: [Timestamp; 2],
    pub(super) made_from: u64,
}

/// The fault of a certificate or of its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    /// In the file of the certificate.
    #[error("{0}")]
    Certificate(String),
    /// In the file of the key.
    #[error("{0}")]
    Key(String),
}

opaque_debug!(ServerCertificate);

impl ServerCertificate {
    /// Reads the text of both files. The certificate comes first in its file, its issuers follow.
    ///
    /// # Errors
    ///
    /// If a file has no certificate or key in PEM, or the key belongs to another certificate.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self, CertificateProblem> {
        let read = Self::of_challenge(chain, key)?;
        match read.key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(read),
            Err(Error::InconsistentKeys(_)) => Err(CertificateProblem::Key("not the key of this certificate".into())),
            Err(error) => Err(CertificateProblem::Certificate(error.to_string())),
        }
    }

    /// Reads a certificate that answers an ACME challenge, without a check of its key: rustls reads no certificate with the
    /// extension of RFC 8737, which is critical.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn of_challenge(chain: &[u8], key: &[u8]) -> Result<Self, CertificateProblem> {
        let made_from = digest(&(chain, key));
        let chain = certificates(chain).map_err(CertificateProblem::Certificate)?;
        let names = chain.first().and_then(names::of_server);
        let (names, valid) = names.ok_or_else(|| CertificateProblem::Certificate(NO_CERTIFICATE.into()))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| CertificateProblem::Key("no private key in PEM, or one behind a password".into()))?;
        let key = PROVIDER
            .key_provider
            .load_private_key(key)
            .map_err(|_| CertificateProblem::Key("not a private key of type RSA, ECDSA or Ed25519".into()))?;
        Ok(Self { key: Arc::new(CertifiedKey::new(chain, key)), names, valid, made_from })
    }

    /// Whether it names `host` itself, not by `*.`.
    pub fn is_for(&self, host: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    /// The first and the last moment at which it is valid.
    pub fn valid(&self) -> [Timestamp; 2] {
        self.valid
    }
}

const NO_CERTIFICATE: &str = "no certificate in PEM";

/// All certificates of a file; at least one.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| NO_CERTIFICATE.into())
}

pub(super) fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
