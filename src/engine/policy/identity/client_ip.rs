//! The client's address: the peer's address, or the address that trusted proxies report.
//!
//! Each proxy appends an entry to `X-Forwarded-For`, so trusted proxies write its right end. The first untrusted
//! address from the right is the client. The client itself may have written everything left of it.
//!
//! `Forwarded` grows likewise. Only one of the two headers is read: a proxy adds to the header that it knows, and
//! forwards the other as its client wrote it.
//!
//! Not here: the syntax of `Forwarded` (`forwarded`), and the PROXY protocol (`net`).

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::forwarded;
use crate::base::digits::push_address;
use crate::base::fields::Fields;

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";

/// The bytes of the longest text of an IPv4 network.
const IPV4_NETWORK_BYTES: usize = "255.255.255.255/32".len();

/// The header in which trusted proxies report the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressHeader {
    /// `X-Forwarded-For`, which most proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded` of RFC 7239.
    Forwarded,
}

impl AddressHeader {
    /// The name of the header, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => X_FORWARDED_FOR,
            Self::Forwarded => FORWARDED,
        }
    }
}

/// The number of entries that are read. A chain of trusted proxies has a few hops; a longer header only wastes
/// time.
const HOPS_MAX: usize = 64;

/// The rules for the client's address.
#[derive(Clone, Debug)]
pub struct ClientIpRules {
    /// Networks of trusted proxies.
    pub trusted: Vec<IpNet>,
    /// The header that trusted proxies write; the other header is not read.
    pub header: AddressHeader,
    /// The networks that count as one client.
    pub prefixes: Prefixes,
}

/// The lengths of the prefixes by which addresses count as one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefixes {
    /// Of an IPv4 address, 1 to 32.
    pub v4: u8,
    /// Of an IPv6 address, 1 to 128.
    pub v6: u8,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self { v4: 32, v6: 64 }
    }
}

impl Prefixes {
    /// Each address counts by itself.
    pub const WHOLE: Self = Self { v4: 32, v6: 128 };

    /// The first address of the network that counts as one client. IPv4-mapped addresses are IPv4.
    pub fn network(self, ip: IpAddr) -> IpAddr {
        match unmap(ip) {
            IpAddr::V4(ip) => IpAddr::V4(v4_network(ip, self.v4)),
            IpAddr::V6(ip) => IpAddr::V6(v6_network(ip, self.v6)),
        }
    }

    /// The network in text: `192.0.2.7` if it is one address, `192.0.2.0/24` otherwise.
    pub fn shown(self, ip: IpAddr) -> String {
        let mut text = String::new();
        self.write(&mut text, ip);
        text
    }

    /// Appends the text of [`shown`](Self::shown).
    pub fn write(self, out: &mut String, ip: IpAddr) {
        let network = self.network(ip);
        out.reserve(IPV4_NETWORK_BYTES);
        push_address(network, |piece| out.push_str(piece));
        let (length, whole) = if network.is_ipv4() { (self.v4, 32) } else { (self.v6, 128) };
        if length < whole {
            let _ = write!(out, "/{length}"); // writing to a string cannot fail
        }
    }

    /// The address that `text` names: an address, or a network of the length that counts as one client.
    pub fn parse(self, text: &str) -> Option<IpAddr> {
        let Some((address, length)) = text.split_once('/') else { return Some(unmap(text.parse().ok()?)) };
        let address = unmap(address.parse().ok()?);
        let own = if address.is_ipv4() { self.v4 } else { self.v6 };
        (length.parse() == Ok(own)).then_some(address)
    }
}

impl ClientIpRules {
    /// The client's address: the first address from the right that is no trusted proxy. IPv4-mapped addresses become
    /// IPv4.
    ///
    /// If all addresses are trusted, the result is the leftmost. An invalid entry ends the search at the hop that wrote
    /// it.
    pub fn client_ip(&self, peer: IpAddr, headers: Fields<'_>) -> IpAddr {
        let last = unmap(peer);
        if !self.is_trusted(last) {
            return last;
        }
        match self.header {
            AddressHeader::XForwardedFor => {
                let lines = headers.all(X_FORWARDED_FOR).rev();
                self.walk(last, lines.flat_map(|line| line.rsplit(|&byte| byte == b',')).map(address))
            }
            AddressHeader::Forwarded => {
                let lines = headers.all(FORWARDED).rev();
                let hops = lines.flat_map(forwarded::elements).map(forwarded::address);
                self.walk(last, hops.map(|hop| hop.map(unmap)))
            }
        }
    }

    /// The first untrusted address of `hops`, or the last valid one; `first` precedes all of them.
    fn walk(&self, first: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut last = first;
        for hop in hops.take(HOPS_MAX) {
            let Some(hop) = hop else { break };
            last = hop;
            if !self.is_trusted(hop) {
                break;
            }
        }
        last
    }

    /// Whether `peer` is a trusted proxy.
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        let peer = unmap(peer);
        self.trusted.iter().any(|net| net.contains(&peer))
    }
}

/// The network of an IPv4 address with a prefix of this length, at most 32.
pub(crate) fn v4_network(ip: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    Ipv4Addr::from_bits(ip.to_bits() & mask)
}

/// The network of an IPv6 address with a prefix of this length, at most 128.
pub(crate) fn v6_network(ip: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    Ipv6Addr::from_bits(ip.to_bits() & mask)
}

/// The IPv4 address in an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2); any other address unchanged.
pub fn unmap(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// Reads `1.2.3.4`, `1.2.3.4:55`, `::1`, `[::1]` or `[::1]:80`.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?.trim_ascii();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let ip = match bare {
        Some(inner) => inner.parse().map(IpAddr::V6).ok(),
        None => text.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip())),
    };
    ip.map(unmap)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::fields::FieldBuf;

    fn rules() -> ClientIpRules {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()).to_vec();
        ClientIpRules { trusted, header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() }
    }

    fn by_forwarded() -> ClientIpRules {
        ClientIpRules { header: AddressHeader::Forwarded, ..rules() }
    }

    fn headers(lines: &[&[u8]]) -> FieldBuf {
        lines.iter().map(|line| (X_FORWARDED_FOR, line)).collect()
    }

    #[test]
    fn addresses_by_x_forwarded_for() {
        let rows: &[(&str, &[&str], &str)] = &[
            // An untrusted peer is the client, whatever its headers.
            ("192.0.2.1", &["198.51.100.1"], "192.0.2.1"),
            ("::ffff:192.0.2.1", &["198.51.100.1"], "192.0.2.1"),
            ("2001:db8::1", &[], "2001:db8::1"),
            // A trusted peer without the header is the client.
            ("10.0.0.1", &[], "10.0.0.1"),
            ("::ffff:10.0.0.1", &[], "10.0.0.1"),
            // The search goes from the right, past trusted hops.
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6,198.51.100.1,10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.1, fd00::9, ::ffff:10.0.0.2"], "198.51.100.1"),
            // Lines join in order.
            ("10.0.0.1", &["6.6.6.6", "198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.1", "10.0.0.2, 10.0.0.3"], "198.51.100.1"),
            // If all hops are trusted, the leftmost is the client.
            ("10.0.0.1", &["10.0.0.4, 10.0.0.3", "10.0.0.2"], "10.0.0.4"),
            // Ports, brackets, white space, mapped addresses.
            ("10.0.0.1", &["198.51.100.1:55"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db8::7]:80"], "2001:db8::7"),
            ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
            ("10.0.0.1", &["\t 198.51.100.1 \t,  10.0.0.2:1 "], "198.51.100.1"),
            ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["[::ffff:198.51.100.1]:9"], "198.51.100.1"),
            // An invalid entry ends the search at the last valid hop.
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("10.0.0.1", &["6.6.6.6, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["6.6.6.6, _hidden, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["6.6.6.6,, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["6.6.6.6, é, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["6.6.6.6", ""], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1:"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1:99999"], "10.0.0.1"),
            ("10.0.0.1", &["[198.51.100.1]"], "10.0.0.1"),
            ("10.0.0.1", &["[2001:db8::7"], "10.0.0.1"),
            ("10.0.0.1", &["fe80::1%eth0"], "10.0.0.1"),
            ("10.0.0.1", &["010.0.0.1"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1 10.0.0.2"], "10.0.0.1"),
        ];
        for (peer, lines, client) in rows {
            let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
            let found = rules().client_ip(peer.parse().unwrap(), headers(&lines).fields());
            assert_eq!(found.to_string(), *client, "{peer} {lines:?}");
        }
    }

    #[test]
    fn addresses_by_forwarded() {
        let rows: &[(&str, &[&str], &str)] = &[
            ("192.0.2.1", &["for=198.51.100.1"], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["for=198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["for=6.6.6.6, for=198.51.100.1;proto=https, for=10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["for=6.6.6.6", "for=198.51.100.1", "for=10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["for=\"[2001:db8::7]:80\""], "2001:db8::7"),
            ("10.0.0.1", &["for=\"[::ffff:198.51.100.1]\""], "198.51.100.1"),
            ("10.0.0.1", &["for=10.0.0.4, for=\"[fd00::1]\""], "10.0.0.4"),
            // An element without an address ends the search.
            ("10.0.0.1", &["for=6.6.6.6, for=unknown"], "10.0.0.1"),
            ("10.0.0.1", &["for=6.6.6.6, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=6.6.6.6, proto=https, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=6.6.6.6,, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=6.6.6.6, for=10.0.0.3;for=10.0.0.4"], "10.0.0.1"),
            // A client leaves a quotation mark open, on the same line or on an earlier one.
            ("10.0.0.1", &["for=\", for=198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["for=\"", "for=198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["for=\"6.6.6.6, for=198.51.100.1, for=\"[fd00::1]\""], "198.51.100.1"),
        ];
        for (peer, lines, client) in rows {
            let headers: FieldBuf = lines.iter().map(|line| ("Forwarded", line)).collect();
            let found = by_forwarded().client_ip(peer.parse().unwrap(), headers.fields());
            assert_eq!(found.to_string(), *client, "{peer} {lines:?}");
        }
    }

    #[test]
    fn only_the_configured_header_is_read() {
        let both: FieldBuf =
            [("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.2")].into_iter().collect();
        for (rules, client) in [(rules(), "198.51.100.1"), (by_forwarded(), "198.51.100.2")] {
            assert_eq!(rules.client_ip("10.0.0.1".parse().unwrap(), both.fields()).to_string(), client);
        }
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        for (trusted_hops, client) in [(HOPS_MAX - 1, "6.6.6.6"), (HOPS_MAX, "10.0.0.9")] {
            let line = format!("6.6.6.6{}", ",10.0.0.9".repeat(trusted_hops));
            let found = rules().client_ip("10.0.0.1".parse().unwrap(), headers(&[line.as_bytes()]).fields());
            assert_eq!(found.to_string(), client, "{trusted_hops}");
            let line = format!("for=6.6.6.6{}", ",for=10.0.0.9".repeat(trusted_hops));
            let headers: FieldBuf = [(FORWARDED, line)].into_iter().collect();
            let found = by_forwarded().client_ip("10.0.0.1".parse().unwrap(), headers.fields());
            assert_eq!(found.to_string(), client, "{trusted_hops}");
        }
    }

    #[test]
    fn trusts_mapped_addresses_as_ipv4() {
        for (peer, trusted) in [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("11.0.0.1", false), ("fd12::", true)] {
            assert_eq!(rules().is_trusted(peer.parse().unwrap()), trusted, "{peer}");
        }
    }

    #[test]
    fn networks() {
        for (ip, (v4, v6), network_of) in [
            ("192.0.2.7", (32, 64), "192.0.2.7"),
            ("::ffff:192.0.2.7", (32, 64), "192.0.2.7"),
            ("::ffff:192.0.2.7", (24, 64), "192.0.2.0/24"),
            ("192.0.2.7", (30, 64), "192.0.2.4/30"),
            ("192.0.2.7", (1, 64), "128.0.0.0/1"),
            ("2001:db8:1:2:3:4:5:6", (32, 64), "2001:db8:1:2::/64"),
            ("2001:db8:1:2:3:4:5:6", (32, 128), "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", (32, 48), "2001:db8:1::/48"),
            ("2001:db8:1:2:3:4:5:6", (32, 1), "::/1"),
        ] {
            assert_eq!(Prefixes { v4, v6 }.shown(ip.parse().unwrap()), network_of, "{ip}/{v4}/{v6}");
        }
    }

    #[test]
    fn a_text_names_an_address_or_a_network_of_one_client() {
        for (text, address) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.0/24", Some("192.0.2.0")),
            ("192.0.2.7/24", Some("192.0.2.7")),
            ("::ffff:192.0.2.7", Some("192.0.2.7")),
            ("2001:db8::/64", Some("2001:db8::")),
            ("192.0.2.0/25", None),
            ("192.0.2.0/64", None),
            ("2001:db8::/24", None),
            ("192.0.2.0/", None),
            ("192.0.2.0/24/24", None),
            ("/24", None),
            ("", None),
        ] {
            let expected = address.map(|address| address.parse().unwrap());
            assert_eq!(Prefixes { v4: 24, v6: 64 }.parse(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_untrusted_peer_is_the_client(
            peer in any::<IpAddr>(),
            line in prop::collection::vec(prop_oneof![0x20_u8..0x7F, 0x80_u8..], 0..64),
        ) {
            prop_assume!(!rules().is_trusted(peer));
            prop_assert_eq!(rules().client_ip(peer, headers(&[&line]).fields()), unmap(peer));
        }

        /// Text left of the entry of a trusted proxy does not change the result.
        #[test]
        fn text_left_of_a_trusted_entry_is_ignored(client in any::<IpAddr>(), forged in "[ -~]{0,40}") {
            prop_assume!(!rules().is_trusted(client));
            let line = format!("{forged},{client}");
            prop_assert_eq!(rules().client_ip("10.0.0.1".parse().unwrap(), headers(&[line.as_bytes()]).fields()), unmap(client));
        }
    }
}
