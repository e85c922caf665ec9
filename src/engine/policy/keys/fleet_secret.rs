//! The secret that all replicas of a fleet have, so that they hash keys alike.

use aws_lc_rs::hmac;

use crate::base::opaque::opaque_debug;

/// The secret of a fleet. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetSecret(Box<[u8]>);

/// The shortest secret, in bytes.
pub const FLEET_SECRET_BYTES_MIN: usize = 32;

/// The fewest distinct bytes of a secret. Random bytes, hexadecimal digits and base64 characters have more.
const DISTINCT_BYTES_MIN: usize = 8;

/// The message whose code under the fleet secret begins with the secret of keys.
const LABEL: &[u8] = b"weir key secret 1";

/// The message whose code under the fleet secret is the key of proofs.
const PROOF_LABEL: &[u8] = b"weir fleet proof 1";

/// The length of a proof.
pub const PROOF_BYTES: usize = 32;

/// The key with which replicas prove to each other that they know the secret.
pub struct ProofKey(hmac::Key);

/// Why a secret is too weak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeakSecret {
    /// It has only so many bytes.
    #[error("this secret has {0} bytes; a fleet needs at least {FLEET_SECRET_BYTES_MIN}")]
    Short(usize),
    /// It has few distinct bytes, or repeats a short text.
    #[error("this secret can be guessed: it repeats few bytes")]
    Guessable,
}

impl FleetSecret {
    /// # Errors
    /// The secret is too short, or obviously not random.
    pub fn new(bytes: &[u8]) -> Result<Self, WeakSecret> {
        if bytes.len() < FLEET_SECRET_BYTES_MIN {
            return Err(WeakSecret::Short(bytes.len()));
        }
        let distinct = (0..=u8::MAX).filter(|byte| bytes.contains(byte)).count();
        let is_repeated = |length: usize| bytes.chunks(length).all(|part| bytes.starts_with(part));
        let parts = 1..FLEET_SECRET_BYTES_MIN.min(bytes.len() / 2 + 1);
        if distinct < DISTINCT_BYTES_MIN || parts.into_iter().any(is_repeated) {
            return Err(WeakSecret::Guessable);
        }
        Ok(Self(bytes.into()))
    }

    /// The secret under which keys are hashed: the first 16 bytes of HMAC-SHA-256 over `weir key secret 1`.
    pub fn key_secret(&self) -> [u8; 16] {
        let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), LABEL);
        first_bytes(&code)
    }

    /// The key of proofs.
    pub fn proof_key(&self) -> ProofKey {
        let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), PROOF_LABEL);
        ProofKey(hmac::Key::new(hmac::HMAC_SHA256, code.as_ref()))
    }
}

impl ProofKey {
    /// The proof over `message`.
    pub fn prove(&self, message: &[u8]) -> [u8; PROOF_BYTES] {
        first_bytes(&hmac::sign(&self.0, message))
    }

    /// Whether `proof` is the proof over `message`. Takes the same time for all proofs of one length.
    pub fn is_proof(&self, message: &[u8], proof: &[u8]) -> bool {
        hmac::verify(&self.0, message, proof).is_ok()
    }
}

fn first_bytes<const N: usize>(code: &hmac::Tag) -> [u8; N] {
    std::array::from_fn(|index| code.as_ref().get(index).copied().unwrap_or_default())
}

opaque_debug!(ProofKey, FleetSecret);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_keys_can_be_computed_elsewhere() {
        // printf 'weir key secret 1' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdeX
        let secret = FleetSecret::new(b"0123456789abcdef0123456789abcdeX").unwrap();
        assert_eq!(secret.key_secret(), 0x9423_9803_f679_3f3f_a1af_100f_ca1d_dbbc_u128.to_be_bytes());
        assert_eq!(format!("{secret:?}"), "FleetSecret");
    }

    #[test]
    fn a_proof_can_be_computed_elsewhere() {
        // import hashlib, hmac
        // key = hmac.digest(b"0123456789abcdef0123456789abcdeX", b"weir fleet proof 1", "sha256")
        // hmac.digest(key, b"message", "sha256").hex()
        let key = FleetSecret::new(b"0123456789abcdef0123456789abcdeX").unwrap().proof_key();
        let expected = [
            0x3b, 0xf7, 0x81, 0xdb, 0xf3, 0x62, 0xa1, 0x54, 0x4c, 0xb7, 0xf3, 0xa8, 0xb7, 0xc7, 0x63, 0xef, 0x1b, 0xc0,
            0xc8, 0x3e, 0x06, 0x53, 0xec, 0x7f, 0x76, 0x72, 0x10, 0x8d, 0xb1, 0x3d, 0x63, 0x6d,
        ];
        assert_eq!(key.prove(b"message"), expected);
        assert!(key.is_proof(b"message", &key.prove(b"message")));
        assert!(!key.is_proof(b"messagf", &key.prove(b"message")) && !key.is_proof(b"message", b""));
    }

    #[test]
    fn weak_secrets_are_refused() {
        let long = "0123456789abcdef0123456789abcdeX";
        for (text, expected) in [
            (long.to_owned(), None),
            (long.repeat(2), None),
            // The last byte is the first one, as in one of 256 random secrets.
            ("9f86d081884c7d659a2feaa0c55ad019".to_owned(), None),
            (long[1..].to_owned(), Some(WeakSecret::Short(31))),
            (String::new(), Some(WeakSecret::Short(0))),
            ("0".repeat(64), Some(WeakSecret::Guessable)),
            ("0123456".repeat(5), Some(WeakSecret::Guessable)),
            ("changeme-".repeat(4), Some(WeakSecret::Guessable)),
            ("0123456789abcdef".repeat(2), Some(WeakSecret::Guessable)),
            ("0123456789abcdef0".repeat(2), Some(WeakSecret::Guessable)),
        ] {
            assert_eq!(FleetSecret::new(text.as_bytes()).err(), expected, "{text}");
        }
    }
}
