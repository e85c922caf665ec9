//! `HAProxy`'s PROXY protocol: a header before a connection with the address of its client.
//!
//! Versions 1 and 2, parsed strictly. The result does not depend on the boundaries of reads, and an error is found at
//! its first byte. Of version 2 only the addresses are used, not the extensions after them.
//!
//! Not here: which peers may send a header.

use std::fmt::Display;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::base::fields::decimal;

/// Bytes of a header of version 1, with its line end.
pub const V1_BYTES_MAX: usize = 107;
/// Bytes of a header of version 2. The format allows 65 551; the addresses need 52 at most, and usual extensions some
/// hundred.
pub const V2_BYTES_MAX: usize = 4096;

const V1_BEGIN: &[u8] = b"PROXY ";
const V2_BEGIN: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the addresses: signature, version and command, family, length.
const V2_FIXED: usize = V2_BEGIN.len() + 4;

/// A complete and valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length in bytes.
    pub len: usize,
    /// Address of the client. None if the proxy connects for itself, or the family of the address is not supported.
    pub source: Option<SocketAddr>,
}

/// The fault of a header, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFault(pub &'static str);

/// Parses the header at the start of `bytes`. `None` if it is incomplete and valid so far.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderFault> {
    let begins = |begin: &[u8]| begin.starts_with(&bytes[..bytes.len().min(begin.len())]);
    if begins(V1_BEGIN) {
        parse_v1(bytes)
    } else if begins(V2_BEGIN) {
        parse_v2(bytes)
    } else {
        Err(HeaderFault("no PROXY header"))
    }
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 4711 80`, or `PROXY UNKNOWN` and any text.
fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, HeaderFault> {
    let seen = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', seen) else {
        return if seen.len() < V1_BYTES_MAX { Ok(None) } else { Err(HeaderFault("the line is too long")) };
    };
    let line = seen[..end].strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok());
    let line = line.filter(|line| !line.contains('\r')).ok_or(HeaderFault("the line is not text"))?;
    let mut words = line.split(' ').skip(1);
    let source = match words.next() {
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(v1_source::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(v1_source::<Ipv6Addr>(words)?),
        _ => return Err(HeaderFault("the address family is unknown")),
    };
    Ok(Some(Header { len: end + 1, source }))
}

/// All four words must be valid.
fn v1_source<'a, A>(mut words: impl Iterator<Item = &'a str>) -> Result<SocketAddr, HeaderFault>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut next = || words.next().ok_or(HeaderFault("too few words"));
    let (source, destination, port, other_port) = (next()?, next()?, next()?, next()?);
    if words.next().is_some() {
        return Err(HeaderFault("too many words"));
    }
    let ip = |text: &str| text.parse::<A>().map_err(|_| HeaderFault("an address is invalid"));
    let (source, _) = (ip(source)?, ip(destination)?);
    let (port, _) = (v1_port(port)?, v1_port(other_port)?);
    Ok(SocketAddr::new(source.into(), port))
}

/// Digits without a sign or a leading zero.
fn v1_port(text: &str) -> Result<u16, HeaderFault> {
    let is_clean = text == "0" || !text.starts_with('0');
    let port = decimal(text.as_bytes()).and_then(|port| u16::try_from(port).ok());
    port.filter(|_| is_clean).ok_or(HeaderFault("a port is invalid"))
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, HeaderFault> {
    let is_local = match bytes.get(V2_BEGIN.len()) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(HeaderFault("the version or the command is unknown")),
    };
    let Some(&[family, high, low]) = bytes.get(V2_FIXED - 3..V2_FIXED).and_then(|rest| rest.first_chunk::<3>()) else {
        return Ok(None);
    };
    let len = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if len > V2_BYTES_MAX {
        return Err(HeaderFault("the header is too long"));
    }
    // The proxy connects for itself; the rest is skipped.
    let size = match family {
        _ if is_local => 0,
        UNSPECIFIED => 0,
        TCP4 => 12,
        TCP6 => 36,
        UNIX => 216,
        _ => return Err(HeaderFault("the address family is unknown")),
    };
    if len - V2_FIXED < size {
        return Err(HeaderFault("the header is too short for its addresses"));
    }
    let Some(header) = bytes.get(..len) else { return Ok(None) };
    let source = if is_local { None } else { v2_source(family, &header[V2_FIXED..]) };
    Ok(Some(Header { len, source }))
}

const UNSPECIFIED: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const UNIX: u8 = 0x31;

/// Both addresses, then both ports.
fn v2_source(family: u8, addresses: &[u8]) -> Option<SocketAddr> {
    let port = |at: usize| Some(u16::from_be_bytes(*addresses.get(at..)?.first_chunk()?));
    match family {
        TCP4 => Some(SocketAddr::new(Ipv4Addr::from(*addresses.first_chunk::<4>()?).into(), port(8)?)),
        TCP6 => Some(SocketAddr::new(Ipv6Addr::from(*addresses.first_chunk::<16>()?).into(), port(32)?)),
        _ => None,
    }
}

/// The version of a header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

/// Writes the header of a connection between two addresses. If only one is IPv4, it is written as IPv6.
pub(crate) fn write(out: &mut Vec<u8>, version: Version, source: SocketAddr, destination: SocketAddr) {
    let ports = (source.port(), destination.port());
    match (version, source.ip(), destination.ip()) {
        (Version::V1, IpAddr::V4(from), IpAddr::V4(to)) => write_v1(out, "TCP4", from, to, ports),
        (Version::V1, from, to) => write_v1(out, "TCP6", mapped(from), mapped(to), ports),
        (Version::V2, IpAddr::V4(from), IpAddr::V4(to)) => write_v2(out, TCP4, &from.octets(), &to.octets(), ports),
        (Version::V2, from, to) => write_v2(out, TCP6, &mapped(from).octets(), &mapped(to).octets(), ports),
    }
}

/// The header of a connection that Weir opens for itself.
pub(crate) fn local(version: Version) -> &'static [u8] {
    match version {
        Version::V1 => b"PROXY UNKNOWN\r\n",
        Version::V2 => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    }
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// A write to memory does not fail.
fn write_v1(out: &mut Vec<u8>, kind: &str, from: impl Display, to: impl Display, ports: (u16, u16)) {
    let _ = write!(out, "PROXY {kind} {from} {to} {} {}\r\n", ports.0, ports.1);
}

fn write_v2(out: &mut Vec<u8>, family: u8, from: &[u8], to: &[u8], ports: (u16, u16)) {
    let len = from.len() + to.len() + 4;
    out.extend_from_slice(V2_BEGIN);
    out.extend_from_slice(&[0x21, family, 0, u8::try_from(len).unwrap_or(u8::MAX)]);
    out.extend_from_slice(from);
    out.extend_from_slice(to);
    out.extend_from_slice(&ports.0.to_be_bytes());
    out.extend_from_slice(&ports.1.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proxy_header::{ProxiedAddress, ProxyHeader};

    use super::*;

    /// Parses all prefixes: the result does not depend on the boundaries of reads, nor on the bytes after the header.
    fn read(bytes: &[u8]) -> Result<Option<Header>, HeaderFault> {
        let whole = parse(bytes);
        for cut in 0..bytes.len() {
            match (parse(&bytes[..cut]), &whole) {
                (Ok(None), _) => {}
                (Ok(Some(early)), Ok(Some(header))) => assert!(early == *header && cut >= header.len),
                (early, whole) => assert_eq!(&early, whole, "cut at {cut}"),
            }
        }
        if let Ok(Some(header)) = whole {
            assert_eq!(parse(&[&bytes[..header.len], b"GET /\n"].concat()), whole);
        }
        whole
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [V2_BEGIN, &[command, family], &len, rest].concat()
    }

    #[test]
    fn valid_lines() {
        let rows = [
            ("PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n", Some("192.0.2.1:4711")),
            ("PROXY TCP6 2001:db8::1 ::1 65535 0\r\n", Some("[2001:db8::1]:65535")),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", Some("[::ffff:192.0.2.1]:1")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN 192.0.2.1 \u{e4} ? 1\r\n", None),
        ];
        for (line, source) in rows {
            let source = source.map(|source| source.parse().unwrap());
            assert_eq!(read(line.as_bytes()), Ok(Some(Header { len: line.len(), source })), "{line}");
        }
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_BYTES_MAX - 16));
        assert!(read(longest.as_bytes()).unwrap().is_some());
    }

    #[test]
    fn invalid_lines() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXYxTCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 -2\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP6 fe80::1%lo ::1 1 2\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UNKNOWNX\r\n",
            "PROXY \r\n",
            "PROXY\r\n",
        ] {
            assert!(read(line.as_bytes()).is_err(), "{line}");
        }
        assert!(read(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 \xff\r\n").is_err());
        let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_BYTES_MAX - 15));
        assert!(read(too_long.as_bytes()).is_err());
        assert!(read(&too_long.as_bytes()[..V1_BYTES_MAX]).is_err());
    }

    #[test]
    fn valid_blocks() {
        let (v4, v6) = ([192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x67, 0, 80], [0xfd; 36]);
        let with_more = [&v4[..], &[4, 0, 1, 0]].concat();
        let long = vec![0; V2_BYTES_MAX - V2_FIXED];
        let (first, second) = (Some("192.0.2.1:4711"), Some("[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:65021"));
        let rows: &[(u8, u8, &[u8], Option<&str>)] = &[
            (0x21, TCP4, &v4, first),
            (0x21, TCP4, &with_more, first),
            (0x21, TCP6, &v6, second),
            (0x21, UNSPECIFIED, b"", None),
            (0x21, UNSPECIFIED, &long, None),
            (0x21, UNIX, &[1; 216], None),
            // The proxy connects for itself: the rest is ignored.
            (0x20, UNSPECIFIED, b"", None),
            (0x20, TCP4, &v4, None),
            (0x20, TCP4, b"", None),
            (0x20, 0xff, b"?", None),
        ];
        for (command, family, rest, source) in rows {
            let bytes = v2(*command, *family, rest);
            let source = source.map(|source| source.parse().unwrap());
            assert_eq!(read(&bytes), Ok(Some(Header { len: bytes.len(), source })), "{bytes:?}");
        }
    }

    #[test]
    fn invalid_blocks() {
        let rows: &[(u8, u8, &[u8])] = &[
            (0x11, TCP4, &[0; 12]),
            (0x31, TCP4, &[0; 12]),
            (0x22, TCP4, &[0; 12]),
            (0x21, TCP4, &[0; 11]),
            (0x21, TCP6, &[0; 35]),
            (0x21, UNIX, &[0; 215]),
            (0x21, 0x12, &[0; 12]),
            (0x21, 0x22, &[0; 36]),
            (0x21, 0x13, &[0; 12]),
            (0x21, 0x41, &[0; 12]),
            (0x21, TCP4, &[0; V2_BYTES_MAX - V2_FIXED + 1]),
            (0x20, UNSPECIFIED, &vec![0; 65535]),
        ];
        for (command, family, rest) in rows {
            assert!(read(&v2(*command, *family, rest)).is_err(), "{command} {family} {}", rest.len());
        }
        let mut bad = v2(0x21, TCP4, &[0; 12]);
        bad[11] = b'\r';
        assert!(read(&bad).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_do_not_panic(begin in 0..3_usize, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let begin = [&b""[..], V1_BEGIN, V2_BEGIN][begin];
            let _ = read(&[begin, &bytes].concat());
        }

        /// Another implementation reads the written header.
        #[test]
        fn written_headers_are_read(source: SocketAddr, destination: SocketAddr, is_v1: bool) {
            let mut bytes = Vec::new();
            write(&mut bytes, if is_v1 { Version::V1 } else { Version::V2 }, source, destination);
            let header = read(&bytes).unwrap().unwrap();
            let is_same = |found: SocketAddr, wanted: SocketAddr| {
                (found.ip().to_canonical(), found.port()) == (wanted.ip().to_canonical(), wanted.port())
            };
            prop_assert!(header.len == bytes.len() && is_same(header.source.unwrap(), source));
            let (other, len) = ProxyHeader::parse(&bytes, proxy_header::ParseConfig::default()).unwrap();
            let other = other.proxied_address().unwrap();
            prop_assert!(len == bytes.len() && is_same(other.source, source) && is_same(other.destination, destination));
        }

        /// A header of another implementation is read.
        #[test]
        fn headers_of_others_are_read(source: SocketAddr, destination: SocketAddr, is_v1: bool) {
            let header = ProxyHeader::with_address(ProxiedAddress::stream(source, destination));
            let mut bytes = [0; 512];
            let len = if is_v1 { header.encode_to_slice_v1(&mut bytes) } else { header.encode_to_slice_v2(&mut bytes) };
            // It writes nothing for two families.
            if let Ok(len) = len {
                let source = SocketAddr::new(source.ip(), source.port());
                prop_assert_eq!(read(&bytes[..len]), Ok(Some(Header { len, source: Some(source) })));
            }
        }
    }
}
