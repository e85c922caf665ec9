//! Percent-escapes (RFC 3986, section 2.1).

/// The value of a hexadecimal digit; none for any other byte.
pub(crate) fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The byte of the escape at the start of `text`; none if no escape stands there.
pub(crate) fn escape(text: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = text else { return None };
    Some(hex_value(high)? << 4 | hex_value(low)?)
}

/// Appends the escape of a byte, in upper case.
pub(crate) fn push_escape(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 0xF)]));
}
