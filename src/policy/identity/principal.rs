//! The identity of a request.

/// Who a request turned out to be from, for one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal<'a> {
    /// A value, from a header.
    Bytes(&'a [u8]),
    /// Several values, joined to one.
    Joined(std::sync::Arc<[u8]>),
    /// A value, from a verified claim.
    Claim(std::sync::Arc<str>),
    /// Nobody in particular.
    Anonymous,
    /// Nobody; its address stands in.
    Ip,
}
