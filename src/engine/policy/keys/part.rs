//! The parts of a key.

use http::HeaderName;

use crate::engine::policy::body_member::BodyMember;
use crate::engine::policy::identity::client_ip::Prefixes;
use crate::engine::policy::matching::values::Repeated;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// The client's address, or the network of it that counts as one client.
    Ip,
    /// The network of the client's address with these prefixes. Without one for IPv6, it is that which counts as one
    /// client.
    Network {
        /// Bits of an IPv4 address, 1 to 32.
        v4: u8,
        /// Bits of an IPv6 address, 1 to 128.
        v6: Option<u8>,
    },
    /// The normalised path, without the query.
    Path,
    /// The normalised path, and the query if it is not empty.
    Uri,
    /// The pattern that matched the path.
    Route,
    /// A parameter of the pattern that matched the path.
    Parameter(Box<str>),
    /// The host in lower case, without its port.
    Host,
    /// The method.
    Method,
    /// An identity, by its index in the policy.
    Identity(usize),
    /// The value of a header.
    Header(HeaderName, Repeated),
    /// The value of a query parameter, as a form decoder reads it.
    Query(Box<str>, Repeated),
    /// The value of a cookie, without quotes and escapes.
    Cookie(Box<str>, Repeated),
    /// A member of the body.
    Json(Box<BodyMember>),
    /// A value that callers of the limiter service give under this name. A request has none.
    Named(Box<str>),
}

impl KeyPart {
    /// The treatment of several values; none if the part cannot have several.
    pub fn several_mut(&mut self) -> Option<&mut Repeated> {
        match self {
            Self::Header(_, several) | Self::Query(_, several) | Self::Cookie(_, several) => Some(several),
            _ => None,
        }
    }

    /// The networks by which this part counts addresses, where `own` count as one client.
    pub fn prefixes(&self, own: Prefixes) -> Prefixes {
        match *self {
            Self::Network { v4, v6 } => Prefixes { v4, v6: v6.unwrap_or(own.v6) },
            _ => own,
        }
    }
}
