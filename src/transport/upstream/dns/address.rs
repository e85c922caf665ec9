//! One address of an endpoint's name, with the preference that the DNS gives it.

use std::net::SocketAddr;

/// An address that a name resolves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResolvedAddress {
    pub(crate) preference: Preference,
    pub(crate) address: SocketAddr,
}

/// The priority and weight of an SRV record (RFC 2782), or those of an address without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Preference {
    /// Addresses of the lowest priority get all requests while any of them is available.
    pub(crate) priority: u16,
    /// The part of the requests within the priority, relative to the other weights.
    pub(crate) weight: u16,
}

impl Default for Preference {
    fn default() -> Self {
        Self { priority: 0, weight: 1 }
    }
}

impl Preference {
    /// Both numbers in one word.
    pub(crate) fn to_word(self) -> u32 {
        u32::from(self.priority) << 16 | u32::from(self.weight)
    }

    /// The inverse of [`Preference::to_word`].
    pub(crate) fn from_word(word: u32) -> Self {
        let half = |bits: u32| u16::try_from(bits & 0xffff).unwrap_or_default();
        Self { priority: half(word >> 16), weight: half(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_fits_in_one_word() {
        for (priority, weight) in [(0, 0), (1, 65_535), (65_535, 1)] {
            let preference = Preference { priority, weight };
            assert_eq!(Preference::from_word(preference.to_word()), preference);
        }
    }
}
