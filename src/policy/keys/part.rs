//! The parts of a key.

use http::HeaderName;

use crate::policy::matching::values::Repeated;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// The client's address; an IPv6 address counts by its network.
    Ip,
    /// The normalised path, without the query.
    Path,
    /// The pattern that matched the path.
    Route,
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
}
