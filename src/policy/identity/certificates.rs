//! Names in client certificates.

/// Names in a client's certificate, which has been verified. Each list is in its order, without empty ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Common names of the subject.
    pub subject_cn: Vec<Box<str>>,
    /// DNS names among the alternative ones, in lower case.
    pub san_dns: Vec<Box<str>>,
    /// URIs among the alternative ones.
    pub san_uri: Vec<Box<str>>,
}

/// Which name in a client's certificate is an identity. A certificate with several of its kind is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The common name of the subject.
    SubjectCn,
    /// The DNS name among the alternative ones.
    SanDns,
    /// The URI among the alternative ones.
    SanUri,
}

impl CertificateName {
    /// All names of its kind.
    pub fn of(self, certificate: &Certificate) -> &[Box<str>] {
        match self {
            Self::SubjectCn => &certificate.subject_cn,
            Self::SanDns => &certificate.san_dns,
            Self::SanUri => &certificate.san_uri,
        }
    }
}
