//! The principal of a request.

/// The principal of a request for one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal<'a> {
    /// A value of a header or a certificate.
    Bytes(&'a [u8]),
    /// Several header values, joined as one list.
    Joined(std::sync::Arc<[u8]>),
    /// A value of a verified claim.
    Claim(std::sync::Arc<str>),
    /// No value; all such requests share one principal.
    Anonymous,
    /// No value; the client's address is used.
    Ip,
}
