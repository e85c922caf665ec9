//! The form of an API key: a prefix, a random part and its checksum. Scanners of secrets find it without many false
//! alarms. Keys of other systems can have any form with enough entropy.

use std::ops::RangeInclusive;

use aws_lc_rs::digest;

/// SHA-256 of an API key. The key has too much entropy to be guessed from it, so it needs no salt.
pub type Digest = [u8; 32];

/// Random bytes of a key.
pub const RANDOM_BYTES: usize = 24;

/// The length of a key of another system.
const ADOPTABLE_BYTES: RangeInclusive<usize> = 16..=512;

const PREFIX: &[u8] = b"weir_";
/// The base-62 digits of [`RANDOM_BYTES`] bytes, and those of a CRC-32.
const RANDOM_CHARS: usize = 33;
const CHECKSUM_CHARS: usize = 6;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The key with this random part.
pub fn key_of(random: [u8; RANDOM_BYTES]) -> String {
    let random: [u8; RANDOM_CHARS] = base62(random);
    let bytes = [PREFIX, &random, &checksum(&random)].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether `key` has the form of a key. Anybody can compute that, so its time need not be equal for all keys.
pub fn is_well_formed(key: &[u8]) -> bool {
    let parts = key.strip_prefix(PREFIX).and_then(|rest| rest.split_at_checked(RANDOM_CHARS));
    parts.is_some_and(|(random, sum)| random.iter().all(u8::is_ascii_alphanumeric) && *sum == checksum(random))
}

/// Whether a key can be one of another system: visible ASCII characters, and so many that it cannot be guessed from its
/// digest.
pub fn is_adoptable(key: &[u8]) -> bool {
    ADOPTABLE_BYTES.contains(&key.len()) && key.iter().all(u8::is_ascii_graphic)
}

/// The digest of a key.
pub fn digest_of(key: &[u8]) -> Digest {
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest::digest(&digest::SHA256, key).as_ref());
    bytes
}

/// CRC-32 (ISO-HDLC) of the random part.
fn checksum(random: &[u8]) -> [u8; CHECKSUM_CHARS] {
    base62(crc32fast::hash(random).to_be_bytes())
}

/// A big-endian number in base 62, with leading zeros.
fn base62<const BYTES: usize, const CHARS: usize>(mut number: [u8; BYTES]) -> [u8; CHARS] {
    let mut digits = [0; CHARS];
    for digit in digits.iter_mut().rev() {
        let mut rest = 0;
        for byte in &mut number {
            let part = rest << 8 | u16::from(*byte);
            let [quotient, _] = (part / 62).to_le_bytes(); // below 256: `rest` is below 62
            (*byte, rest) = (quotient, part % 62);
        }
        *digit = ALPHABET[usize::from(rest)];
    }
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_those_of_the_documented_form() {
        for (random, key) in [
            ([0; RANDOM_BYTES], "weir_00000000000000000000000000000000026BYXP"),
            ([255; RANDOM_BYTES], "weir_2lFA6LboL2xx0ldQH2K1TdSrwuqMMiME31Zs9bW"),
        ] {
            assert_eq!(key_of(random), key);
        }
    }

    #[test]
    fn malformed_keys_have_another_form() {
        let key = key_of([7; RANDOM_BYTES]);
        assert!(is_well_formed(key.as_bytes()));
        for other in [
            "",
            "weir_",
            &key[1..],
            &key[..key.len() - 1],
            &format!("{key}0"),
            &format!(" {key}"),
            &key.replacen("weir_", "weir-", 1),
            &key.replacen("weir_", "WEIR_", 1),
            &key.replacen("weir_0", "weir_-", 1),
            &"é".repeat(22),
        ] {
            assert!(!is_well_formed(other.as_bytes()), "{other}");
        }
    }

    proptest! {
        #[test]
        fn every_key_is_well_formed_and_no_typo_is(random: [u8; RANDOM_BYTES], at in 5_usize..44, to in 0_usize..62) {
            let mut key = key_of(random).into_bytes();
            prop_assert!(is_well_formed(&key));
            prop_assert_eq!(key.len(), 44);
            let before = std::mem::replace(&mut key[at], ALPHABET[to]);
            prop_assert_eq!(is_well_formed(&key), before == key[at]);
        }
    }

    /// The first example of FIPS 180-4: the digest of `abc`.
    #[test]
    fn digests_are_sha_256() {
        assert_eq!(digest_of(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
