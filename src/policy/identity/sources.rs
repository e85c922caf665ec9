//! The identities that the configuration declares.

use http::HeaderName;

use super::certificates::CertificateName;
use super::jwt::Verifier;
use crate::policy::matching::values::Repeated;

/// One `[identity.NAME]`.
#[derive(Debug)]
pub struct Identity {
    /// Its name in the configuration, for messages.
    pub name: Box<str>,
    /// Where it comes from.
    pub source: IdentitySource,
    /// What a request without it gets. One that is present and wrong is always refused.
    pub on_missing: OnMissing,
}

/// Where an identity comes from.
#[derive(Debug)]
pub enum IdentitySource {
    /// The value of a header, trusted as it stands, and which if there are several.
    Header(HeaderName, Repeated),
    /// A name in the certificate that the client opened its connection with.
    Certificate(CertificateName),
    /// A claim of a verified JSON Web Token.
    Jwt {
        /// The header that carries it; in `authorization` after `Bearer `, elsewhere bare.
        header: HeaderName,
        /// Keys, algorithms and the claim.
        verifier: Box<Verifier>,
    },
}

/// What a request without an identity gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// 401.
    Reject,
    /// One bucket shared by all such requests.
    Anonymous,
    /// A bucket of its client's address.
    Ip,
}
