//! Which host a request is for, said once and without doubt (RFC 9112, section 3.2; RFC 9113, section 8.3.1).

use std::borrow::Cow;

use super::request::{Protocol, Request};

/// What is wrong with a request's host; the text is for the client.
pub(super) type BadHost = &'static str;

/// The host and port as sent; empty if an HTTP/1.0 request names none.
pub(super) fn authority<'b>(request: &Request<'b>) -> Result<&'b str, BadHost> {
    let mut lines = request.fields.all("host");
    let line = lines.next().map(|value| str::from_utf8(value).map_err(|_| "the host has characters that no host has"));
    if lines.next().is_some() {
        return Err("more than one host");
    }
    let authority = match (line.transpose()?, request.target.authority) {
        (Some(line), Some(target)) if !line.eq_ignore_ascii_case(target) => {
            return Err("the host is not that of the target");
        }
        (Some(authority), _) | (None, Some(authority)) => authority,
        (None, None) if request.protocol == Protocol::Http10 => return Ok(""),
        (None, None) => return Err("no host"),
    };
    if is_authority(authority) { Ok(authority) } else { Err("the host has characters that no host has") }
}

/// The host alone, lower-cased, without port and final dot.
pub(super) fn host(authority: &str) -> Cow<'_, str> {
    let bytes = authority.as_bytes();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let colon = (bytes.len() - digits).checked_sub(1).filter(|&at| bytes[at] == b':');
    let host = colon.map_or(authority, |at| &authority[..at]);
    let host = host.strip_suffix('.').unwrap_or(host); // the same name, written to its root
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// Whether this is `uri-host [ ":" port ]` (RFC 3986, section 3.2), without user information.
///
/// Narrower than `reg-name`: an escape would be a second spelling of a host, and `,` and `;` separate things in
/// the headers that tell the upstream of it.
fn is_authority(text: &str) -> bool {
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
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit) && text[host_len + 1..].parse::<u16>().is_ok(),
        _ => false,
    }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn has_empty_label(host: &[u8]) -> bool {
    host.array_windows().any(|pair| pair == b"..")
}
