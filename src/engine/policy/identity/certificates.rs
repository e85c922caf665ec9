//! Names in client certificates.

use std::sync::Arc;

/// The names in a verified client certificate. Each list is in the order of the certificate, without empty names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Common names of the subject.
    pub subject_cn: Vec<Arc<str>>,
    /// DNS names of the subject alternative names, in lower case.
    pub san_dns: Vec<Arc<str>>,
    /// URIs of the subject alternative names.
    pub san_uri: Vec<Arc<str>>,
}

/// The kind of name in a client certificate that is the identity. A certificate with several names of the kind is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The common name of the subject.
    SubjectCn,
    /// The DNS name of the subject alternative names.
    SanDns,
    /// The URI of the subject alternative names.
    SanUri,
}

impl CertificateName {
    /// All names of this kind in a certificate.
    pub fn of(self, certificate: &Certificate) -> &[Arc<str>] {
        match self {
            Self::SubjectCn => &certificate.subject_cn,
            Self::SanDns => &certificate.san_dns,
            Self::SanUri => &certificate.san_uri,
        }
    }
}
