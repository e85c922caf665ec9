//! Headers that are for one connection only (RFC 9110, section 7.6.1).

use smallvec::SmallVec;

use crate::policy::Fields;

/// What Connection cannot remove: where a message goes, where it ends, and whom it is from. A trusted proxy may
/// pass on what its client wrote, who must not be able to erase its own address.
const KEPT: [&[u8]; 6] =
    [b"host", b"content-length", b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"];

/// What does not go beyond a connection. TE is among it: what may be said of it is said anew.
#[inline]
pub(super) fn is_hop_by_hop(name: &[u8]) -> bool {
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

/// The names that Connection lists and may remove.
#[derive(Debug)]
pub(super) struct Named<'b>(SmallVec<[&'b [u8]; 4]>);

impl<'b> Named<'b> {
    /// Those of these fields.
    pub(super) fn by(fields: Fields<'b>) -> Self {
        // What most say who say anything names nothing.
        if fields.first("connection").is_none_or(|value| value == b"keep-alive" || value == b"close")
            && fields.all("connection").nth(1).is_none()
        {
            return Self(SmallVec::new());
        }
        let is_kept = |name: &&[u8]| KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept));
        Self(fields.members("connection").map(without_parameters).filter(|name| !is_kept(name)).collect())
    }

    /// Whether the field of this name is one of them.
    pub(super) fn contains(&self, name: &[u8]) -> bool {
        !self.0.is_empty() && self.0.iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}

/// Whether Connection has this option.
pub(super) fn connection_says(fields: Fields<'_>, option: &[u8]) -> bool {
    fields.members("connection").any(|member| member.eq_ignore_ascii_case(option))
}

/// Whether whoever sent these fields takes trailers (RFC 9110, section 10.1.4).
pub(super) fn takes_trailers(fields: Fields<'_>) -> bool {
    fields.members("te").any(|member| without_parameters(member).eq_ignore_ascii_case(b"trailers"))
}

/// Whether a field may stand after a body: not what an upstream that merges trailers into the headers would take for
/// our word, or for that of the connection (RFC 9110, section 6.5.1).
pub(super) fn may_trail(name: &[u8]) -> bool {
    const OURS: [&[u8]; 3] = [b"cookie", b"expect", b"trailer"];
    let is = |other: &&[u8]| name.eq_ignore_ascii_case(other);
    !is_hop_by_hop(name) && !KEPT.iter().any(is) && !OURS.iter().any(is) && !FRAMING.iter().any(is)
}

/// What says how a message is to be read; also forbidden in trailers by the RFC.
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
