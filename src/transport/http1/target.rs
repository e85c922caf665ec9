//! The target of a request line (RFC 9112, section 3.2).
//!
//! Clients send more bytes than RFC 3986 allows, such as raw UTF-8 and quotes. They are accepted here: the path
//! normaliser and `escaped_query` escape them. White space, control characters and `#`, which begins a fragment, are
//! refused.

use http::Uri;

/// Whether `target` has a form that `method` allows; the authority form is for CONNECT only.
pub(super) fn is_target(method: &[u8], target: &[u8]) -> bool {
    match target {
        [b'/', ..] => is_text(target),
        b"*" => method == b"OPTIONS",
        _ => {
            let origin = &target[..origin_len(target)];
            is_text(target) && Uri::try_from(origin).is_ok_and(|uri| uri.scheme().is_some())
        }
    }
}

/// Whether all of `bytes` may be in a target, before they are escaped.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    let is_allowed = |byte: &u8| matches!(byte, b'!' | b'"' | b'$'..=b'~' | 0x80..);
    bytes.iter().all(is_allowed) && (bytes.is_ascii() || str::from_utf8(bytes).is_ok())
}

/// Length of the scheme and the authority of an absolute target.
pub(crate) fn origin_len(target: &[u8]) -> usize {
    let Some(colon) = memchr::memmem::find(target, b"://") else { return target.len() };
    let start = colon + 3;
    memchr::memchr2(b'/', b'?', &target[start..]).map_or(target.len(), |len| start + len)
}
