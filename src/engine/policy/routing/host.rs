//! Hosts and ports as text: their syntax, and the form in which hosts are compared.
//!
//! Not here: the choice between several hosts in a request.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use crate::base::fields::decimal;

/// The host in lower case, without port and final dot. An IPv6 address has the form of RFC 5952.
pub fn host(authority: &str) -> Cow<'_, str> {
    let bytes = authority.as_bytes();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let colon = (bytes.len() - digits).checked_sub(1).filter(|&at| bytes[at] == b':');
    let host = colon.map_or(authority, |at| &authority[..at]);
    let host = host.strip_suffix('.').unwrap_or(host); // a final dot names the root of the DNS
    if let Some(ip) = ipv6(host) {
        return Cow::Owned(format!("[{ip}]"));
    }
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// The IPv6 address in brackets at the start of an authority.
fn ipv6(authority: &str) -> Option<Ipv6Addr> {
    authority.strip_prefix('[')?.split_once(']')?.0.parse().ok()
}

/// Whether this is `uri-host [ ":" port ]` (RFC 3986, section 3.2), without user information.
///
/// Stricter than `reg-name`: an escape would be a second spelling of a host, and `,` and `;` are separators in the
/// headers that tell the upstream the host.
pub fn is_authority(text: &str) -> bool {
    let bytes = text.as_bytes();
    let host_len = if bytes.first() == Some(&b'[') {
        if ipv6(text).is_none() {
            return false;
        }
        text.find(']').map_or(0, |end| end + 1)
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
        let short = [
            "", ".", ":80", "..", "a..b", ".a..", "a:65536", "a:b", "a:-1", "u@a", "a,b", "a;b", "a%62", "a/b", "a b",
            "\u{e9}", "[]", "[::1", "[::1]a", "[::g]", "::1", "[::1]:x", "[1]",
        ];
        for text in short.into_iter().chain(["[1.2.3.4]", "[::00001]", "[::1%lo]"]) {
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
            ("[fe80:0::0001]:80", "[fe80::1]"),
            ("[0:0:0:0:0:ffff:0102:304]", "[::ffff:1.2.3.4]"),
        ] {
            assert_eq!(host(authority), expected, "{authority}");
        }
    }
}
