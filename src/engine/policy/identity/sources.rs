//! The identities that the configuration declares, and the principal of a request for one.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderName;

use super::api_keys::ApiKeys;
use super::certificates::CertificateName;
use super::jwt::Verifier;
use crate::engine::policy::matching::values::Repeated;

/// A compiled `[identity.NAME]`.
#[derive(Debug)]
pub struct Identity {
    /// The name in the configuration, for messages.
    pub name: Box<str>,
    /// The source of its value.
    pub source: IdentitySource,
    /// The treatment of requests without the identity. Requests with an invalid one are always refused.
    pub on_missing: OnMissing,
    /// Whether operators see its values whole. The claims of tokens and the names of API keys are always shown whole.
    pub is_plain: bool,
}

/// The source of an identity.
#[derive(Debug)]
pub enum IdentitySource {
    /// The value of a header, trusted without a check, and the treatment of several values.
    Header(HeaderName, Repeated),
    /// A name in the client certificate of the connection.
    Certificate(CertificateName),
    /// A claim of a verified JSON Web Token.
    Jwt {
        /// The header of the token; in `authorization` after `Bearer `, in other headers alone.
        header: HeaderName,
        /// Keys, algorithms and the claim.
        verifier: Box<Verifier>,
    },
    /// The owner of an API key that Weir gave out.
    ApiKeys {
        /// The header of the key; in `authorization` after `Bearer `, in other headers alone.
        header: HeaderName,
        /// The keys.
        keys: Box<ApiKeys>,
        /// Whether services get the header, too.
        is_forwarded: bool,
    },
}

impl IdentitySource {
    /// Whether Weir verifies the value, and does not take it from the client.
    pub fn is_verified(&self) -> bool {
        !matches!(self, Self::Header(..))
    }

    /// The header that has the value, the token or the key.
    pub fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(header, _) | Self::Jwt { header, .. } | Self::ApiKeys { header, .. } => Some(header),
            Self::Certificate(_) => None,
        }
    }

    /// `text` as a value of this source is spelled: DNS names of certificates are in lower case.
    pub fn spelled<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Certificate(CertificateName::SanDns) => text.to_ascii_lowercase().into(),
            _ => text.into(),
        }
    }
}

/// The treatment of requests without an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// The request is refused with 401.
    Reject,
    /// All such requests share one bucket.
    Anonymous,
    /// The client's address is used.
    Ip,
}

/// The principal of a request for one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal<'a> {
    /// A value of a header.
    Bytes(&'a [u8]),
    /// Several header values, joined as one list.
    Joined(Arc<[u8]>),
    /// A verified value: of a claim, the owner of an API key, or a name in a certificate. Every byte of it counts.
    Claim(Arc<str>),
    /// No value; all such requests share one principal.
    Anonymous,
    /// No value; the client's address is used.
    Ip,
}
