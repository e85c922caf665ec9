//! The syntax of the parts of a message: bytes of tokens and values, methods, lengths (RFC 9110), targets (RFC 9112).

use http::Uri;

use crate::base::fields::decimal;

/// The bound of `http::HeaderName`, and of an offset of [`Spans`](crate::base::fields::Spans).
pub(super) const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// tchar (RFC 9110, section 5.6.2).
pub(super) const TOKEN: u8 = 1;
/// field-vchar, SP and HTAB (RFC 9110, section 5.5); no other control character, no DEL.
pub(super) const VALUE: u8 = 2;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        let mut class = 0;
        if byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            class |= TOKEN;
        }
        if is_value_byte(byte) {
            class |= VALUE;
        }
        table[byte as usize] = class;
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Whether `byte` belongs to one of the classes.
#[inline]
pub(super) fn is(byte: u8, classes: u8) -> bool {
    CLASSES[byte as usize] & classes != 0
}

/// Whether all of `bytes` are in [`VALUE`]. Eight bytes at once, unless one of them is in doubt.
pub(super) fn is_value(bytes: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    // Whether a byte may be below 0x20 or equal to 0x7f. Nearly no valid value is in doubt.
    let is_doubtful = |word: u64| {
        let no_del = word ^ (0x7f * LOW);
        (word.wrapping_sub(0x20 * LOW) & !word | no_del.wrapping_sub(LOW) & !no_del) & (0x80 * LOW) != 0
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let is_good = |word: &[u8; 8]| !is_doubtful(u64::from_ne_bytes(*word)) || word.iter().copied().all(is_value_byte);
    words.iter().all(is_good) && rest.iter().copied().all(is_value_byte)
}

const fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Digits of a Content-Length: those of `i64::MAX`.
const LENGTH_DIGITS_MAX: usize = 19;

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

/// Parses `1*DIGIT` (RFC 9110, section 8.6). None above `i64::MAX`, which every reader can represent.
pub(crate) fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.len() > LENGTH_DIGITS_MAX {
        return None;
    }
    decimal(digits).filter(|value| i64::try_from(*value).is_ok())
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
