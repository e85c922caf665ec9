//! Bytes that may stand in the parts of a message (RFC 9110, section 5.6).

use crate::fields::decimal;

/// What `http::HeaderName` takes, and an offset of [`Spans`].
pub(super) const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// tchar (RFC 9110, 5.6.2).
pub(super) const TOKEN: u8 = 1;
/// field-vchar, SP and HTAB (RFC 9110, 5.5); no other control, no DEL.
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

/// Whether all of `bytes` are in [`VALUE`]: eight at a time as long as none of those could be another.
pub(super) fn is_value(bytes: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    // Whether a byte may be below 0x20, or may be 0x7f; exact enough for nearly all values.
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

/// RFC 9110, 9.1, and no lower-case letters: services that make them upper-case would see a method that no limit saw.
pub(crate) fn is_method(method: &[u8]) -> bool {
    !method.is_empty() && method.iter().all(|&byte| is(byte, TOKEN) && !byte.is_ascii_lowercase())
}

pub(super) fn trim_start(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    value
}

/// RFC 9110, 8.6: `1*DIGIT`, bounded so that it fits a signed 64-bit integer anywhere.
pub(crate) fn length(digits: &[u8]) -> Option<u64> {
    if digits.len() > LENGTH_DIGITS_MAX {
        return None;
    }
    decimal(digits).filter(|value| i64::try_from(*value).is_ok())
}
