//! TLS between replicas: both sides show a certificate of one authority.
//!
//! The names in certificates do not count, because replicas come and go. The authority says that both are members, and
//! the channel binding ties the proof of the fleet's secret to the session.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{self, CertificateDer, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::certificate::{ALPN_H2, PROVIDER, ServerCertificate, certificates, digest};
use crate::base::opaque::opaque_debug;

/// The length of a channel binding.
pub const BINDING_BYTES: usize = 32;

/// The label of channel bindings (RFC 9266).
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// The name in the handshake, which no side checks or sends.
const NAME: &str = "weir.invalid";

/// The configuration of TLS between replicas. Clones are cheap and equal.
#[derive(Clone)]
pub struct PeerTls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// A digest of the files that it was made from.
    made_from: u64,
}

impl PeerTls {
    /// Shows the certificate `own`, and trusts certificates of the authorities in PEM.
    ///
    /// # Errors
    /// If the file of authorities has no certificate, or rustls refuses the configuration.
    pub fn new(own: ServerCertificate, authorities: &[u8]) -> Result<Self, String> {
        let made_from = digest(&(authorities, own.made_from));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|_| "a certificate in it cannot be read".to_owned())?;
        }
        let (roots, own) = (Arc::new(roots), Arc::new(SingleCertAndKey::from(own.key)));
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&PROVIDER)).build();
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(clients.map_err(|error| error.to_string())?)
            .with_cert_resolver(Arc::clone(&own) as _);
        let members = MemberVerifier { roots, provider: Arc::clone(&PROVIDER) };
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(members))
            .with_client_cert_resolver(own);
        // A new session checks the certificates, a resumed one would not.
        server.send_tls13_tickets = 0;
        client.enable_sni = false;
        server.alpn_protocols = vec![ALPN_H2.to_vec()];
        client.alpn_protocols = vec![ALPN_H2.to_vec()];
        Ok(Self { acceptor: Arc::new(server).into(), connector: Arc::new(client).into(), made_from })
    }

    /// Performs the handshake with a replica that has connected. Returns the channel binding, too.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> io::Result<(TlsStream<S>, [u8; BINDING_BYTES])> {
        bound(self.acceptor.accept(socket).await?.into())
    }

    /// Performs the handshake with a replica to which `socket` leads. Returns the channel binding, too.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> io::Result<(TlsStream<S>, [u8; BINDING_BYTES])> {
        let name = pki_types::ServerName::try_from(NAME).map_err(io::Error::other)?;
        bound(self.connector.connect(name, socket).await?.into())
    }
}

fn bound<S>(stream: TlsStream<S>) -> io::Result<(TlsStream<S>, [u8; BINDING_BYTES])> {
    let binding = match &stream {
        TlsStream::Client(client) => client.get_ref().1.export_keying_material([0; BINDING_BYTES], BINDING_LABEL, None),
        TlsStream::Server(server) => server.get_ref().1.export_keying_material([0; BINDING_BYTES], BINDING_LABEL, None),
    };
    Ok((stream, binding.map_err(io::Error::other)?))
}

/// Accepts certificates of the authorities, whatever their names.
#[derive(Debug)]
struct MemberVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &pki_types::ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (certificate, algorithms) = (ParsedCertificate::try_from(certificate)?, &self.provider);
        let algorithms = algorithms.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether both were made from equal files.
impl PartialEq for PeerTls {
    fn eq(&self, other: &Self) -> bool {
        self.made_from == other.made_from
    }
}

opaque_debug!(PeerTls);
