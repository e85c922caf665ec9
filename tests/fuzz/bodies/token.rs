//! Tokens: no bytes are a good one by chance, and whatever one says that is signed is no reason to panic.
//!
//! With a first byte of `s`, the rest is signed: a head, a line end, claims.

use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm as Signing, EncodingKey, crypto};
use weir::base::time::Timestamp;
use weir::engine::policy::jwt::{Algorithm, KeyMaterial, Verifier, VerifierSpec};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const NOW: Timestamp = Timestamp::from_ns(1_800_000_000_000_000_000);

fn verifier() -> &'static Verifier {
    static VERIFIER: OnceLock<Verifier> = OnceLock::new();
    VERIFIER.get_or_init(|| {
        let pem = |bytes: &[u8]| KeyMaterial::Pem(bytes.to_vec());
        let mut verifier = Verifier::new(VerifierSpec {
            claim: "sub".into(),
            algorithms: vec![Algorithm::Hs256, Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa],
            keys: vec![
                KeyMaterial::Secret(SECRET.to_vec()),
                pem(include_bytes!("../../fixtures/keys/rsa-a.public.pem")),
                pem(include_bytes!("../../fixtures/keys/ec-p256.public.pem")),
                pem(include_bytes!("../../fixtures/keys/ed25519.public.pem")),
            ],
            fetched: None,
            issuer: None,
            audience: None,
            require_exp: false,
            leeway: Duration::from_secs(1),
        })
        .expect("keys");
        verifier.set_plan_claim("plan");
        verifier
    })
}

pub fn run(bytes: &[u8]) {
    let Some(rest) = bytes.strip_prefix(b"s") else {
        assert!(verifier().verify(bytes, NOW).is_err(), "a token was forged");
        return;
    };
    let mut parts = rest.splitn(2, |byte| *byte == b'\n');
    let (head, claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
    let key = EncodingKey::from_secret(SECRET).unwrap();
    let Ok(signature) = crypto::sign(signed.as_bytes(), &key, Signing::HS256) else { return };
    let Ok(verified) = verifier().verify(format!("{signed}.{signature}").as_bytes(), NOW) else { return };
    let says = |name: &str| {
        let claims: serde_json::Value = serde_json::from_slice(claims).ok()?;
        Some(claims.get(name).is_some())
    };
    assert!(says("sub") != Some(false), "who it is from was made up");
    assert!(verified.expires.is_none_or(|expires| expires > NOW), "it has expired");
}
