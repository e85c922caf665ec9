//! The signature algorithms of tokens.

/// A signature algorithm of RFC 7518 or RFC 8037.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// All algorithms, with their names in tokens and configurations.
    pub const ALL: [(&'static str, Self); 4] =
        [("HS256", Self::Hs256), ("RS256", Self::Rs256), ("ES256", Self::Es256), ("EdDSA", Self::EdDsa)];

    /// The algorithm of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(known, algorithm)| (known == name).then_some(algorithm))
    }

    /// The name in tokens and configurations.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }
}
