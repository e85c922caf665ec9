//! TLS of clients: the choice of the certificate, and the clients that are accepted.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use super::acme::{Acme, AcmeSettings};
use super::certificate::{ALPN_H2, ALPN_HTTP_10, ALPN_HTTP_11, PROVIDER, ServerCertificate, certificates, digest};
use crate::base::opaque::opaque_debug;

/// The configuration of TLS for clients. Clones are cheap and equal.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// A digest of the files and options that it was made from.
    made_from: u64,
    /// `None` without certificates by ACME.
    acme: Option<Arc<Acme>>,
}

/// The authorities of client certificates, and whether a certificate is required.
pub struct ClientAuth {
    roots: Arc<RootCertStore>,
    is_required: bool,
    made_from: u64,
}

impl ClientAuth {
    /// Reads the file of the authorities that sign client certificates. If `is_required` is false, clients may have no
    /// certificate.
    ///
    /// # Errors
    ///
    /// If the file has no certificate in PEM.
    pub fn new(authorities: &[u8], is_required: bool) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|_| "a certificate in it cannot be read".to_owned())?;
        }
        let made_from = digest(&(authorities, is_required));
        Ok(Self { roots: Arc::new(roots), is_required, made_from })
    }
}

impl ServerTls {
    /// Serves these certificates, then that of `acme`. The first one is for clients that name no host, or an unknown host.
    ///
    /// # Errors
    ///
    /// If rustls refuses the configuration.
    pub fn new(
        certificates: Vec<ServerCertificate>,
        clients: Option<ClientAuth>,
        acme: Option<AcmeSettings>,
    ) -> Result<Self, String> {
        let acme = acme.map(|settings| Arc::new(Acme::new(settings)));
        let parts: Vec<_> = certificates.iter().map(|certificate| certificate.made_from).collect();
        let made_from = digest(&(parts, clients.as_ref().map(|clients| clients.made_from)));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| error.to_string())?;
        let has_client_auth = clients.is_some();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ClientAuth { roots, is_required, .. }) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&PROVIDER));
                let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver::new(certificates, acme.clone())));
        config.alpn_protocols = [ALPN_H2, ALPN_HTTP_11, ALPN_HTTP_10].map(<[u8]>::to_vec).to_vec();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0; // it can be replayed
        if has_client_auth {
            // A new session checks the client's certificate, a resumed one would not.
            config.send_tls13_tickets = 0;
        } else {
            // Clients keep their sessions in sealed tickets, so that every worker can resume them.
            config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| error.to_string())?;
        }
        Ok(Self { config: Arc::new(config), made_from, acme })
    }

    /// The certificate by ACME, if the configuration has one.
    pub fn acme(&self) -> Option<&Arc<Acme>> {
        self.acme.as_ref()
    }

    /// The configuration of a session that speaks HTTP/1 only.
    pub fn http1_config(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = [ALPN_HTTP_11, ALPN_HTTP_10].map(<[u8]>::to_vec).to_vec();
        Arc::new(config)
    }

    /// Serves the certificates to clients that speak HTTP/1 only.
    pub fn http1_only(self) -> Self {
        Self { config: self.http1_config(), ..self }
    }

    /// The configuration of a session that speaks HTTP/2 only.
    pub fn h2_config(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        Arc::new(config)
    }

    /// The configuration of a new session.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// Whether both were made from equal files and options. If so, each can resume the sessions of the other.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        let settings = |tls: &Self| tls.acme.as_ref().map(|acme| Arc::clone(&acme.settings));
        self.made_from == other.made_from && settings(self) == settings(other)
    }
}

opaque_debug!(ServerTls, Resolver);

/// Chooses the certificate by the host that the client names.
struct Resolver {
    certificates: Vec<Arc<CertifiedKey>>,
    /// Certificates of a host, as indices in the order of the configuration; `*.` stands for one label.
    by_name: HashMap<String, Vec<usize>>,
    acme: Option<Arc<Acme>>,
}

impl Resolver {
    fn new(certificates: Vec<ServerCertificate>, acme: Option<Arc<Acme>>) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, certificate) in certificates.iter().enumerate() {
            for name in &certificate.names {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        Self { certificates: certificates.into_iter().map(|certificate| certificate.key).collect(), by_name, acme }
    }

    /// The indices of the certificates for `host`: exact names before wildcards.
    fn of_host(&self, host: &str) -> impl Iterator<Item = usize> {
        let host = host.to_ascii_lowercase();
        let wildcard = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let places = |name: &str| self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        places(&host).iter().chain(wildcard.map_or(&[][..], |name| places(&name))).copied()
    }
}

impl ResolvesServerCert for Resolver {
    /// The first certificate with a signature scheme that the client supports: of the host first, then of all. That by
    /// ACME comes after files. None refuses the client.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let file = |index: usize| self.certificates.get(index);
        let issued = self.acme.as_ref().and_then(|acme| acme.certificate());
        let host = hello.server_name();
        let of_host = issued.as_deref().filter(|issued| host.is_some_and(|host| issued.is_for(host)));
        let named = host.into_iter().flat_map(|host| self.of_host(host)).filter_map(file);
        let named = named.chain(of_host.map(|issued| &issued.key));
        let any = (0..self.certificates.len()).filter_map(file).chain(issued.as_deref().map(|issued| &issued.key));
        let is_usable =
            |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(hello.signature_schemes()).is_some();
        named.chain(any).find(is_usable).map(Arc::clone)
    }
}
