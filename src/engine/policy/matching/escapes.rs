//! Percent-escapes (RFC 3986, section 2.1), and the query with escapes for the bytes that it must not contain (3.4).
//!
//! Servers and libraries differ about raw bytes in a query: some refuse them, some read UTF-8, some Latin-1. All read
//! escapes alike. Existing escapes, valid or not, stay unchanged. So do `[` and `]`, which are frequent in names of
//! parameters. Not here: refusing control characters and white space (the readers of heads).

use std::borrow::Cow;

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

/// The query with its invalid raw bytes escaped. Borrowed, after one scan, if there are none.
pub fn escaped_query(raw: &str) -> Cow<'_, str> {
    let Some(first) = raw.bytes().position(must_escape) else { return Cow::Borrowed(raw) };
    let mut out = String::with_capacity(raw.len() + raw.len() / 2);
    for (at, byte) in raw.bytes().enumerate() {
        if at >= first && must_escape(byte) {
            push_escape(&mut out, byte);
        } else {
            out.push(char::from(byte)); // ASCII
        }
    }
    Cow::Owned(out)
}

fn must_escape(byte: u8) -> bool {
    !matches!(byte, b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_bytes_are_escaped() {
        for (raw, escaped) in [
            ("q=é", "q=%C3%A9"),
            ("é=voilà&b=€", "%C3%A9=voil%C3%A0&b=%E2%82%AC"),
            ("q=\"x\"", "q=%22x%22"),
            ("<>\\^`{|}", "%3C%3E%5C%5E%60%7B%7C%7D"),
            ("a=%c3%a9é", "a=%c3%a9%C3%A9"),
            ("a b\x7f\0", "a%20b%7F%00"), // refused before
        ] {
            assert_eq!(escaped_query(raw), escaped, "{raw}");
        }
    }

    #[test]
    fn other_queries_are_borrowed() {
        for query in ["", "a=b&c[]=%5b%zz%&d=/../?;e=+", "!$&'()*+,;=:@/?-._~09AZaz[]%"] {
            assert!(matches!(escaped_query(query), Cow::Borrowed(same) if same == query), "{query}");
        }
    }

    proptest! {
        #[test]
        fn escaping_twice_changes_nothing(raw in any::<String>()) {
            let escaped = escaped_query(&raw);
            prop_assert!(escaped.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(matches!(escaped_query(&escaped), Cow::Borrowed(_)));
        }
    }
}
