//! TLS in front: certificates and how one is chosen, whose clients are let in, and the session on a socket. TLS to
//! services is in `client`.
//!
//! The library's provider is called by name instead of installed for the process: then there is nothing to forget.
//! Not here: reading files, and what an identity is used for.

mod certificate;
mod client;
mod names;
mod sealed;
mod server;
mod session;

pub use certificate::{CertificateProblem, ServerCertificate};
pub use client::{ClientTls, ServerName};
pub use server::{ClientAuth, Tls};
pub(crate) use session::{HandshakeError, TlsStream};
