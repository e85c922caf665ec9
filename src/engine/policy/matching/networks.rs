//! Networks of clients, found by a binary search, so that a list of 100,000 costs about as much as a short one.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Networks of clients. A network within another one of them is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Arc<[IpNet]>);

impl FromIterator<IpNet> for Networks {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Self {
        let mut all: Vec<_> = networks.into_iter().map(|network| network.trunc()).collect();
        // A network is before those within it: its first address is not above theirs, and its prefix is shorter.
        all.sort_unstable();
        all.dedup_by(|later, earlier| earlier.contains(&*later));
        Self(all.into())
    }
}

impl Networks {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The networks in the order of their addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &IpNet> {
        self.0.iter()
    }

    /// The network that contains the address.
    #[inline]
    pub fn find(&self, ip: IpAddr) -> Option<&IpNet> {
        let behind = self.0.partition_point(|network| network.addr() <= ip);
        self.0.get(behind.wrapping_sub(1)).filter(|network| network.contains(&ip))
    }

    /// Whether one network contains all of this one.
    pub(super) fn has(&self, network: &IpNet) -> bool {
        self.find(network.addr()).is_some_and(|found| found.contains(network))
    }

    /// Whether some address is in a network of both.
    pub(super) fn overlap(&self, other: &Self) -> bool {
        let meets = |own: &Self, network: &IpNet| {
            let next = own.0.partition_point(|one| one.addr() < network.addr());
            own.has(network) || own.0.get(next).is_some_and(|one| network.contains(one))
        };
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        few.iter().any(|network| meets(many, network))
    }

    /// Whether each network of `narrow` is in one of these.
    pub(super) fn cover(&self, narrow: &Self) -> bool {
        narrow.iter().all(|network| self.has(network))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
    }

    #[test]
    fn networks_within_others_are_left_out() {
        let all = networks(&[
            "10.1.0.0/16",
            "::/0",
            "10.0.0.0/8",
            "192.0.2.7/32",
            "10.0.0.0/8",
            "10.0.0.0/9",
            "2001:db8::/32",
        ]);
        assert_eq!(all, networks(&["10.0.0.0/8", "192.0.2.7/32", "::/0"]));
        for (ip, is_in) in
            [("10.255.0.1", true), ("11.0.0.0", false), ("9.255.255.255", false), ("192.0.2.7", true), ("::1", true)]
        {
            assert_eq!(all.find(ip.parse().unwrap()).is_some(), is_in, "{ip}");
        }
        assert!(Networks::default().find("10.0.0.1".parse().unwrap()).is_none());
    }

    /// Networks that differ in few bits, so that many are in others.
    fn network() -> impl Strategy<Value = IpNet> {
        (any::<bool>(), any::<[bool; 4]>(), 0_u8..=32).prop_map(|(is_v6, bits, prefix)| {
            let [a, b, c, d] = bits.map(u8::from);
            let v4 = std::net::Ipv4Addr::from([a << 7, b << 7, c, d]);
            let ip = if is_v6 { IpAddr::V6(v4.to_ipv6_compatible()) } else { IpAddr::V4(v4) };
            IpNet::new(ip, if is_v6 { 96 + prefix } else { prefix }).unwrap().trunc()
        })
    }

    proptest! {
        #[test]
        fn searches_agree_with_linear_ones(
            one in prop::collection::vec(network(), 0..12),
            other in prop::collection::vec(network(), 0..12),
        ) {
            let (own, others) = (one.iter().copied().collect::<Networks>(), other.iter().copied().collect::<Networks>());
            for network in one.iter().chain(&other) {
                for ip in [network.addr(), network.broadcast()] {
                    prop_assert_eq!(own.find(ip).is_some(), one.iter().any(|network| network.contains(&ip)));
                }
            }
            let overlap = one.iter().any(|a| other.iter().any(|b| a.contains(b) || b.contains(a)));
            prop_assert_eq!((own.overlap(&others), others.overlap(&own)), (overlap, overlap));
            prop_assert_eq!(own.cover(&others), other.iter().all(|b| one.iter().any(|a| a.contains(b))));
        }
    }
}
