//! Hosts and ports as text: their syntax, and the form in which hosts are compared.
//!
//! Not here: the choice between several hosts in a request.

use std::borrow::Cow;

use crate::base::fields::decimal;

/// The host in lower case, without port and final dot.
pub fn host(authority: &str) -> Cow<'_, str> {
    let bytes = authority.as_bytes();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let colon = (bytes.len() - digits).checked_sub(1).filter(|&at| bytes[at] == b':');
    let host = colon.map_or(authority, |at| &authority[..at]);
    let host = host.strip_suffix('.').unwrap_or(host); // a final dot names the root of the DNS
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// Whether this is `uri-host [ ":" port ]` (RFC 3986, section 3.2), without user information.
///
/// Stricter than `reg-name`: an escape would be a second spelling of a host, and `,` and `;` are separators in the
/// headers that tell the upstream the host.
pub fn is_authority(text: &str) -> bool {
    let bytes = text.as_bytes();
    let host_len = if let [b'[', rest @ ..] = bytes {
        let len = rest.iter().take_while(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte)).count();
        if len == 0 || rest.get(len) != Some(&b']') {
            return false;
        }
        len + 2
    } else {
        let len = bytes.iter().take_while(|&&byte| HOST_BYTES[usize::from(byte)]).count();
        let host = &bytes[..len];
        if host.is_empty() || host == b"." || has_empty_label(host) {
            return false;
        }
        len
    };
    match &bytes[host_len..] {
        [] | [b':'] => true,
        [b':', digits @ ..] => decimal(digits).is_some_and(|port| u16::try_from(port).is_ok()),
        _ => false,
    }
}

/// Whether a byte may be in a host that is not an IP literal in brackets.
const HOST_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

fn has_empty_label(host: &[u8]) -> bool {
    host.array_windows().any(|pair| pair == b"..")
}

#[cfg(test)]
mod tests {
    use super::{host, is_authority};

    #[test]
    fn an_authority_is_a_host_and_maybe_a_port() {
        for text in ["a", "a.b", "a.", "a:", "a:0", "a:65535", "A-b_c~d.e:80", "[::1]", "[::1]:80", "[::ffff:1.2.3.4]:"]
        {
            assert!(is_authority(text), "{text}");
        }
        for text in [
            "", ".", ":80", "..", "a..b", ".a..", "a:65536", "a:b", "a:-1", "u@a", "a,b", "a;b", "a%62", "a/b", "a b",
            "\u{e9}", "[]", "[::1", "[::1]a", "[::g]", "::1", "[::1]:x",
        ] {
            assert!(!is_authority(text), "{text}");
        }
    }

    #[test]
    fn hosts_are_compared_in_one_form() {
        for (authority, expected) in [
            ("a.b", "a.b"),
            ("A.b.:80", "a.b"),
            ("a:", "a"),
            ("a80", "a80"),
            ("80", "80"),
            ("[::1]:80", "[::1]"),
            ("[FE80::1]", "[fe80::1]"),
        ] {
            assert_eq!(host(authority), expected, "{authority}");
        }
    }
}
