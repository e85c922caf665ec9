//! TLS of clients: certificates and their choice, client certificates, and the session on a socket. TLS to services
//! and stores is in `client`, TLS between replicas in `peer`, the certificate of an authority with ACME in `acme`.
//!
//! The crypto provider is passed explicitly. So no code has to install it for the process.
//!
//! Not here: reading files, and the use of identities.

mod acme;
mod certificate;
mod client;
mod names;
mod peer;
mod sealed;
mod server;
mod session;

pub use acme::{Acme, AcmeSettings, ExternalAccount};
pub use certificate::{CertificateProblem, ServerCertificate};
pub use client::{ClientTls, OwnCertificate, ServerName, StoreTls, service_tls, store_tls};
pub use peer::{BINDING_BYTES, PeerTls};
pub use server::{ClientAuth, ServerTls};
pub(crate) use session::{HandshakeError, TlsStream};
