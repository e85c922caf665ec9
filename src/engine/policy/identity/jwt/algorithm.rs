//! The signature algorithms of tokens.

use std::str::FromStr;
use std::{error, fmt};

/// A signature algorithm of RFC 7518 or RFC 8037.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// `EdDSA` with Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All names that [`FromStr`] accepts.
    pub const ALL_NAMES: [&str; 4] = ["HS256", "RS256", "ES256", "EdDSA"];

    /// The name in tokens and configurations.
    pub fn name(self) -> &'static str {
        let [hs256, rs256, es256, eddsa] = Self::ALL_NAMES;
        match self {
            Self::Hs256 => hs256,
            Self::Rs256 => rs256,
            Self::Es256 => es256,
            Self::EdDsa => eddsa,
        }
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        [Self::Hs256, Self::Rs256, Self::Es256, Self::EdDsa]
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or(UnknownAlgorithm)
    }
}

/// A name that is not in [`Algorithm::ALL_NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm;

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not one of {}", Algorithm::ALL_NAMES.join(", "))
    }
}

impl error::Error for UnknownAlgorithm {}
