//! Verification keys from a shared secret, PEM (RFC 7468) or a JWK set (RFC 7517). Each key verifies one algorithm.
//!
//! An invalid key is refused when it is loaded, not when a token arrives. A member of a set that is no key for tokens
//! is skipped. An unsafe member of a fetched set is skipped too, because the operator cannot change the set. In a file
//! it is an error.
//!
//! The provider of the crate is called by name and not installed for the process. So a second provider among the
//! dependencies changes nothing.

use std::fmt;

use jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::algorithm::Algorithm;
use super::problems::{KEYS_MAX, KeyError, KeyProblem, SECRET_BYTES_MIN};
use super::strength::{check_ed25519, check_p256, check_rsa};
use crate::base::opaque::opaque_debug;

/// Characters of 32 bytes in base64url (RFC 7518, 6.2.1.2).
const P256_COORDINATE_CHARS: usize = 43;

/// The number of skipped members that a warning describes; it only counts the others.
const SKIPPED_SHOWN_MAX: usize = 8;

/// The start of each key or certificate in PEM (RFC 7468, 2).
const PEM_BEGIN: &[u8] = b"-----BEGIN ";

/// A key as configured.
#[derive(Clone)]
pub enum KeyMaterial {
    /// A secret shared with the issuer, for HS256.
    Secret(Vec<u8>),
    /// A public key or a certificate.
    Pem(Vec<u8>),
    /// A JWK set.
    Jwks(Vec<u8>),
}

opaque_debug!(KeyMaterial);

/// The members of a JWK set that are not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedKeys {
    /// The index of the set among the configured keys.
    pub index: usize,
    /// The number of members that are not used.
    pub count: usize,
    /// The first skipped members: their place in the set, from 1, and the problem.
    shown: Vec<(usize, KeyProblem)>,
}

impl fmt::Display for SkippedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.count == 1 {
            "a key of the JWK set is not used"
        } else {
            "keys of the JWK set are not used"
        })?;
        for (number, (place, problem)) in self.shown.iter().enumerate() {
            write!(f, "{} key {place}: {problem}", if number == 0 { ":" } else { ";" })?;
        }
        match self.count - self.shown.len() {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// A checked key.
#[derive(Debug)]
pub(super) struct Key {
    algorithm: Algorithm,
    kid: Option<Box<str>>,
    decoding: DecodingKey,
}

impl Key {
    /// Whether this key may have signed a token with this header. A key without `kid` fits any `kid`.
    pub(super) fn fits(&self, algorithm: Algorithm, kid: Option<&str>) -> bool {
        let same_kid = self.kid.as_deref().zip(kid).is_none_or(|(own, named)| own == named);
        self.algorithm == algorithm && same_kid
    }

    /// Whether tokens can name it.
    pub(super) fn has_kid(&self) -> bool {
        self.kid.is_some()
    }

    #[allow(clippy::ptr_arg, reason = "the crate's trait is over Vec<u8>")]
    pub(super) fn verifies(&self, signed: &[u8], signature: &Vec<u8>) -> bool {
        let verifier = (DEFAULT_PROVIDER.verifier_factory)(&self.algorithm.into(), &self.decoding);
        verifier.is_ok_and(|verifier| verifier.verify(signed, signature).is_ok())
    }

    /// Checks that `key` is safe for `algorithm`.
    fn new(algorithm: Algorithm, kid: Option<Box<str>>, key: DecodingKey) -> Result<Self, KeyProblem> {
        match (algorithm, key.kind()) {
            (Algorithm::Rs256, material) => check_rsa(material)?,
            (Algorithm::Hs256, DecodingKeyKind::SecretOrDer(secret)) if secret.len() < SECRET_BYTES_MIN => {
                return Err(KeyProblem::ShortSecret);
            }
            (Algorithm::Hs256, DecodingKeyKind::SecretOrDer(_)) => {}
            (Algorithm::Es256, DecodingKeyKind::SecretOrDer(point)) => check_p256(point)?,
            (Algorithm::EdDsa, DecodingKeyKind::SecretOrDer(key)) => check_ed25519(key)?,
            (_, DecodingKeyKind::RsaModulusExponent { .. }) => return Err(KeyProblem::Invalid(algorithm)),
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

/// All keys of a verifier in order, and the skipped members of its sets.
pub(super) fn build(
    materials: &[KeyMaterial],
    algorithms: &[Algorithm],
) -> Result<(Vec<Key>, Vec<SkippedKeys>), KeyError> {
    let (mut keys, mut skipped) = (Vec::new(), Vec::new());
    for (index, material) in materials.iter().enumerate() {
        let at = |problem| KeyError { index, problem };
        match material {
            KeyMaterial::Secret(secret) => {
                let key = DecodingKey::from_secret(secret).map_err(|_| at(KeyProblem::ShortSecret))?;
                add_single(&mut keys, Algorithm::Hs256, key, algorithms).map_err(at)?;
            }
            KeyMaterial::Pem(pem) => {
                let (algorithm, key) = read_pem(pem).map_err(at)?;
                add_single(&mut keys, algorithm, key, algorithms).map_err(at)?;
            }
            KeyMaterial::Jwks(json) => {
                let set = add_set(&mut keys, json, algorithms, KeyProblem::is_no_key).map_err(at)?;
                skipped.extend((set.count > 0).then_some(SkippedKeys { index, ..set }));
            }
        }
    }
    if keys.is_empty() { Err(KeyError { index: 0, problem: KeyProblem::NoKeys }) } else { Ok((keys, skipped)) }
}

/// The keys of a fetched set, and its skipped members.
pub(super) fn build_fetched(json: &[u8], algorithms: &[Algorithm]) -> Result<(Vec<Key>, SkippedKeys), KeyProblem> {
    let mut keys = Vec::new();
    let skipped = add_set(&mut keys, json, algorithms, |_| true)?;
    Ok((keys, skipped))
}

fn add_single(
    keys: &mut Vec<Key>,
    algorithm: Algorithm,
    key: DecodingKey,
    algorithms: &[Algorithm],
) -> Result<(), KeyProblem> {
    if !algorithms.contains(&algorithm) {
        return Err(KeyProblem::Unlisted(algorithm));
    }
    add(keys, Key::new(algorithm, None, key)?)
}

fn add(keys: &mut Vec<Key>, key: Key) -> Result<(), KeyProblem> {
    // Keys of several types may share a `kid` (RFC 7517, 4.5).
    let is_taken = keys.iter().any(|known| known.algorithm == key.algorithm && known.kid == key.kid);
    if let Some(kid) = key.kid.as_deref().filter(|_| is_taken) {
        return Err(KeyProblem::DuplicateKid(kid.to_owned()));
    }
    if keys.len() == KEYS_MAX {
        return Err(KeyProblem::TooMany);
    }
    keys.push(key);
    Ok(())
}

/// Adds the keys of a set that are for `algorithms`. Any other member is skipped if `may_skip`, and otherwise an error.
fn add_set(
    keys: &mut Vec<Key>,
    json: &[u8],
    algorithms: &[Algorithm],
    may_skip: impl Fn(&KeyProblem) -> bool,
) -> Result<SkippedKeys, KeyProblem> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let set: Set = serde_json::from_slice(json).map_err(|_| KeyProblem::Jwks)?;
    let before = keys.len();
    let mut skipped = SkippedKeys { index: 0, count: 0, shown: Vec::new() };
    for (place, member) in set.keys.into_iter().enumerate() {
        let read = read_jwk(member, algorithms).and_then(|key| key.map_or(Ok(()), |key| add(keys, key)));
        let Err(problem) = read else { continue };
        if !may_skip(&problem) {
            return Err(problem);
        }
        skipped.count += 1;
        if skipped.shown.len() < SKIPPED_SHOWN_MAX {
            skipped.shown.push((place + 1, problem));
        }
    }
    if keys.len() > before {
        return Ok(skipped);
    }
    let is_for_us =
        |problem: &KeyProblem| !matches!(problem, KeyProblem::Jwk | KeyProblem::OtherType | KeyProblem::OtherUse);
    let problem = skipped.shown.into_iter().map(|(_, problem)| problem).find(is_for_us);
    Err(problem.unwrap_or(KeyProblem::NoUsableJwk))
}

/// Reads a PEM: a certificate, or a public key as `SubjectPublicKeyInfo` (RFC 5280, 4.1.2.7) or PKCS#1 (RFC 8017, A.1.1).
fn read_pem(pem: &[u8]) -> Result<(Algorithm, DecodingKey), KeyProblem> {
    // Several blocks may be a certificate and its issuers, whose keys sign no tokens. So Weir does not choose.
    let count = memchr::memmem::find_iter(pem, PEM_BEGIN).count();
    if count > 1 {
        return Err(KeyProblem::SeveralPem(count));
    }
    // A byte order mark or white space may stand before it.
    let begin = memchr::memmem::find(pem, PEM_BEGIN).ok_or(KeyProblem::Pem)?;
    let (_, block) = parse_x509_pem(&pem[begin..]).map_err(|_| KeyProblem::Pem)?;
    let der = &*block.contents;
    let key = match &*block.label {
        "PUBLIC KEY" => whole::<SubjectPublicKeyInfo<'_>>(der).and_then(|info| key_of(&info)),
        "CERTIFICATE" => whole::<X509Certificate<'_>>(der).and_then(|certificate| key_of(certificate.public_key())),
        "RSA PUBLIC KEY" => Some((Algorithm::Rs256, DecodingKey::from_rsa_der(der))),
        _ => None,
    };
    key.ok_or(KeyProblem::Pem)
}

/// The value that the bytes are. `None` if they are none, or if bytes follow it.
fn whole<'d, T: FromDer<'d, X509Error>>(der: &'d [u8]) -> Option<T> {
    T::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, value)| value)
}

/// The key and its algorithm; `None` for other types of keys. Its curve is checked later.
fn key_of(info: &SubjectPublicKeyInfo<'_>) -> Option<(Algorithm, DecodingKey)> {
    let (bits, oid) = (&*info.subject_public_key.data, &info.algorithm.algorithm);
    if *oid == OID_PKCS1_RSAENCRYPTION {
        Some((Algorithm::Rs256, DecodingKey::from_rsa_der(bits)))
    } else if *oid == OID_KEY_TYPE_EC_PUBLIC_KEY {
        Some((Algorithm::Es256, DecodingKey::from_ec_der(bits)))
    } else if *oid == OID_SIG_ED25519 {
        Some((Algorithm::EdDsa, DecodingKey::from_ed_der(bits)))
    } else {
        None
    }
}

/// The key in a JWK; `None` if its algorithm is not listed.
fn read_jwk(member: serde_json::Value, algorithms: &[Algorithm]) -> Result<Option<Key>, KeyProblem> {
    let jwk: Jwk = serde_json::from_value(member).map_err(|_| KeyProblem::Jwk)?;
    let algorithm = algorithm_of(&jwk).ok_or(KeyProblem::OtherType)?;
    if !algorithms.contains(&algorithm) {
        return Ok(None);
    }
    if !is_for(&jwk, algorithm) {
        return Err(KeyProblem::OtherUse);
    }
    let key = decoding_key(&jwk).ok_or(KeyProblem::Invalid(algorithm))?;
    Key::new(algorithm, jwk.common.key_id.as_deref().map(Into::into), key).map(Some)
}

/// The algorithm that fits the type of a JWK.
fn algorithm_of(jwk: &Jwk) -> Option<Algorithm> {
    match &jwk.algorithm {
        AlgorithmParameters::OctetKey(_) => Some(Algorithm::Hs256),
        AlgorithmParameters::RSA(_) => Some(Algorithm::Rs256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Some(Algorithm::Es256),
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Some(Algorithm::EdDsa),
        _ => None,
    }
}

fn is_for(jwk: &Jwk, algorithm: Algorithm) -> bool {
    let common = &jwk.common;
    let meant = KeyAlgorithm::from(jsonwebtoken::Algorithm::from(algorithm));
    common.key_algorithm.is_none_or(|named| named == meant)
        && common.public_key_use.as_ref().is_none_or(|named| *named == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|named| named.contains(&KeyOperations::Verify))
}

/// Reads the parameters of a JWK. Leading zeros of RSA numbers are removed: issuers write them, and the library then
/// refuses every signature.
fn decoding_key(jwk: &Jwk) -> Option<DecodingKey> {
    if let AlgorithmParameters::EllipticCurve(key) = &jwk.algorithm {
        // The point has only the length of both coordinates together.
        let is_full = |text: &str| text.len() == P256_COORDINATE_CHARS;
        if !is_full(&key.x) || !is_full(&key.y) {
            return None;
        }
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    let DecodingKeyKind::RsaModulusExponent { n, e } = key.kind() else { return Some(key) };
    let trimmed = |number: &[u8]| number.iter().position(|&byte| byte != 0).unwrap_or(0);
    Some(DecodingKey::from_rsa_raw_components(&n[trimmed(n)..], &e[trimmed(e)..]))
}
