//! Tokens.
use std::str::FromStr;
use std::time::Duration;
use std::{error, fmt};
/// Verifier.
#[derive(Debug)]
pub struct Verifier {}
/// What a verifier is told.
pub struct VerifierSpec {
    /// The claim.
    pub claim: String,
    /// Algorithms.
    pub algorithms: Vec<Algorithm>,
    /// Keys.
    pub keys: Vec<KeyMaterial>,
    /// `iss`.
    pub issuer: Option<String>,
    /// `aud`.
    pub audience: Option<String>,
    /// Whether `exp` must be there.
    pub require_exp: bool,
    /// Clocks may differ by this.
    pub leeway: Duration,
}
/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC.
    Hs256,
    /// RSA.
    Rs256,
    /// P-256.
    Es256,
    /// Ed25519.
    EdDsa,
}
impl Algorithm {
    /// As written.
    pub const ALL_NAMES: [&str; 4] = ["HS256", "RS256", "ES256", "EdDSA"];
}
impl FromStr for Algorithm {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "HS256" => Ok(Self::Hs256),
            "RS256" => Ok(Self::Rs256),
            "ES256" => Ok(Self::Es256),
            "EdDSA" => Ok(Self::EdDsa),
            _ => Err(()),
        }
    }
}
/// A key.
pub enum KeyMaterial {
    /// For HMAC.
    Secret(Vec<u8>),
    /// PEM.
    Pem(Vec<u8>),
    /// JWKS.
    Jwks(Vec<u8>),
}
/// Wrong key.
#[derive(Debug)]
pub struct KeyError {
    /// Which.
    pub index: usize,
}
impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a key")
    }
}
impl error::Error for KeyError {}
impl Verifier {
    /// A verifier.
    pub fn new(spec: VerifierSpec) -> Result<Self, KeyError> {
        match spec.keys.iter().position(|key| matches!(key, KeyMaterial::Jwks(text) if !text.starts_with(b"{"))) {
            Some(index) => Err(KeyError { index }),
            None => Ok(Self {}),
        }
    }
}
