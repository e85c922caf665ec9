//! Whose address: the peer's, or the one that trusted proxies say is behind it.
//!
//! `X-Forwarded-For` grows to the right, one entry per proxy, so only its right end is written by those we
//! trust; whatever stands left of the first untrusted address is the client's own invention.
//!
//! `Forwarded` does too. One of the two is believed, not both: a proxy adds to the one that it knows and passes on the
//! other as its client wrote it.
//!
//! Not here: what an element of `Forwarded` looks like (`forwarded`), and the PROXY protocol (`proxy`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::forwarded;
use crate::fields::Fields;

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";

/// The header by which trusted proxies say whom they serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressHeader {
    /// The one that most write.
    #[default]
    XForwardedFor,
    /// That of RFC 7239.
    Forwarded,
}

/// Entries that are looked at. A chain of trusted proxies is a few hops long; what is
/// beyond this is an attempt to make us read.
const HOPS_MAX: usize = 64;

/// Whose word about the client's address is taken.
#[derive(Clone, Debug)]
pub struct ClientIpRules {
    /// Proxies whose word is taken.
    pub trusted: Vec<IpNet>,
    /// Where they give it; the other header is nobody's word.
    pub header: AddressHeader,
    /// Bits of an IPv6 address that name a client.
    pub ipv6_prefix: u8,
}

impl ClientIpRules {
    /// The client's address, IPv4 if it is one: the first from the right that is not a trusted proxy.
    ///
    /// If all are trusted it is the leftmost. An entry that is no address ends the walk at the hop that wrote it.
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

    /// The first of `hops` that is not trusted, or the last good one; `first` was before all of them.
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

    /// Whether `peer` is one of the trusted proxies.
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        let peer = unmap(peer);
        self.trusted.iter().any(|net| net.contains(&peer))
    }
}

/// The network that counts as one client: an IPv4 address is one, an IPv6 address goes by its first bits.
pub fn network(ip: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match unmap(ip) {
        IpAddr::V6(ip) => IpAddr::V6(v6_network(ip, ipv6_prefix)),
        IpAddr::V4(ip) => IpAddr::V4(ip),
    }
}

/// The network of an IPv6 address whose prefix has this many bits, at most 128.
pub(crate) fn v6_network(ip: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    Ipv6Addr::from_bits(ip.to_bits() & mask)
}

/// The IPv4 address inside an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2); any other as it is.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields::FieldBuf;

    fn rules() -> ClientIpRules {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()).to_vec();
        ClientIpRules { trusted, header: AddressHeader::XForwardedFor, ipv6_prefix: 64 }
    }

    fn by_forwarded() -> ClientIpRules {
        ClientIpRules { header: AddressHeader::Forwarded, ..rules() }
    }

    fn headers(lines: &[&[u8]]) -> FieldBuf {
        lines.iter().map(|line| (X_FORWARDED_FOR, line)).collect()
    }

    #[test]
    fn walks() {
        let rows: &[(&str, &[&str], &str)] = &[
            // An untrusted peer is the client, whatever it says.
            ("192.0.2.1", &["198.51.100.1"], "192.0.2.1"),
            ("::ffff:192.0.2.1", &["198.51.100.1"], "192.0.2.1"),
            ("2001:db8::1", &[], "2001:db8::1"),
            // A trusted peer without the header is the client itself.
            ("10.0.0.1", &[], "10.0.0.1"),
            ("::ffff:10.0.0.1", &[], "10.0.0.1"),
            // From the right, past trusted hops.
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6,198.51.100.1,10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.1, fd00::9, ::ffff:10.0.0.2"], "198.51.100.1"),
            // Lines join in order.
            ("10.0.0.1", &["6.6.6.6", "198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.1", "10.0.0.2, 10.0.0.3"], "198.51.100.1"),
            // All trusted: the leftmost.
            ("10.0.0.1", &["10.0.0.4, 10.0.0.3", "10.0.0.2"], "10.0.0.4"),
            // Ports, brackets, white space, mapped addresses.
            ("10.0.0.1", &["198.51.100.1:55"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db8::7]:80"], "2001:db8::7"),
            ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
            ("10.0.0.1", &["\t 198.51.100.1 \t,  10.0.0.2:1 "], "198.51.100.1"),
            ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["[::ffff:198.51.100.1]:9"], "198.51.100.1"),
            // What is no address ends the walk at the last good hop.
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
    fn walks_over_forwarded() {
        let rows: &[(&str, &[&str], &str)] = &[
            ("192.0.2.1", &["for=198.51.100.1"], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["for=198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["for=6.6.6.6, for=198.51.100.1;proto=https, for=10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["for=6.6.6.6", "for=198.51.100.1", "for=10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["for=\"[2001:db8::7]:80\""], "2001:db8::7"),
            ("10.0.0.1", &["for=\"[::ffff:198.51.100.1]\""], "198.51.100.1"),
            ("10.0.0.1", &["for=10.0.0.4, for=\"[fd00::1]\""], "10.0.0.4"),
            // What says nothing of an address ends the walk.
            ("10.0.0.1", &["for=6.6.6.6, for=unknown"], "10.0.0.1"),
            ("10.0.0.1", &["for=6.6.6.6, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=6.6.6.6, proto=https, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=6.6.6.6,, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["for=6.6.6.6, for=10.0.0.3;for=10.0.0.4"], "10.0.0.1"),
            // A client that leaves a mark open, on the same line or on one before it.
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
    fn one_header_is_believed() {
        let both: FieldBuf =
            [("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.2")].into_iter().collect();
        for (rules, client) in [(rules(), "198.51.100.1"), (by_forwarded(), "198.51.100.2")] {
            assert_eq!(rules.client_ip("10.0.0.1".parse().unwrap(), both.fields()).to_string(), client);
        }
    }

    #[test]
    fn looks_at_so_many_entries() {
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
        for (ip, prefix, network_of) in [
            ("192.0.2.7", 64, "192.0.2.7"),
            ("::ffff:192.0.2.7", 64, "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
            ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::"),
            ("2001:db8:1:2:3:4:5:6", 1, "::"),
        ] {
            assert_eq!(network(ip.parse().unwrap(), prefix).to_string(), network_of, "{ip}/{prefix}");
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

        /// What a client writes in front of the entry of a trusted proxy changes nothing.
        #[test]
        fn the_left_end_is_not_believed(client in any::<IpAddr>(), forged in "[ -~]{0,40}") {
            prop_assume!(!rules().is_trusted(client));
            let line = format!("{forged},{client}");
            prop_assert_eq!(rules().client_ip("10.0.0.1".parse().unwrap(), headers(&[line.as_bytes()]).fields()), unmap(client));
        }
    }
}
