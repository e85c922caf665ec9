//! Hop-by-hop fields, which are for one connection only (RFC 9110, section 7.6.1).

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::base::fields::Fields;

/// Fields that Connection cannot remove: the destination, the framing and the origin of a message. A trusted proxy may
/// forward the Connection of its client, who must not be able to erase its own address.
const PROTECTED: [&[u8]; 6] =
    [b"host", b"content-length", b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"];

/// Whether the field is for one connection only. TE is one of them: Weir writes its own.
#[inline]
pub(crate) fn is_hop_by_hop(name: &[u8]) -> bool {
    let is = |lower: &[u8]| name.eq_ignore_ascii_case(lower);
    match name.len() {
        2 => is(b"te"),
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

/// The field names that Connection lists, without those that it cannot remove.
#[derive(Debug)]
pub(crate) struct ConnectionOptions<'b>(NameSet<'b>);

impl<'b> ConnectionOptions<'b> {
    /// The options in the Connection of `fields`.
    pub(crate) fn of(fields: Fields<'b>) -> Self {
        // The usual values name no field.
        if fields.first("connection").is_none_or(|value| value == b"keep-alive" || value == b"close")
            && fields.all("connection").nth(1).is_none()
        {
            return Self(NameSet::default());
        }
        let is_protected = |name: &&[u8]| PROTECTED.iter().any(|kept| name.eq_ignore_ascii_case(kept));
        Self(fields.members("connection").map(without_parameters).filter(|name| !is_protected(name)).collect())
    }

    /// Whether Connection lists the field `name`.
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.0.contains(name)
    }
}

/// Names without regard to case, sorted by [`compare`], so that a lookup is fast among many.
#[derive(Debug, Default)]
pub(crate) struct NameSet<'b>(SmallVec<[&'b [u8]; 4]>);

impl<'b> FromIterator<&'b [u8]> for NameSet<'b> {
    fn from_iter<I: IntoIterator<Item = &'b [u8]>>(names: I) -> Self {
        let mut names: SmallVec<[&[u8]; 4]> = names.into_iter().collect();
        names.sort_unstable_by(|one, other| compare(one, other));
        Self(names)
    }
}

impl NameSet<'_> {
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.0.binary_search_by(|named| compare(named, name)).is_ok()
    }
}

/// Shorter names first: most names differ in length.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let letters = || one.iter().map(u8::to_ascii_lowercase).cmp(other.iter().map(u8::to_ascii_lowercase));
    one.len().cmp(&other.len()).then_with(letters)
}

/// Whether Connection has this option.
pub(crate) fn connection_says(fields: Fields<'_>, option: &[u8]) -> bool {
    fields.members("connection").any(|member| member.eq_ignore_ascii_case(option))
}

/// Whether a request authenticates its connection, not only itself. NTLM always does, Negotiate may (RFC 4559, section
/// 6).
pub(crate) fn authenticates_connection(fields: Fields<'_>) -> bool {
    fields.all("authorization").any(is_of_connection)
}

/// Whether a response asks for such an authentication.
pub(crate) fn challenges_connection(fields: Fields<'_>) -> bool {
    ["www-authenticate", "proxy-authenticate"].iter().any(|name| fields.members(name).any(is_of_connection))
}

fn is_of_connection(credentials: &[u8]) -> bool {
    let scheme = credentials.split(u8::is_ascii_whitespace).next().unwrap_or(&[]);
    scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
}

/// Whether the sender of `fields` accepts trailers (RFC 9110, section 10.1.4).
pub(crate) fn takes_trailers(fields: Fields<'_>) -> bool {
    fields.members("te").any(|member| without_parameters(member).eq_ignore_ascii_case(b"trailers"))
}

/// Whether a field may be a trailer. An upstream may merge trailers into the header. So fields that Weir writes, or
/// that describe the connection, are refused (RFC 9110, section 6.5.1).
pub(crate) fn may_trail(name: &[u8]) -> bool {
    const OURS: [&[u8]; 3] = [b"cookie", b"expect", b"trailer"];
    let is = |other: &&[u8]| name.eq_ignore_ascii_case(other);
    !is_hop_by_hop(name) && !PROTECTED.iter().any(is) && !OURS.iter().any(is) && !FRAMING.iter().any(is)
}

/// Fields that the RFC forbids in trailers, because they change how the message is read.
const FRAMING: [&[u8]; 8] = [
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-range",
    b"content-type",
    b"max-forwards",
    b"set-cookie",
    b"www-authenticate",
];

fn without_parameters(member: &[u8]) -> &[u8] {
    member.split(|&byte| byte == b';').next().unwrap_or(member).trim_ascii()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A binary search finds the same names as a linear search.
        #[test]
        fn names_are_found(names in prop::collection::vec("[aAbB]{0,3}", 0..12), wanted in "[aAbB]{0,3}") {
            let found: NameSet<'_> = names.iter().map(String::as_bytes).collect();
            let expected = names.iter().any(|name| name.eq_ignore_ascii_case(&wanted));
            prop_assert_eq!(found.contains(wanted.as_bytes()), expected);
        }
    }
}
