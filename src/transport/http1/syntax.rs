//! The syntax of the parts of a message: methods (RFC 9110) and targets (RFC 9112).

use http::Uri;

use crate::base::fields::{TOKEN, is};

/// The bound of `http::HeaderName`, and of an offset of [`Spans`](crate::base::fields::Spans).
pub(super) const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// Whether `method` is a token (RFC 9110, section 9.1) without lower-case letters. Some services convert to upper case,
/// and would see a method that no limit matched.
pub(crate) fn is_method(method: &[u8]) -> bool {
    !method.is_empty() && method.iter().all(|&byte| is(byte, TOKEN) && !byte.is_ascii_lowercase())
}

pub(super) fn trim_start(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    value
}

/// Whether `target` has a form that `method` allows (RFC 9112, section 3.2); the authority form is for CONNECT only.
///
/// Clients send more bytes than RFC 3986 allows, such as raw UTF-8 and quotes. They are accepted here: the path
/// normaliser and `escaped_query` escape them. White space, control characters and `#`, which begins a fragment, are
/// refused.
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
