//! Elements of `Forwarded` (RFC 7239, section 4), read from the right.
//!
//! Each proxy appends its element at the right end. The client may have written everything left of the trusted
//! elements, and may have left a quotation mark open there. So the parser reads from the right, and no text changes an
//! element to its right.
//!
//! Not here: which elements are trusted (`client_ip`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smallvec::SmallVec;

use crate::base::fields::{TOKEN, is};

/// The bytes of the longest valid node: an IPv6 address in brackets, and a port.
const NODE_BYTES_MAX: usize = 64;

/// The elements of a line, from right to left.
pub(super) fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest.take()?;
        let comma = last_comma(line);
        rest = comma.map(|comma| &line[..comma]);
        Some(&line[comma.map_or(0, |comma| comma + 1)..])
    })
}

/// The last comma outside quoted strings, for a reader from the right.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    for (at, &byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' if !is_escaped(line, at) => is_quoted = !is_quoted,
            b',' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether an odd number of backslashes precedes this byte. The backslashes before one quotation mark are counted once,
/// and no two marks share a backslash.
fn is_escaped(line: &[u8], at: usize) -> bool {
    line[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address in the `for` parameter of an element. `None` if it is `unknown`, obfuscated or invalid.
pub(super) fn address(element: &[u8]) -> Option<IpAddr> {
    node(str::from_utf8(&value(element, b"for")?).ok()?)
}

/// Whether the last element of a line, which the nearest proxy wrote, has the protocol `https`.
pub fn ends_with_https(line: &[u8]) -> bool {
    let proto = elements(line).next().and_then(|element| value(element, b"proto"));
    proto.is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"))
}

/// The value of a parameter of an element. `None` if the element is malformed.
fn value(element: &[u8], parameter: &[u8]) -> Option<ParameterValue> {
    let mut found = None;
    read(element, parameter, &mut found)?;
    found
}

/// The well-formed elements of a line, from right to left. An element with an open quotation mark or with bytes beyond
/// ASCII would hide the elements to its right from other readers.
pub fn well_formed(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_kept =
        |element: &&[u8]| !element.is_empty() && element.is_ascii() && read(element, b"for", &mut None).is_some();
    elements(line).map(<[u8]>::trim_ascii).filter(is_kept)
}

/// Parses an element and stores the value of `parameter` in `found`. `None` if the element is malformed.
fn read(element: &[u8], parameter: &[u8], found: &mut Option<ParameterValue>) -> Option<()> {
    let mut rest = element.trim_ascii();
    while !rest.is_empty() {
        // A pair may be empty, like an element of a list.
        if let Some(after) = rest.strip_prefix(b";") {
            rest = after.trim_ascii_start();
            continue;
        }
        let equals = memchr::memchr(b'=', rest)?;
        let (name, value) = (rest[..equals].trim_ascii(), rest[equals + 1..].trim_ascii_start());
        let (value, after) = if value.starts_with(b"\"") { quoted(value)? } else { bare(value)? };
        if name.is_empty() || !name.iter().all(|&byte| is(byte, TOKEN)) {
            return None;
        }
        if name.eq_ignore_ascii_case(parameter) && found.replace(value).is_some() {
            return None; // each parameter at most once
        }
        rest = after.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b";") {
            return None;
        }
    }
    Some(())
}

type ParameterValue = SmallVec<[u8; NODE_BYTES_MAX]>;

/// A quoted string and the text after it.
fn quoted(text: &[u8]) -> Option<(ParameterValue, &[u8])> {
    let (mut value, mut at) = (ParameterValue::new(), 1);
    loop {
        match *text.get(at)? {
            b'"' => return Some((value, &text[at + 1..])),
            b'\\' => {
                at += 1;
                value.push(*text.get(at)?);
            }
            byte => value.push(byte),
        }
        at += 1;
    }
}

/// A value without quotes and the text after it. It accepts tokens, and also addresses with a port or in brackets,
/// which should be quoted and often are not.
fn bare(text: &[u8]) -> Option<(ParameterValue, &[u8])> {
    let end = text.iter().position(|byte| matches!(byte, b';' | b' ' | b'\t')).unwrap_or(text.len());
    let (value, after) = text.split_at(end);
    let is_value = |byte: u8| is(byte, TOKEN) || matches!(byte, b':' | b'[' | b']');
    (!value.is_empty() && value.iter().all(|&byte| is_value(byte))).then(|| (ParameterValue::from_slice(value), after))
}

/// The address of a node (RFC 7239, section 6): IPv4, or IPv6 in brackets, with or without a port.
fn node(text: &str) -> Option<IpAddr> {
    if text.len() > NODE_BYTES_MAX {
        return None;
    }
    let (ip, port) = if let Some(rest) = text.strip_prefix('[') {
        let (ip, port) = rest.split_once(']')?;
        (ip.parse::<Ipv6Addr>().ok()?.into(), port)
    } else {
        let (ip, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        (ip.parse::<Ipv4Addr>().ok()?.into(), port)
    };
    is_port(port).then_some(ip)
}

/// Whether the text is empty, or a colon and a port: up to five digits, or an obfuscated port.
fn is_port(text: &str) -> bool {
    let Some(port) = text.strip_prefix(':') else { return text.is_empty() };
    let is_obfuscated = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match port.strip_prefix('_') {
        Some(rest) => !rest.is_empty() && rest.bytes().all(is_obfuscated),
        None => (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_of_elements() {
        for (element, expected) in [
            ("for=192.0.2.60", Some("192.0.2.60")),
            ("For=192.0.2.60;proto=http;by=203.0.113.43", Some("192.0.2.60")),
            (" proto=http ; FOR=192.0.2.60 ", Some("192.0.2.60")),
            ("by=10.0.0.1;for=\"[2001:db8:cafe::17]:4711\"", Some("2001:db8:cafe::17")),
            ("for=\"[2001:db8::1]\"", Some("2001:db8::1")),
            ("for=\"192.0.2.43:47011\"", Some("192.0.2.43")),
            ("for=\"192.0.2.43:_gazonk\"", Some("192.0.2.43")),
            ("for=\"\\1\\92.0.2.43\"", Some("192.0.2.43")),
            ("host=\"a,b;for=9.9.9.9\";for=192.0.2.1", Some("192.0.2.1")),
            ("host=\"a\\\";for=9.9.9.9\";for=192.0.2.1", Some("192.0.2.1")),
            (";;for=192.0.2.1;", Some("192.0.2.1")),
            // Invalid in the RFC, but frequent.
            ("for=192.0.2.43:80", Some("192.0.2.43")),
            ("for=[2001:db8::1]", Some("2001:db8::1")),
            // No address.
            ("for=unknown", None),
            ("for=\"unknown:80\"", None),
            ("for=_hidden", None),
            ("for=\"_SEVKISEK\"", None),
            ("proto=http;by=203.0.113.43", None),
            ("", None),
            (";", None),
            // Malformed.
            ("for=192.0.2.1;for=192.0.2.2", None),
            ("for=192.0.2.1;FOR=192.0.2.1", None),
            ("for", None),
            ("for=", None),
            ("for=\"\"", None),
            ("for=\"192.0.2.1", None),
            ("for=192.0.2.1\"", None),
            ("for=\"192.0.2.1\"x", None),
            ("for=\"192.0.2.1\\", None),
            ("for=192.0.2.1 for=192.0.2.2", None),
            ("=192.0.2.1;for=192.0.2.1", None),
            ("x y=1;for=192.0.2.1", None),
            ("for=2001:db8::1", None),
            ("for=\"2001:db8::1\"", None),
            ("for=\"[2001:db8::1\"", None),
            ("for=\"[192.0.2.1]\"", None),
            ("for=\"[fe80::1%eth0]\"", None),
            ("for=192.0.2.1:", None),
            ("for=192.0.2.1:123456", None),
            ("for=192.0.2.1:_", None),
            ("for=010.0.2.1", None),
            ("for=192.0.2.1\u{e9}", None),
        ] {
            assert_eq!(address(element.as_bytes()), expected.map(|ip| ip.parse().unwrap()), "{element}");
        }
    }

    #[test]
    fn elements_come_from_the_right() {
        for (line, expected) in [
            ("", &[""][..]),
            ("for=1", &["for=1"]),
            ("a, b,c", &["c", " b", "a"]),
            ("for=\"a,b\", c", &[" c", "for=\"a,b\""]),
            ("for=\"a\\\",b\",c", &["c", "for=\"a\\\",b\""]),
            ("for=\"a,\\\"b\",c", &["c", "for=\"a,\\\"b\""]),
            ("for=\"a,b\\\\\",c", &["c", "for=\"a,b\\\\\""]),
            // An open quotation mark of the client does not change later elements.
            ("for=\", for=192.0.2.1", &[" for=192.0.2.1", "for=\""]),
            ("for=\", for=\"[::1]\", c=\"d,e\"", &[" c=\"d,e\"", " for=\"[::1]\"", "for=\""]),
            ("\\\", c", &[" c", "\\\""]),
        ] {
            let found: Vec<_> = elements(line.as_bytes()).map(|element| String::from_utf8_lossy(element)).collect();
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn malformed_elements_are_left_out() {
        for (line, expected) in [
            ("for=192.0.2.1, for=unknown;proto=https", &["for=unknown;proto=https", "for=192.0.2.1"][..]),
            ("for=\", for=192.0.2.1", &["for=192.0.2.1"]),
            ("for=\u{e9}, for=192.0.2.1", &["for=192.0.2.1"]),
            ("for=\"\u{e9}\", by=\"a,b\"", &["by=\"a,b\""]),
            ("nothing, for=192.0.2.1, ,", &["for=192.0.2.1"]),
            ("for=1;for=2, for=\"192.0.2.1\\", &[]),
        ] {
            let found: Vec<_> = well_formed(line.as_bytes()).map(String::from_utf8_lossy).collect();
            assert_eq!(found, expected, "{line}");
        }
    }

    proptest! {
        /// Text left of a comma does not change the element after it.
        #[test]
        fn text_to_the_left_does_not_change_an_element(left in "[ -~]{0,40}", ip in any::<IpAddr>(), port in prop::option::of(any::<u16>())) {
            let mut node = if ip.is_ipv4() { ip.to_string() } else { format!("[{ip}]") };
            if let Some(port) = port {
                node = format!("{node}:{port}");
            }
            let line = format!("{left}, proto=https;for=\"{node}\";by=\"_a,b\"");
            prop_assert_eq!(elements(line.as_bytes()).next().and_then(address), Some(ip));
        }

        #[test]
        fn never_panics(line in prop::collection::vec(any::<u8>(), 0..80)) {
            for element in elements(&line) {
                let _ = address(element);
            }
        }

        /// Every byte of a line belongs to an element or is a comma between two.
        #[test]
        fn elements_cover_the_line(line in "[\"\\\\,a;=]{0,20}") {
            let mut all: Vec<_> = elements(line.as_bytes()).collect();
            all.reverse();
            prop_assert_eq!(all.join(&b','), line.as_bytes());
        }
    }
}
