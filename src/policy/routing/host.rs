//! Hosts and ports as text: their syntax, and the form in which hosts are compared.
//!
//! Not here: the choice between several hosts in a request.

use std::borrow::Cow;

use crate::fields::decimal;

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
        let len = bytes.iter().take_while(|&&byte| is_host_byte(byte)).count();
        if len == 0 || text[..len] == *"." || has_empty_label(&bytes[..len]) {
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

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn has_empty_label(host: &[u8]) -> bool {
    host.array_windows().any(|pair| pair == b"..")
}
