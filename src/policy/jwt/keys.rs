//! Keys, from a shared secret, PEM (RFC 7468) or a JWK set (RFC 7517). Each verifies one algorithm.
//!
//! What can be known to be wrong about a key is said when the configuration is read, not when a token comes.
//!
//! The crate's provider is called by name instead of installed for the process: then there is nothing to
//! forget, and a second provider among the dependencies changes nothing.

use std::{error, fmt};

use jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{DecodingKey, DecodingKeyKind};

use super::Algorithm;

/// Keys of one verifier. A token without `kid` is tried against all that fit, so this bounds its work.
const KEYS_MAX: usize = 64;

/// RFC 7518, 3.2: a key as long as the hash, or longer.
const SECRET_BYTES_MIN: usize = 32;

/// RFC 7518, 3.3 demands the lower bound; above the upper one verifying is a burden.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The tag of an uncompressed point and its two coordinates (SEC 1, 2.3.3).
const P256_POINT_BYTES: usize = 65;

/// RFC 8032, 5.1.5.
const ED25519_BYTES: usize = 32;

/// A key as the configuration has it.
#[derive(Clone)]
pub enum KeyMaterial {
    /// A secret shared with the issuer, for HS256.
    Secret(Vec<u8>),
    /// A public key or a certificate.
    Pem(Vec<u8>),
    /// A JWK set.
    Jwks(Vec<u8>),
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret",
            Self::Pem(_) => "Pem",
            Self::Jwks(_) => "Jwks",
        })
    }
}

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
    /// Another key has the same `kid`.
    DuplicateKid(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            KeyProblem::NoKeys => f.write_str("at least one key is needed"),
            KeyProblem::TooMany => write!(f, "more than {KEYS_MAX} keys"),
            KeyProblem::Pem => f.write_str("not a public key in PEM of type RSA, EC P-256 or Ed25519"),
            KeyProblem::Jwks => f.write_str("not a JWK set"),
            KeyProblem::NoUsableJwk => f.write_str("no key of the JWK set fits the algorithms"),
            KeyProblem::Unlisted(algorithm) => {
                write!(f, "a key for {0}, but `algorithms` does not list {0}", algorithm.name())
            }
            KeyProblem::Invalid(algorithm) => write!(f, "not a public key for {}", algorithm.name()),
            KeyProblem::ShortSecret => write!(f, "a secret for HS256 has at least {SECRET_BYTES_MIN} bytes"),
            KeyProblem::RsaBits(bits) => {
                write!(f, "an RSA key of {bits} bits; {} to {} are accepted", RSA_BITS.start(), RSA_BITS.end())
            }
            KeyProblem::DuplicateKid(kid) => write!(f, "two keys with the kid {kid:?}"),
        }
    }
}

impl error::Error for KeyError {}

/// A key, checked.
#[derive(Debug)]
pub(super) struct Key {
    algorithm: Algorithm,
    kid: Option<Box<str>>,
    decoding: DecodingKey,
}

impl Key {
    /// Whether a token with this header may have been signed by it. A key without `kid` may have any.
    pub(super) fn fits(&self, algorithm: Algorithm, kid: Option<&str>) -> bool {
        let same_kid = self.kid.as_deref().zip(kid).is_none_or(|(own, named)| own == named);
        self.algorithm == algorithm && same_kid
    }

    #[allow(clippy::ptr_arg, reason = "the crate's trait is over Vec<u8>")]
    pub(super) fn verifies(&self, signed: &[u8], signature: &Vec<u8>) -> bool {
        let verifier = (DEFAULT_PROVIDER.verifier_factory)(&self.algorithm.into(), &self.decoding);
        verifier.is_ok_and(|verifier| verifier.verify(signed, signature).is_ok())
    }

    /// Checks that `key` is one for `algorithm`.
    fn new(algorithm: Algorithm, kid: Option<Box<str>>, key: DecodingKey) -> Result<Self, KeyProblem> {
        let invalid = KeyProblem::Invalid(algorithm);
        match (algorithm, key.kind()) {
            (Algorithm::Rs256, material) => check_rsa(material)?,
            (Algorithm::Hs256, DecodingKeyKind::SecretOrDer(secret)) if secret.len() < SECRET_BYTES_MIN => {
                return Err(KeyProblem::ShortSecret);
            }
            (Algorithm::Es256, DecodingKeyKind::SecretOrDer(point)) if !is_p256_point(point) => return Err(invalid),
            (Algorithm::EdDsa, DecodingKeyKind::SecretOrDer(key)) if key.len() != ED25519_BYTES => return Err(invalid),
            (_, DecodingKeyKind::SecretOrDer(_)) => {}
            (_, DecodingKeyKind::RsaModulusExponent { .. }) => return Err(invalid),
        }
        Ok(Self { algorithm, kid, decoding: key })
    }
}

impl From<Algorithm> for jsonwebtoken::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Hs256 => Self::HS256,
            Algorithm::Rs256 => Self::RS256,
            Algorithm::Es256 => Self::ES256,
            Algorithm::EdDsa => Self::EdDSA,
        }
    }
}

/// All keys of a verifier, in order.
pub(super) fn build(materials: &[KeyMaterial], algorithms: &[Algorithm]) -> Result<Vec<Key>, KeyError> {
    let mut keys: Vec<Key> = Vec::new();
    for (index, material) in materials.iter().enumerate() {
        let at = |problem| KeyError { index, problem };
        for key in read(material, algorithms).map_err(at)? {
            if let Some(kid) =
                key.kid.as_deref().filter(|kid| keys.iter().any(|known| known.kid.as_deref() == Some(kid)))
            {
                return Err(at(KeyProblem::DuplicateKid(kid.to_owned())));
            }
            if keys.len() == KEYS_MAX {
                return Err(at(KeyProblem::TooMany));
            }
            keys.push(key);
        }
    }
    if keys.is_empty() { Err(KeyError { index: 0, problem: KeyProblem::NoKeys }) } else { Ok(keys) }
}

fn read(material: &KeyMaterial, algorithms: &[Algorithm]) -> Result<Vec<Key>, KeyProblem> {
    let (algorithm, key) = match material {
        KeyMaterial::Secret(secret) => (Algorithm::Hs256, DecodingKey::from_secret(secret)),
        KeyMaterial::Pem(pem) => read_pem(pem)?,
        KeyMaterial::Jwks(json) => return read_jwks(json, algorithms),
    };
    if !algorithms.contains(&algorithm) {
        return Err(KeyProblem::Unlisted(algorithm));
    }
    Ok(vec![Key::new(algorithm, None, key)?])
}

/// The crate's readers each refuse a PEM of another type, but RSA's takes any PKCS#1; so that one comes last.
fn read_pem(pem: &[u8]) -> Result<(Algorithm, DecodingKey), KeyProblem> {
    let ec = || Some((Algorithm::Es256, DecodingKey::from_ec_pem(pem).ok()?));
    let ed = || Some((Algorithm::EdDsa, DecodingKey::from_ed_pem(pem).ok()?));
    let rsa = || Some((Algorithm::Rs256, DecodingKey::from_rsa_pem(pem).ok()?));
    ec().or_else(ed).or_else(rsa).ok_or(KeyProblem::Pem)
}

fn read_jwks(json: &[u8], algorithms: &[Algorithm]) -> Result<Vec<Key>, KeyProblem> {
    let set: JwkSet = serde_json::from_slice(json).map_err(|_| KeyProblem::Jwks)?;
    let mut keys = Vec::new();
    for jwk in &set.keys {
        let Some(algorithm) = algorithm_of(jwk).filter(|algorithm| algorithms.contains(algorithm)) else { continue };
        let key = DecodingKey::from_jwk(jwk).map_err(|_| KeyProblem::Invalid(algorithm))?;
        keys.push(Key::new(algorithm, jwk.common.key_id.as_deref().map(Into::into), key)?);
    }
    if keys.is_empty() { Err(KeyProblem::NoUsableJwk) } else { Ok(keys) }
}

/// The algorithm that a JWK verifies, by its type; `None` if it is meant for anything else.
fn algorithm_of(jwk: &Jwk) -> Option<Algorithm> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::OctetKey(_) => Algorithm::Hs256,
        AlgorithmParameters::RSA(_) => Algorithm::Rs256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::Es256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDsa,
        _ => return None,
    };
    let common = &jwk.common;
    let meant = KeyAlgorithm::from(jsonwebtoken::Algorithm::from(algorithm));
    let may_verify = common.key_algorithm.is_none_or(|named| named == meant)
        && common.public_key_use.as_ref().is_none_or(|named| *named == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|named| named.contains(&KeyOperations::Verify));
    may_verify.then_some(algorithm)
}

fn is_p256_point(bytes: &[u8]) -> bool {
    bytes.len() == P256_POINT_BYTES && bytes[0] == 4
}

fn check_rsa(key: &DecodingKeyKind) -> Result<(), KeyProblem> {
    let bits = match key {
        DecodingKeyKind::RsaModulusExponent { n, .. } => bits(n),
        DecodingKeyKind::SecretOrDer(der) => {
            let components = (DEFAULT_PROVIDER.key_utils.rsa_pub_components_from_public_key)(der);
            bits(&components.map_err(|_| KeyProblem::Invalid(Algorithm::Rs256))?.0)
        }
    };
    if RSA_BITS.contains(&bits) { Ok(()) } else { Err(KeyProblem::RsaBits(bits)) }
}

/// The length of a big-endian number.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    let number = &number[zeros..];
    number.first().map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize)
}
