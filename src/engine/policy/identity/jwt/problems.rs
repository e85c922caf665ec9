//! The reasons why a key or a token is refused.

use std::{error, fmt};

use super::algorithm::Algorithm;

/// Bytes of the longest token that is verified; servers accept header fields of about this size.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The maximum number of keys of a verifier. It bounds the work for a token without `kid`, which is tried with all
/// keys.
pub(super) const KEYS_MAX: usize = 64;

/// RFC 7518, 3.2: a key is at least as long as the hash.
pub(super) const SECRET_BYTES_MIN: usize = 32;

/// RFC 7518, 3.3 requires the lower bound. Above the upper bound verification is too slow.
pub(super) const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The problem of one of the keys of a verifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct KeyError {
    /// The index of the key as configured.
    pub index: usize,
    /// The problem.
    pub problem: KeyProblem,
}

/// The problem of a key or a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// There is no key.
    #[error("at least one key is needed")]
    NoKeys,
    /// There are more keys than a verifier accepts.
    #[error("more than {KEYS_MAX} keys")]
    TooMany,
    /// The text is no public key in PEM.
    #[error("not a public key in PEM of type RSA, EC P-256 or Ed25519")]
    Pem,
    /// The PEM holds this many keys or certificates.
    #[error("{0} keys or certificates in one file; name one file for each key")]
    SeveralPem(usize),
    /// The text is no JWK set.
    #[error("not a JWK set")]
    Jwks,
    /// No key of the set fits the algorithms.
    #[error("no key of the JWK set fits the algorithms")]
    NoUsableJwk,
    /// The key is for an algorithm that is not configured.
    #[error("a key for {name}, but `algorithms` does not list {name}", name = .0.name())]
    Unlisted(Algorithm),
    /// The key is invalid for its algorithm.
    #[error("not a public key for {}", .0.name())]
    Invalid(Algorithm),
    /// The secret is shorter than RFC 7518, 3.2 requires.
    #[error("a secret for HS256 has at least {SECRET_BYTES_MIN} bytes")]
    ShortSecret,
    /// The RSA modulus has this many bits.
    #[error("an RSA key of {0} bits; {min} to {max} are accepted", min = RSA_BITS.start(), max = RSA_BITS.end())]
    RsaBits(usize),
    /// The RSA modulus is even, or the exponent is even, below 3 or longer than 33 bits.
    #[error("an unsafe RSA key: its modulus is even, or its exponent is even, below 3 or longer than 33 bits")]
    RsaNumbers,
    /// The point is not on P-256.
    #[error("an unsafe EC key: its point is not on P-256")]
    OffCurve,
    /// The Ed25519 key is a point of small order.
    #[error("an unsafe Ed25519 key: a point of small order, for which anybody can sign")]
    SmallOrder,
    /// Another key has the same `kid`.
    #[error("two keys with the kid {0:?}")]
    DuplicateKid(String),
    /// The member of the set is not a JWK.
    #[error("not a JWK")]
    Jwk,
    /// The type or the curve of the JWK fits none of Weir's algorithms.
    #[error("its `kty` or `crv` is for none of HS256, RS256, ES256 and EdDSA")]
    OtherType,
    /// The `use`, `key_ops` or `alg` of the JWK excludes the verification of tokens.
    #[error("its `use`, `key_ops` or `alg` is for something else")]
    OtherUse,
}

impl KeyProblem {
    /// Whether a member of a set with this problem is no key for tokens.
    pub(super) fn is_no_key(&self) -> bool {
        matches!(self, Self::Jwk | Self::OtherType | Self::OtherUse | Self::Invalid(_))
    }
}

/// The reason why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The token is longer than [`TOKEN_BYTES_MAX`].
    TooLong,
    /// The token is not three parts of base64url with JSON objects, or has `crit`.
    Malformed,
    /// The algorithm of the token is not configured.
    Algorithm,
    /// No key has the `kid` and the algorithm of the token.
    UnknownKey,
    /// The keys were not fetched yet, so the token cannot be verified.
    NoKeys,
    /// No key verifies the signature.
    Signature,
    /// `exp` is in the past, or no number.
    Expired,
    /// `nbf` is in the future, or no number.
    NotYetValid,
    /// `exp` is missing.
    MissingExp,
    /// `iss` differs from the configured issuer.
    Issuer,
    /// `aud` does not contain the configured audience.
    Audience,
    /// The claim of the client is missing, or neither text nor an integer.
    Claim,
}

impl TokenError {
    /// The label in metrics and logs.
    pub fn label(self) -> &'static str {
        self.texts().0
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::TooLong => ("too_long", "the token is too long"),
            Self::Malformed => ("malformed", "the token is malformed"),
            Self::Algorithm => ("algorithm", "the token's algorithm is not accepted"),
            Self::UnknownKey => ("unknown_key", "the token's key is not known"),
            Self::NoKeys => ("no_keys", "the keys that verify tokens are not available"),
            Self::Signature => ("signature", "the token's signature is wrong"),
            Self::Expired => ("expired", "the token has expired"),
            Self::NotYetValid => ("not_yet_valid", "the token is not valid yet"),
            Self::MissingExp => ("missing_exp", "the token has no expiry"),
            Self::Issuer => ("issuer", "the token's issuer is not accepted"),
            Self::Audience => ("audience", "the token is for another audience"),
            Self::Claim => ("claim", "the token does not name its client"),
        }
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

impl error::Error for TokenError {}
