//! Certificates for tests, and a client that speaks TLS.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use super::{Client, PATIENCE};

/// A certificate and its key.
pub struct Cert {
    pub pem: String,
    pub key: String,
    params: CertificateParams,
    pair: KeyPair,
}

impl Cert {
    /// A self-signed certificate for hosts.
    pub fn of_hosts(hosts: &[&str]) -> Self {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        Self::sign(CertificateParams::new(hosts).unwrap(), None)
    }

    /// An authority.
    pub fn authority() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        Self::sign(params, None)
    }

    /// A client certificate, signed by `self`.
    pub fn client(&self, common_name: &str, dns: &[&str], uri: &[&str]) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        let dns = dns.iter().map(|name| SanType::DnsName((*name).try_into().unwrap()));
        let uri = uri.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
        params.subject_alt_names = dns.chain(uri).collect();
        Self::sign(params, Some(self))
    }

    fn sign(params: CertificateParams, by: Option<&Self>) -> Self {
        let pair = KeyPair::generate().unwrap();
        let signed = match by {
            None => params.self_signed(&pair),
            Some(by) => params.signed_by(&pair, &Issuer::from_params(&by.params, &by.pair)),
        };
        Self { pem: signed.unwrap().pem(), key: pair.serialize_pem(), params, pair }
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub fn write(&self, folder: &Path, name: &str) {
        std::fs::write(folder.join(format!("{name}.pem")), &self.pem).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), &self.key).unwrap();
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()
    }
}

/// The configuration of a client that trusts these, with or without its own certificate.
pub fn trusting(
    certs: &[&Cert],
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&str],
    own: Option<&Cert>,
) -> ClientConfig {
    trusting_roots(certs.iter().map(|cert| cert.der()), versions, alpn, own)
}

/// The configuration of a client that trusts these, with or without its own certificate.
pub fn trusting_roots(
    certs: impl Iterator<Item = CertificateDer<'static>>,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&str],
    own: Option<&Cert>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for cert in certs {
        roots.add(cert).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![own.der()], key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// A client over TLS.
pub type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// Connects, and performs the handshake of the client.
pub fn connect_tls(address: SocketAddr, config: &ClientConfig, host: &str) -> io::Result<TlsClient> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let mut session = ClientConnection::new(Arc::new(config.clone()), host).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(Client::over(StreamOwned::new(session, socket)))
}
