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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The index of the key as configured.
    pub index: usize,
    /// The problem.
    pub problem: KeyProblem,
}

/// The problem of a key or a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyProblem {
    /// There is no key.
    NoKeys,
    /// There are more keys than a verifier accepts.
    TooMany,
    /// The text is no public key in PEM.
    Pem,
    /// The PEM holds this many keys or certificates.
    SeveralPem(usize),
    /// The text is no JWK set.
    Jwks,
    /// No key of the set fits the algorithms.
    NoUsableJwk,
    /// The key is for an algorithm that is not configured.
    Unlisted(Algorithm),
    /// The key is invalid for its algorithm.
    Invalid(Algorithm),
    /// The secret is shorter than RFC 7518, 3.2 requires.
    ShortSecret,
    /// The RSA modulus has this many bits.
    RsaBits(usize),
    /// The RSA modulus is even, or the exponent is even, below 3 or longer than 33 bits.
    RsaNumbers,
    /// The point is not on P-256.
    OffCurve,
    /// The Ed25519 key is a point of small order.
    SmallOrder,
    /// Another key has the same `kid`.
    DuplicateKid(String),
    /// The member of the set is not a JWK.
    Jwk,
    /// The type or the curve of the JWK fits none of Weir's algorithms.
    OtherType,
    /// The `use`, `key_ops` or `alg` of the JWK excludes the verification of tokens.
    OtherUse,
}

impl KeyProblem {
    /// Whether a member of a set with this problem is no key for tokens.
    pub(super) fn is_no_key(&self) -> bool {
        matches!(self, Self::Jwk | Self::OtherType | Self::OtherUse | Self::Invalid(_))
    }
}

impl fmt::Display for KeyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str("at least one key is needed"),
            Self::TooMany => write!(f, "more than {KEYS_MAX} keys"),
            Self::Pem => f.write_str("not a public key in PEM of type RSA, EC P-256 or Ed25519"),
            Self::SeveralPem(count) => {
                write!(f, "{count} keys or certificates in one file; name one file for each key")
            }
            Self::Jwks => f.write_str("not a JWK set"),
            Self::NoUsableJwk => f.write_str("no key of the JWK set fits the algorithms"),
            Self::Unlisted(algorithm) => {
                write!(f, "a key for {0}, but `algorithms` does not list {0}", algorithm.name())
            }
            Self::Invalid(algorithm) => write!(f, "not a public key for {}", algorithm.name()),
            Self::ShortSecret => write!(f, "a secret for HS256 has at least {SECRET_BYTES_MIN} bytes"),
            Self::RsaBits(bits) => {
                write!(f, "an RSA key of {bits} bits; {} to {} are accepted", RSA_BITS.start(), RSA_BITS.end())
            }
            Self::RsaNumbers => f.write_str(
                "an unsafe RSA key: its modulus is even, or its exponent is even, below 3 or longer than 33 bits",
            ),
            Self::OffCurve => f.write_str("an unsafe EC key: its point is not on P-256"),
            Self::SmallOrder => {
                f.write_str("an unsafe Ed25519 key: a point of small order, for which anybody can sign")
            }
            Self::DuplicateKid(kid) => write!(f, "two keys with the kid {kid:?}"),
            Self::Jwk => f.write_str("not a JWK"),
            Self::OtherType => f.write_str("its `kty` or `crv` is for none of HS256, RS256, ES256 and EdDSA"),
            Self::OtherUse => f.write_str("its `use`, `key_ops` or `alg` is for something else"),
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl error::Error for KeyError {}

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
