//! Failed attempts of each address, such as logins, in windows of a minute. Beyond a bound they have no line in the log.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::base::time::Timestamp;

const WINDOW_NS: u64 = 60_000_000_000;
/// Most failed attempts of one address in a window. A token has 128 random bits or more, so few suffice.
const FAILED_MAX: u32 = 10;
/// Most addresses. Beyond them the address with the oldest window is forgotten.
const ADDRESSES_MAX: usize = 1024;

/// The failed attempts by address; an IPv6 address counts by its network of 64 bits, a Unix socket as one address.
#[derive(Debug, Default)]
pub(crate) struct Attempts(HashMap<Option<IpAddr>, Window>);

#[derive(Debug)]
struct Window {
    began: Timestamp,
    failed: u32,
}

impl Attempts {
    /// Whether a failed attempt from `address` is within the bound.
    pub(crate) fn may_fail(&self, address: Option<IpAddr>, now: Timestamp) -> bool {
        let window = self.0.get(&network(address)).filter(|window| now.ns_since(window.began) < WINDOW_NS);
        window.is_none_or(|window| window.failed < FAILED_MAX)
    }

    /// Counts a failed attempt.
    pub(crate) fn failed(&mut self, address: Option<IpAddr>, now: Timestamp) {
        let address = network(address);
        if !self.0.contains_key(&address) && self.0.len() >= ADDRESSES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, window)| window.began).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let window = self.0.entry(address).or_insert(Window { began: now, failed: 0 });
        if now.ns_since(window.began) >= WINDOW_NS {
            *window = Window { began: now, failed: 0 };
        }
        window.failed = window.failed.saturating_add(1);
    }
}

fn network(address: Option<IpAddr>) -> Option<IpAddr> {
    match address {
        Some(IpAddr::V6(address)) => {
            Some(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::from(u64::MAX) << 64))))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_attempts_of_an_address_are_bounded() {
        let at = |second: u64| Timestamp::from_ns(second * 1_000_000_000);
        let ip = |text: &str| Some(text.parse().unwrap());
        let mut attempts = Attempts::default();
        for (address, same, other) in [
            (ip("192.0.2.1"), ip("192.0.2.1"), ip("192.0.2.2")),
            (ip("2001:db8::1"), ip("2001:db8::2"), ip("2001:db8:0:1::1")),
            (None, None, ip("127.0.0.1")),
        ] {
            for _ in 0..FAILED_MAX {
                assert!(attempts.may_fail(address, at(1)), "{address:?}");
                attempts.failed(address, at(1));
            }
            for (address, second, may_fail) in
                [(address, 1, false), (same, 60, false), (other, 1, true), (address, 61, true)]
            {
                assert_eq!(attempts.may_fail(address, at(second)), may_fail, "{address:?} at {second}");
            }
            attempts.failed(address, at(61));
            assert!(attempts.may_fail(address, at(61)));
        }
        for number in 0..2000_u32 {
            attempts.failed(Some(IpAddr::V4(number.into())), at(70 + u64::from(number)));
        }
        assert_eq!(attempts.0.len(), ADDRESSES_MAX);
    }
}
