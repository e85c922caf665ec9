//! The reasons why a key or a token is refused.

use std::{error, fmt};

use super::algorithm::Algorithm;

/// Bytes of the longest token that is looked at; servers accept header fields of about this size.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Keys of one verifier. A token without `kid` is tried against all that fit, so this bounds its work.
pub(super) const KEYS_MAX: usize = 64;

/// RFC 7518, 3.2: a key as long as the hash, or longer.
pub(super) const SECRET_BYTES_MIN: usize = 32;

/// RFC 7518, 3.3 demands the lower bound; above the upper one verifying is a burden.
pub(super) const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// What is wrong with the keys of a verifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// Which of the keys, as listed.
    pub index: usize,
    /// What is wrong with it.
    pub problem: KeyProblem,
}

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyProblem {
    /// There is none.
    NoKeys,
    /// There are more than a verifier takes.
    TooMany,
    /// It is not a public key in PEM.
    Pem,
    /// The PEM holds this many keys or certificates.
    SeveralPem(usize),
    /// It is not a JWK set.
    Jwks,
    /// No key of the set fits the algorithms.
    NoUsableJwk,
    /// It is for an algorithm that is not in the list.
    Unlisted(Algorithm),
    /// It is not a key of its algorithm.
    Invalid(Algorithm),
    /// The secret is shorter than RFC 7518, 3.2 demands.
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
    /// The type or the curve of the JWK is for none of Weir's algorithms.
    OtherType,
    /// The `use`, `key_ops` or `alg` of the JWK say that it verifies no such token.
    OtherUse,
}

impl KeyProblem {
    /// Whether a member of a set with this problem is no key that tokens could be verified with.
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

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// More than [`TOKEN_BYTES_MAX`].
    TooLong,
    /// Not three parts of base64url with JSON objects in them, or one that `crit` says we must not accept.
    Malformed,
    /// Signed with an algorithm that is not in the list.
    Algorithm,
    /// No key has its `kid` and its algorithm.
    UnknownKey,
    /// Keys are still to be fetched, so nobody knows whether it is good.
    NoKeys,
    /// No key verifies its signature.
    Signature,
    /// `exp` is past, or is no number.
    Expired,
    /// `nbf` is to come, or is no number.
    NotYetValid,
    /// There is no `exp`.
    MissingExp,
    /// `iss` is not as configured.
    Issuer,
    /// `aud` is not as configured.
    Audience,
    /// The claim that names the client is missing, or neither text nor an integer.
    Claim,
}

impl TokenError {
    /// A word for metrics and logs.
    pub fn label(self) -> &'static str {
        self.texts().0
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::TooLong => ("too_long", "the token is too long"),
            Self::Malformed => ("malformed", "the token is malformed"),
            Self::Algorithm => ("algorithm", "the token's algorithm is not accepted"),
            Self::UnknownKey => ("unknown_key", "the token's key is not known"),
            Self::NoKeys => ("no_keys", "the keys that tokens are verified with cannot be had now"),
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
