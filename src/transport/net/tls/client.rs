//! TLS to services and stores: the trusted authorities, and Weir's own certificate.
//!
//! These sessions have buffers of their own, unlike the sessions of clients: connections to services are few.

use std::io;
use std::sync::Arc;

use rustls::pki_types;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::load_native_certs;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificate::{ALPN_H2, ALPN_HTTP_11, PROVIDER, ServerCertificate, certificates, digest};
use crate::base::opaque::opaque_debug;
use crate::transport::net::protocol::Protocol;

/// The configuration of TLS to services. Clones are cheap and equal.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// A digest of the authorities, the files and the options that it was made from.
    made_from: u64,
}

/// The name that the certificate of a service must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerName(pki_types::ServerName<'static>);

/// TLS to servers of a store. All contents are valid PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTls {
    /// Certificates of the authorities that sign the certificates of servers; `None` for those of the system.
    pub authorities: Option<Arc<[u8]>>,
    /// The certificate that Weir shows.
    pub own: Option<OwnCertificate>,
    /// A digest of the authorities of the system, if they count. A reload sees by it that they have changed.
    system: Option<u64>,
}

/// A certificate with its key. The `Debug` form does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    /// The certificate in PEM, followed by the certificates of its issuers.
    pub chain: Arc<[u8]>,
    /// The private key in PEM.
    pub key: Arc<[u8]>,
}

impl ServerName {
    /// A host name or an IP address. None if `host` is neither.
    pub fn new(host: &str) -> Option<Self> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        pki_types::ServerName::try_from(host.to_owned()).ok().map(Self)
    }
}

impl StoreTls {
    /// Trusts the certificates in `authorities`, or those that the system has now. Shows the certificate `own`.
    pub fn new(authorities: Option<Arc<[u8]>>, own: Option<OwnCertificate>) -> Self {
        // If the system has none, `store_tls` reports it.
        let system = if authorities.is_none() { roots(None).ok() } else { None };
        Self { authorities, own, system: system.map(|roots| digest(&roots.roots)) }
    }
}

impl ClientTls {
    /// Trusts the certificates in the file `authorities`, or those of the system. Shows the certificate `own` if a
    /// service asks for one. Offers `protocol` only.
    ///
    /// # Errors
    ///
    /// If the file has no certificate, or the system has none.
    pub fn new(authorities: Option<&[u8]>, own: Option<ServerCertificate>, protocol: Protocol) -> Result<Self, String> {
        let roots = roots(authorities)?;
        let made_from = digest(&(&roots.roots, own.as_ref().map(|own| own.made_from), protocol));
        let mut config = config(roots, own)?;
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![ALPN_HTTP_11.to_vec()],
            Protocol::H2 => vec![ALPN_H2.to_vec()],
        };
        Ok(Self { config: Arc::new(config), made_from })
    }

    /// Whether the service agreed on HTTP/2.
    pub(crate) fn agreed_on_h2<S>(session: &TlsStream<S>) -> bool {
        session.get_ref().1.alpn_protocol() == Some(ALPN_H2)
    }

    /// Performs the handshake with the service `name`.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        name: &ServerName,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        TlsConnector::from(Arc::clone(&self.config)).connect(name.0.clone(), socket).await
    }
}

/// The configuration of TLS to the servers of a store, which negotiate no protocol.
///
/// # Errors
///
/// If a file has no certificate or key in PEM, or the system has no certificates.
pub fn store_tls(settings: &StoreTls) -> Result<Arc<ClientConfig>, String> {
    let own = settings.own.as_ref().map(|own| ServerCertificate::new(&own.chain, &own.key)).transpose();
    let own = own.map_err(|problem| problem.to_string())?;
    config(roots(settings.authorities.as_deref())?, own).map(Arc::new)
}

/// The configuration of TLS to the limiter service of another Weir, which is HTTP/2.
///
/// # Errors
///
/// As [`store_tls`].
pub fn service_tls(settings: &StoreTls) -> Result<Arc<ClientConfig>, String> {
    let mut config = ClientConfig::clone(&*store_tls(settings)?);
    config.alpn_protocols = vec![ALPN_H2.to_vec()];
    Ok(Arc::new(config))
}

/// The certificates in the file `authorities`, or those that the system has now.
fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(authorities) = authorities {
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|_| "a certificate in it cannot be read".to_owned())?;
        }
        return Ok(roots);
    }
    let system = load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        let why = system.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return Err(format!("the certificates of the system cannot be read: {why}"));
    }
    Ok(roots)
}

/// Trusts the authorities `roots`, and shows the certificate `own`.
fn config(roots: RootCertStore, own: Option<ServerCertificate>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    Ok(match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key))),
    })
}

/// Whether both were made from equal authorities, files and options.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.made_from == other.made_from
    }
}

impl Eq for ClientTls {}

opaque_debug!(ClientTls, OwnCertificate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let own = OwnCertificate { chain: Arc::from(*b"chain"), key: Arc::from(*b"key") };
        assert_eq!(format!("{own:?}"), "OwnCertificate");
    }
}
