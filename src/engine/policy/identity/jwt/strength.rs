//! Checks of public keys. A weak key verifies forged tokens; a broken key verifies no token.
//!
//! The crypto library parses each key as for a verification, so its checks apply when a key is loaded. It does not
//! check the order of Ed25519 keys; a table does.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
};
use jsonwebtoken::DecodingKeyKind;
use jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER;

use super::algorithm::Algorithm;
use super::problems::{KeyProblem, RSA_BITS};

/// The tag of an uncompressed point and its two coordinates (SEC 1, 2.3.3).
const P256_POINT_BYTES: usize = 65;

/// RFC 8032, 5.1.5.
const ED25519_BYTES: usize = 32;

/// The y coordinates of all points of Ed25519 whose order is 1, 2, 4 or 8, in little-endian order, without the sign of
/// x.
///
/// The last two are 0 and 1 plus the prime of the field. The other coordinates have no second encoding below 2^255.
const SMALL_ORDER_Y: [[u8; ED25519_BYTES]; 7] = [
    y_of(0x00, 0x00, 0x00),
    y_of(0x01, 0x00, 0x00),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    y_of(0xec, 0xff, 0x7f),
    y_of(0xed, 0xff, 0x7f),
    y_of(0xee, 0xff, 0x7f),
];

const fn y_of(first: u8, middle: u8, last: u8) -> [u8; ED25519_BYTES] {
    let mut y = [middle; ED25519_BYTES];
    y[0] = first;
    y[ED25519_BYTES - 1] = last;
    y
}

/// Checks the length of an RSA key, its modulus and its exponent.
pub(super) fn check_rsa(key: &DecodingKeyKind) -> Result<(), KeyProblem> {
    let of_der;
    let (n, e) = match key {
        DecodingKeyKind::RsaModulusExponent { n, e } => (n, e),
        DecodingKeyKind::SecretOrDer(der) => {
            let components = (DEFAULT_PROVIDER.key_utils.rsa_pub_components_from_public_key)(der);
            of_der = components.map_err(|_| KeyProblem::Invalid(Algorithm::Rs256))?;
            (&of_der.0, &of_der.1)
        }
    };
    // Before the library reads the modulus: its cost for a modulus of a megabyte is unknown.
    let bits = bits(n);
    if !RSA_BITS.contains(&bits) {
        return Err(KeyProblem::RsaBits(bits));
    }
    let der = RsaPublicKeyComponents { n, e }.as_der().map_err(|_| KeyProblem::RsaNumbers)?;
    let checked = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der.as_ref());
    checked.map(drop).map_err(|_| KeyProblem::RsaNumbers)
}

/// Checks that `point` is an uncompressed point on P-256.
pub(super) fn check_p256(point: &[u8]) -> Result<(), KeyProblem> {
    if point.len() != P256_POINT_BYTES || point[0] != 4 {
        return Err(KeyProblem::Invalid(Algorithm::Es256));
    }
    ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).map(drop).map_err(|_| KeyProblem::OffCurve)
}

/// Checks the length and the order of an Ed25519 key.
///
/// Anybody can sign for a key of small order: the product of such a point and any number has at most 8 values.
pub(super) fn check_ed25519(key: &[u8]) -> Result<(), KeyProblem> {
    let mut y: [u8; ED25519_BYTES] = key.try_into().map_err(|_| KeyProblem::Invalid(Algorithm::EdDsa))?;
    // The highest bit is the sign of x.
    y[ED25519_BYTES - 1] &= 0x7f;
    if SMALL_ORDER_Y.contains(&y) { Err(KeyProblem::SmallOrder) } else { Ok(()) }
}

/// The length of a big-endian number in bits.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    let number = &number[zeros..];
    number.first().map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize)
}
