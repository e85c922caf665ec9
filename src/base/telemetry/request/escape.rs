//! Texts from clients within lines: quotes, control characters and characters that reorder text are escaped.

use std::io::Write;

use crate::base::visible::is_hidden;

/// Whether a character cannot stand in a line for people: a hidden one, or one that breaks lines.
pub fn is_unprintable(character: char) -> bool {
    is_hidden(character) || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Whether nothing of `text` is to be escaped.
pub(super) fn is_plain(text: &str) -> bool {
    // Looks at all bytes, so that 16 are compared at once; those at the end, too.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    let are_plain = |bytes: &[u8; 16]| bytes.iter().fold(true, |are_plain, byte| are_plain & is_plain(*byte));
    let (chunks, rest) = text.as_bytes().as_chunks();
    let mut last = [b' '; 16];
    last[..rest.len()].copy_from_slice(rest);
    chunks.iter().fold(are_plain(&last), |plain, chunk| plain & are_plain(chunk))
}

/// Appends `text` as the inside of a JSON string (RFC 8259, section 7). No character of it is [unprintable](is_unprintable).
pub(super) fn escape(out: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // All of them are below U+10000. Writing to memory does not fail.
            _ if is_unprintable(character) => _ = write!(out, "\\u{:04x}", u32::from(character)),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_plain_if_each_byte_is() {
        for len in 0..50 {
            let plain = "~".repeat(len);
            assert!(is_plain(&plain), "{len}");
            for (at, special) in (0..len).flat_map(|at| ["\"", "\\", "\n", "\u{7f}", "é"].map(|special| (at, special)))
            {
                assert!(!is_plain(&format!("{}{special}{}", &plain[..at], &plain[at + 1..])), "{len} {at} {special:?}");
            }
        }
    }

    #[test]
    fn no_text_leaves_its_string() {
        for (text, escaped) in [
            ("plain text ~", "plain text ~"),
            ("\"\\", r#"\"\\"#),
            ("a\r\n\tb", r"a\r\n\tb"),
            ("\u{0}\u{1b}\u{7f}\u{85}", r"\u0000\u001b\u007f\u0085"),
            ("\u{202e}moc\u{2066}\u{2069}\u{200f}\u{2028}\u{61c}", r"\u202emoc\u2066\u2069\u200f\u2028\u061c"),
            ("é😀", "é😀"),
        ] {
            let mut out = Vec::new();
            escape(&mut out, text);
            assert_eq!(String::from_utf8(out.clone()).unwrap(), escaped);
            let json = [b"\"", &out[..], b"\""].concat();
            assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
        }
    }
}
