//! Escapes for the bytes that a query must not contain (RFC 3986, 3.4).
//!
//! Servers and libraries differ about raw bytes: some refuse them, some read UTF-8, some Latin-1. All read escapes
//! alike. Existing escapes, valid or not, stay unchanged. So do `[` and `]`, which are frequent in names of parameters.
//! Not here: refusing control characters and white space (the readers of heads).

use std::borrow::Cow;

use super::escapes::push_escape;

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
