//! The headers in which a service gets the identities and the plan of a request.
//!
//! Not here: the lookup of an identity (gate), and the writing of fields (proxy).

use http::HeaderName;

/// A header in which a service gets an identity or the plan. Weir removes the header from requests of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityHeader {
    /// The name.
    pub name: HeaderName,
    /// The value.
    pub value: IdentityValue,
}

/// The value of an [`IdentityHeader`] for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityValue {
    /// The value of the identity with this index in the policy.
    Identity(usize),
    /// The name of the plan.
    Plan,
    /// No value: the header of a client has an API key.
    Removed,
}

impl IdentityHeader {
    /// Whether a service may read a field of this name as the header. Services that speak CGI or WSGI read `_` as `-`,
    /// and some of them also other bytes, such as `.`.
    pub fn is_read_from(&self, name: &[u8]) -> bool {
        let dashed = |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
        let own = self.name.as_str().as_bytes();
        own.len() == name.len() && own.iter().map(dashed).eq(name.iter().map(dashed))
    }
}

/// Whether a value can be sent in a field: not empty, without control characters, and without white space at its ends
/// (RFC 9110, section 5.5).
pub fn is_field_value(value: &[u8]) -> bool {
    let is_clean = |byte: &u8| *byte >= b' ' && *byte != 0x7F;
    !value.is_empty() && value.iter().all(is_clean) && value.first() != Some(&b' ') && value.last() != Some(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_that_a_service_may_read_is_the_header() {
        let header = IdentityHeader { name: HeaderName::from_static("x-seller-id"), value: IdentityValue::Plan };
        for (name, is_read) in [
            (&b"x-seller-id"[..], true),
            (b"X-SELLER-ID", true),
            (b"X_Seller_Id", true),
            (b"x-seller_id", true),
            (b"X.Seller.Id", true),
            (b"x-seller!id", true),
            (b"x~seller.id", true),
            (b"x-seller-i", false),
            (b"x-seller-id2", false),
            (b"xxseller-id", false),
        ] {
            assert_eq!(header.is_read_from(name), is_read, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_value_cannot_end_its_field() {
        for (value, is_valid) in [
            (&b"7"[..], true),
            (b"a b", true),
            ("\u{e9}".as_bytes(), true),
            (b"", false),
            (b"7\r\nx: y", false),
            (b"7\n", false),
            (b"a\tb", false),
            (b"\0", false),
            (b" 7", false),
            (b"7 ", false),
            (b"\x7F", false),
        ] {
            assert_eq!(is_field_value(value), is_valid, "{}", value.escape_ascii());
        }
    }
}
