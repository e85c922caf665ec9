//! Valid tokens, and tokens with one error each.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header as JoseHeader};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::base::time::Timestamp;

const NOW_S: u64 = 1_800_000_000;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/keys/", $name)).as_slice()
    };
}

mod weak;

const RSA_PUBLIC: &[u8] = fixture!("rsa-a.public.pem");
const EC_PUBLIC: &[u8] = fixture!("ec-p256.public.pem");
const ED_PUBLIC: &[u8] = fixture!("ed25519.public.pem");

/// The signer of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Signer {
    Hmac(&'static [u8]),
    RsaA,
    RsaB,
    Ec,
    Ed,
}

impl Signer {
    fn key(self) -> EncodingKey {
        match self {
            Self::Hmac(secret) => EncodingKey::from_secret(secret).unwrap(),
            Self::RsaA => EncodingKey::from_rsa_pem(fixture!("rsa-a.private.pem")).unwrap(),
            Self::RsaB => EncodingKey::from_rsa_pem(fixture!("rsa-b.private.pem")).unwrap(),
            Self::Ec => EncodingKey::from_ec_pem(fixture!("ec-p256.private.pem")).unwrap(),
            Self::Ed => EncodingKey::from_ed_pem(fixture!("ed25519.private.pem")).unwrap(),
        }
    }

    fn algorithm(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::Hmac(_) => jsonwebtoken::Algorithm::HS256,
            Self::RsaA | Self::RsaB => jsonwebtoken::Algorithm::RS256,
            Self::Ec => jsonwebtoken::Algorithm::ES256,
            Self::Ed => jsonwebtoken::Algorithm::EdDSA,
        }
    }

    /// Signs any text as header and any text as payload.
    fn sign_raw(self, header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key(), self.algorithm()).unwrap();
        format!("{message}.{signature}")
    }

    fn sign(self, kid: Option<&str>, claims: &Value) -> String {
        let header = JoseHeader { kid: kid.map(str::to_owned), ..JoseHeader::new(self.algorithm()) };
        jsonwebtoken::encode(&header, claims, &self.key()).unwrap()
    }

    /// Its JWK, changed by `more`.
    fn jwk(self, more: &Value) -> Value {
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&self.key(), self.algorithm()).unwrap()).unwrap();
        for (name, value) in more.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        jwk
    }
}

/// A token with these claims, signed with a secret.
pub(crate) fn signed(secret: &'static [u8], claims: &Value) -> String {
    Signer::Hmac(secret).sign(None, claims)
}

fn jwks(keys: &[Value]) -> KeyMaterial {
    KeyMaterial::Jwks(json!({ "keys": keys }).to_string().into_bytes())
}

fn pem(pem: &[u8]) -> KeyMaterial {
    KeyMaterial::Pem(pem.to_vec())
}

fn spec(algorithms: &[&str], keys: Vec<KeyMaterial>) -> VerifierSpec {
    VerifierSpec {
        claim: "sellerId".into(),
        algorithms: algorithms.iter().map(|name| Algorithm::of_name(name).unwrap()).collect(),
        keys,
        fetched: None,
        issuer: None,
        audience: None,
        require_exp: false,
        leeway: Duration::from_secs(10),
    }
}

fn all_names() -> [&'static str; 4] {
    Algorithm::ALL.map(|(name, _)| name)
}

fn hmac_spec() -> VerifierSpec {
    spec(&["HS256"], vec![KeyMaterial::Secret(SECRET.to_vec())])
}

fn verify(spec: VerifierSpec, token: &str) -> Result<String, TokenError> {
    let now = Timestamp::from_ns(NOW_S * 1_000_000_000);
    Verifier::new(spec).unwrap().verify(token.as_bytes(), now).map(|verified| verified.claimed.value.to_string())
}

fn seller() -> Value {
    json!({ "sellerId": "s-1" })
}

#[test]
fn a_plan_is_text_or_a_number_in_another_claim() {
    let long = "x".repeat(257);
    let plan = |claim: &str, claims: Value| {
        let mut verifier = Verifier::new(hmac_spec()).unwrap();
        verifier.set_plan_claim(claim);
        let token = Signer::Hmac(SECRET).sign(None, &claims);
        let verified = verifier.verify(token.as_bytes(), Timestamp::from_ns(NOW_S * 1_000_000_000));
        verified.map(|verified| verified.claimed.plan.as_deref().map(str::to_owned))
    };
    for (claim, claims, expected) in [
        ("plan", json!({ "sellerId": 1, "plan": "premium" }), Some("premium")),
        ("plan", json!({ "plan": "premium", "sellerId": 1, "Plan": "free" }), Some("premium")),
        ("https://a.example/plan", json!({ "sellerId": 1, "https://a.example/plan": "p" }), Some("p")),
        ("sellerId", json!({ "sellerId": "s" }), Some("s")),
        ("iss", json!({ "sellerId": 1, "iss": "issuer" }), Some("issuer")),
        ("plan", json!({ "sellerId": 1 }), None),
        ("plan", json!({ "sellerId": 1, "plan": "" }), None),
        ("plan", json!({ "sellerId": 1, "plan": 7 }), Some("7")),
        ("plan", json!({ "sellerId": 1, "plan": 7.5 }), None),
        ("plan", json!({ "sellerId": 1, "plan": null }), None),
        ("plan", json!({ "sellerId": 1, "plan": ["premium"] }), None),
        ("plan", json!({ "sellerId": 1, "plan": { "name": "premium" } }), None),
        ("plan", json!({ "sellerId": 1, "plan": long }), None),
        ("sellerId", json!({ "sellerId": 7 }), Some("7")),
    ] {
        assert_eq!(plan(claim, claims.clone()), Ok(expected.map(str::to_owned)), "{claims}");
    }
    assert_eq!(plan("plan", json!({ "plan": "premium" })), Err(TokenError::Claim));
    // Without the option the claim is not checked.
    let token = Signer::Hmac(SECRET).sign_raw("{\"alg\":\"HS256\"}", r#"{"sellerId":1,"plan":"a","plan":"b"}"#);
    let verifier = Verifier::new(hmac_spec()).unwrap();
    assert_eq!(verifier.verify(token.as_bytes(), Timestamp::ZERO).unwrap().claimed.plan, None);
}

#[test]
fn algorithms_by_name() {
    for (name, algorithm) in Algorithm::ALL {
        assert_eq!((Algorithm::of_name(name), algorithm.name()), (Some(algorithm), name));
    }
    for name in ["none", "hs256", "HS512", "PS256", ""] {
        assert_eq!(Algorithm::of_name(name), None, "{name}");
    }
}

#[test]
fn every_algorithm_from_every_material() {
    let all = &all_names();
    for (signer, material) in [
        (Signer::Hmac(SECRET), KeyMaterial::Secret(SECRET.to_vec())),
        (Signer::RsaA, pem(RSA_PUBLIC)),
        (Signer::RsaA, pem(fixture!("rsa-a.pkcs1.pem"))),
        (Signer::RsaA, pem(fixture!("rsa-a.certificate.pem"))),
        (Signer::Ec, pem(EC_PUBLIC)),
        (Signer::Ed, pem(ED_PUBLIC)),
        (Signer::Hmac(SECRET), jwks(&[Signer::Hmac(SECRET).jwk(&json!({}))])),
        (Signer::RsaA, jwks(&[Signer::RsaA.jwk(&json!({}))])),
        (Signer::Ec, jwks(&[Signer::Ec.jwk(&json!({}))])),
        (Signer::Ed, jwks(&[Signer::Ed.jwk(&json!({}))])),
    ] {
        let good = signer.sign(Some("any"), &seller());
        assert_eq!(verify(spec(all, vec![material.clone()]), &good).as_deref(), Ok("s-1"), "{signer:?} {material:?}");

        let name = all.iter().find(|name| **name != format!("{:?}", signer.algorithm())).unwrap();
        let (head, signature) = good.rsplit_once('.').unwrap();
        let payload = URL_SAFE_NO_PAD.encode(r#"{"sellerId":"s-2"}"#);
        let header = head.split_once('.').unwrap().0;
        for (bad, error) in [
            (format!("{header}.{payload}.{signature}"), TokenError::Signature),
            (format!("{head}.{}", URL_SAFE_NO_PAD.encode("no signature")), TokenError::Signature),
            (format!("{head}."), TokenError::Signature),
            (signer.sign_raw(json!({ "alg": name }).to_string(), "{}"), TokenError::UnknownKey),
        ] {
            assert_eq!(verify(spec(all, vec![material.clone()]), &bad), Err(error), "{signer:?} {bad}");
        }
    }
}

#[test]
fn the_token_does_not_choose_its_algorithm() {
    // The public key as an HMAC secret, the classic attack.
    let confused = Signer::Hmac(RSA_PUBLIC).sign(None, &seller());
    let none =
        format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(r#"{"sellerId":"s-1"}"#));
    let rsa = Signer::RsaA.sign(None, &seller());
    for (algorithms, key, token, error) in [
        (&["RS256"][..], pem(RSA_PUBLIC), &confused, TokenError::Algorithm),
        (&["RS256", "HS256"], pem(RSA_PUBLIC), &confused, TokenError::UnknownKey),
        (&["HS256"], KeyMaterial::Secret(SECRET.to_vec()), &rsa, TokenError::Algorithm),
        (&["HS256", "RS256"], KeyMaterial::Secret(SECRET.to_vec()), &rsa, TokenError::UnknownKey),
        (&all_names(), pem(RSA_PUBLIC), &none, TokenError::Algorithm),
        (&["HS256"], KeyMaterial::Secret(vec![b'x'; 32]), &confused, TokenError::Signature),
    ] {
        assert_eq!(verify(spec(algorithms, vec![key]), token), Err(error), "{algorithms:?} {token}");
    }
}

#[test]
fn a_token_selects_keys_by_kid() {
    let a = || Signer::RsaA.jwk(&json!({ "kid": "a" }));
    let b = || Signer::RsaB.jwk(&json!({ "kid": "b" }));
    let bare_b = || Signer::RsaB.jwk(&json!({}));
    let ec_a = || Signer::Ec.jwk(&json!({ "kid": "a" }));
    for (keys, signer, kid, expected) in [
        (vec![jwks(&[a(), b()])], Signer::RsaB, Some("b"), Ok("s-1")),
        (vec![jwks(&[a(), b()])], Signer::RsaB, Some("a"), Err(TokenError::Signature)),
        (vec![jwks(&[a(), b()])], Signer::RsaB, Some("c"), Err(TokenError::UnknownKey)),
        (vec![jwks(&[a(), b()])], Signer::RsaB, None, Ok("s-1")),
        (vec![jwks(&[a(), bare_b()])], Signer::RsaB, Some("c"), Ok("s-1")),
        (vec![jwks(&[a(), bare_b()])], Signer::RsaB, Some("a"), Ok("s-1")),
        (vec![jwks(&[ec_a()]), pem(RSA_PUBLIC)], Signer::RsaA, Some("a"), Ok("s-1")),
        (vec![jwks(&[ec_a()])], Signer::RsaA, Some("a"), Err(TokenError::UnknownKey)),
        (vec![pem(RSA_PUBLIC), pem(fixture!("rsa-b.public.pem"))], Signer::RsaB, None, Ok("s-1")),
        (vec![pem(RSA_PUBLIC), pem(fixture!("rsa-b.public.pem"))], Signer::RsaB, Some("x"), Ok("s-1")),
        (vec![pem(RSA_PUBLIC)], Signer::RsaB, None, Err(TokenError::Signature)),
    ] {
        let found = verify(spec(&["RS256", "ES256"], keys.clone()), &signer.sign(kid, &seller()));
        assert_eq!(found.as_deref(), expected.as_ref().map(|text| *text), "{keys:?} {signer:?} {kid:?}");
    }
}

#[test]
fn wrong_keys_are_errors() {
    let rs = Algorithm::Rs256;
    let rsa = |more: Value| Signer::RsaA.jwk(&more);
    let short_n = URL_SAFE_NO_PAD.encode([0xFF; 128]);
    for (algorithms, keys, index, problem) in [
        (&["RS256"][..], vec![], 0, KeyProblem::NoKeys),
        (&["RS256"], vec![pem(b"nonsense")], 0, KeyProblem::Pem),
        (&["RS256"], vec![pem(RSA_PUBLIC), pem(b"")], 1, KeyProblem::Pem),
        (&["RS256"], vec![pem(EC_PUBLIC)], 0, KeyProblem::Unlisted(Algorithm::Es256)),
        (&["RS256"], vec![KeyMaterial::Secret(SECRET.to_vec())], 0, KeyProblem::Unlisted(Algorithm::Hs256)),
        (&["RS256"], vec![pem(fixture!("rsa-a.private.pem"))], 0, KeyProblem::Pem),
        (&["ES256"], vec![pem(fixture!("ec-p256.private.pem"))], 0, KeyProblem::Pem),
        (&["RS256"], vec![pem(fixture!("rsa-1024.public.pem"))], 0, KeyProblem::RsaBits(1024)),
        (&["RS256"], vec![jwks(&[rsa(json!({ "n": short_n }))])], 0, KeyProblem::RsaBits(1024)),
        (&["RS256"], vec![jwks(&[rsa(json!({ "n": "" }))])], 0, KeyProblem::RsaBits(0)),
        (&["RS256"], vec![jwks(&[rsa(json!({ "n": "!" }))])], 0, KeyProblem::Invalid(rs)),
        (&["ES256"], vec![pem(fixture!("ec-p384.public.pem"))], 0, KeyProblem::Invalid(Algorithm::Es256)),
        (&["ES256"], vec![jwks(&[Signer::Ec.jwk(&json!({ "x": "AA" }))])], 0, KeyProblem::Invalid(Algorithm::Es256)),
        (&["EdDSA"], vec![jwks(&[Signer::Ed.jwk(&json!({ "x": "AA" }))])], 0, KeyProblem::Invalid(Algorithm::EdDsa)),
        (&["HS256"], vec![KeyMaterial::Secret(vec![])], 0, KeyProblem::ShortSecret),
        (&["HS256"], vec![KeyMaterial::Secret(SECRET[1..].to_vec())], 0, KeyProblem::ShortSecret),
        (&["RS256"], vec![KeyMaterial::Jwks(b"{}".to_vec())], 0, KeyProblem::Jwks),
        (&["RS256"], vec![jwks(&[])], 0, KeyProblem::NoUsableJwk),
        (&["RS256"], vec![jwks(&[rsa(json!({ "use": "enc" }))])], 0, KeyProblem::NoUsableJwk),
        (&["RS256"], vec![jwks(&[rsa(json!({ "key_ops": ["sign"] }))])], 0, KeyProblem::NoUsableJwk),
        (&["RS256"], vec![jwks(&[rsa(json!({ "alg": "RS512" }))])], 0, KeyProblem::NoUsableJwk),
        (&["RS256"], vec![jwks(&[rsa(json!({ "alg": "HS256" }))])], 0, KeyProblem::NoUsableJwk),
        (&["RS256"], vec![jwks(&[rsa(json!({ "kty": "new" }))])], 0, KeyProblem::NoUsableJwk),
        (&["ES256"], vec![jwks(&[Signer::Ec.jwk(&json!({ "crv": "P-384" }))])], 0, KeyProblem::NoUsableJwk),
        (
            &["RS256"],
            vec![jwks(&[rsa(json!({ "kid": "k" })), Signer::RsaB.jwk(&json!({ "kid": "k" }))])],
            0,
            KeyProblem::DuplicateKid("k".into()),
        ),
        (
            &["RS256"],
            vec![jwks(&[rsa(json!({ "kid": "k" }))]), jwks(&[Signer::RsaB.jwk(&json!({ "kid": "k" }))])],
            1,
            KeyProblem::DuplicateKid("k".into()),
        ),
        (&["RS256"], (0..65).map(|_| pem(RSA_PUBLIC)).collect(), 64, KeyProblem::TooMany),
    ] {
        let error = Verifier::new(spec(algorithms, keys)).unwrap_err();
        assert_eq!(error, KeyError { index, problem });
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn keys_of_a_set_that_are_for_something_else_are_skipped() {
    let set = jwks(&[
        Signer::RsaA.jwk(&json!({ "kid": "k", "use": "enc" })),
        json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA" }),
        json!({ "kty": "new" }),
        Signer::RsaB.jwk(&json!({ "kid": "k", "use": "sig", "key_ops": ["verify"] })),
    ]);
    let spec = || spec(&["RS256"], vec![set.clone()]);
    assert_eq!(verify(spec(), &Signer::RsaB.sign(Some("k"), &seller())).as_deref(), Ok("s-1"));
    assert_eq!(verify(spec(), &Signer::RsaA.sign(None, &seller())), Err(TokenError::Signature));
}

#[test]
fn debug_output_has_no_secret() {
    let spec = hmac_spec();
    let shown = format!("{spec:?} {:?}", Verifier::new(spec.clone()).unwrap());
    let bytes = format!("{SECRET:?}");
    assert!(!shown.contains("0123456789") && !shown.contains(&bytes[1..bytes.len() - 1]), "{shown}");
}

/// Claims, whether `exp` is required, and the outcome at `NOW_S` with a leeway of 10 s.
#[test]
fn times() {
    let now = NOW_S;
    for (exp, nbf, require_exp, expected) in [
        (None, None, false, Ok(())),
        (None, None, true, Err(TokenError::MissingExp)),
        (Some(json!(now + 1)), None, true, Ok(())),
        (Some(json!(now - 9)), None, true, Ok(())),
        (Some(json!(now - 10)), None, true, Err(TokenError::Expired)),
        (Some(json!(1_799_999_990.5)), None, true, Ok(())),
        (Some(json!(1_799_999_989.5)), None, true, Err(TokenError::Expired)),
        (Some(json!(0)), None, false, Err(TokenError::Expired)),
        (Some(json!(-1)), None, false, Err(TokenError::Expired)),
        (Some(json!(-1.5)), None, false, Err(TokenError::Expired)),
        (Some(json!(u64::MAX)), None, false, Ok(())),
        (Some(json!(1e300)), None, false, Ok(())),
        (Some(json!("1900000000")), None, false, Err(TokenError::Expired)),
        (Some(json!(null)), None, false, Err(TokenError::Expired)),
        (Some(json!([now + 1])), None, false, Err(TokenError::Expired)),
        (Some(json!({ "at": now + 1 })), None, false, Err(TokenError::Expired)),
        (Some(json!(true)), None, false, Err(TokenError::Expired)),
        (None, Some(json!(now + 10)), false, Ok(())),
        (None, Some(json!(now + 11)), false, Err(TokenError::NotYetValid)),
        (None, Some(json!(1_800_000_010.5)), false, Err(TokenError::NotYetValid)),
        (None, Some(json!(-5)), false, Ok(())),
        (None, Some(json!(u64::MAX)), false, Err(TokenError::NotYetValid)),
        (None, Some(json!("0")), false, Err(TokenError::NotYetValid)),
        (None, Some(json!(null)), false, Err(TokenError::NotYetValid)),
    ] {
        let mut claims = seller();
        for (name, value) in [("exp", &exp), ("nbf", &nbf)] {
            if let Some(value) = value {
                claims[name] = value.clone();
            }
        }
        let token = Signer::Hmac(SECRET).sign(None, &claims);
        let found = verify(VerifierSpec { require_exp, ..hmac_spec() }, &token).map(drop);
        assert_eq!(found, expected, "{claims}");
    }
}

#[test]
fn a_token_expires_to_the_nanosecond() {
    let token = Signer::Hmac(SECRET).sign(None, &json!({ "sellerId": 1, "exp": 100 }));
    let verifier = Verifier::new(hmac_spec()).unwrap();
    let end = Timestamp::from_ns(110_000_000_000);
    assert_eq!(verifier.verify(token.as_bytes(), end.saturating_sub_ns(1)).unwrap().expires, Some(end));
    assert_eq!(verifier.verify(token.as_bytes(), end), Err(TokenError::Expired));
    let forever = Signer::Hmac(SECRET).sign(None, &seller());
    assert_eq!(verifier.verify(forever.as_bytes(), end).unwrap().expires, None);
}

#[test]
fn issuer_audience_and_client() {
    let long = "x".repeat(256);
    let rows: &[(&str, Value, Result<&str, TokenError>)] = &[
        ("sellerId", json!({ "sellerId": "s-1" }), Ok("s-1")),
        ("sellerId", json!({ "sellerId": 42 }), Ok("42")),
        ("sellerId", json!({ "sellerId": -42 }), Ok("-42")),
        ("sellerId", json!({ "sellerId": u64::MAX }), Ok("18446744073709551615")),
        ("sellerId", json!({ "sellerId": long }), Ok(&long)),
        ("sellerId", json!({ "sellerId": format!("{long}x") }), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerId": "" }), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerId": null }), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerId": 1.5 }), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerId": true }), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerId": ["s-1"] }), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerId": { "id": 1 } }), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerid": "s-1" }), Err(TokenError::Claim)),
        ("sellerId", json!({}), Err(TokenError::Claim)),
        ("sellerId", json!({ "sellerId": "é\"\\\u{1}" }), Ok("é\"\\\u{1}")),
        ("sub", json!({ "sub": "u", "sellerId": "s-1" }), Ok("u")),
        ("exp", json!({ "exp": 1_900_000_000 }), Ok("1900000000")),
    ];
    for (claim, claims, expected) in rows {
        let mut claims = claims.clone();
        claims["iss"] = json!("issuer");
        claims["aud"] = json!(["other", 5, "us"]);
        let spec = || VerifierSpec {
            claim: (*claim).to_owned(),
            issuer: Some("issuer".into()),
            audience: Some("us".into()),
            ..hmac_spec()
        };
        let found = verify(spec(), &Signer::Hmac(SECRET).sign(None, &claims));
        assert_eq!(found.as_deref(), expected.as_ref().map(|text| *text), "{claims}");
    }
    for (name, value, expected) in [
        ("iss", json!("issuer"), Ok(())),
        ("iss", json!("Issuer"), Err(TokenError::Issuer)),
        ("iss", json!(["issuer"]), Err(TokenError::Issuer)),
        ("iss", json!(null), Err(TokenError::Issuer)),
        ("aud", json!("us"), Ok(())),
        ("aud", json!(["us"]), Ok(())),
        ("aud", json!([["us"]]), Err(TokenError::Audience)),
        ("aud", json!("use"), Err(TokenError::Audience)),
        ("aud", json!([]), Err(TokenError::Audience)),
        ("aud", json!({ "us": "us" }), Err(TokenError::Audience)),
    ] {
        let mut claims = json!({ "sellerId": "s-1", "iss": "issuer", "aud": "us" });
        claims[name] = value;
        let spec = VerifierSpec { issuer: Some("issuer".into()), audience: Some("us".into()), ..hmac_spec() };
        assert_eq!(verify(spec, &Signer::Hmac(SECRET).sign(None, &claims)).map(drop), expected, "{claims}");
    }
}

/// Header, payload and the outcome of tokens with a valid signature.
#[test]
fn malformed_tokens_are_refused() {
    let deep = format!(r#"{{"sellerId":"s-1","aud":{}{}}}"#, "[".repeat(1000), "]".repeat(1000));
    for (header, payload, expected) in [
        (r#"{"alg":"HS256"}"#, r#"{"sellerId":"s-1"}"#, Ok(())),
        (r#" {"jwk":{},"typ":"x","alg":"HS25\u0036","kid":null} "#, r#"{"seller\u0049d":"s-1"}"#, Ok(())),
        (r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, "{}", Err(TokenError::Malformed)),
        (r#"{"alg":"HS256","crit":[]}"#, "{}", Err(TokenError::Malformed)),
        (r#"{"alg":"HS256","crit":null}"#, "{}", Err(TokenError::Malformed)),
        (r#"{"alg":"HS512"}"#, "{}", Err(TokenError::Algorithm)),
        (r#"{"alg":"hs256"}"#, "{}", Err(TokenError::Algorithm)),
        (r#"{"alg":"HS256","alg":"HS256"}"#, "{}", Err(TokenError::Malformed)),
        (r#"{"alg":["HS256"]}"#, "{}", Err(TokenError::Malformed)),
        (r#"{"alg":"HS256","kid":1}"#, "{}", Err(TokenError::Malformed)),
        (r#"["HS256",null]"#, r#"{"sellerId":"s-1"}"#, Err(TokenError::Malformed)),
        ("{}", "{}", Err(TokenError::Malformed)),
        ("", "{}", Err(TokenError::Malformed)),
        (r#"{"alg":"HS256"}"#, "", Err(TokenError::Malformed)),
        (r#"{"alg":"HS256"}"#, "[]", Err(TokenError::Malformed)),
        (r#"{"alg":"HS256"}"#, r#"{"sellerId":"s-1"} x"#, Err(TokenError::Malformed)),
        (r#"{"alg":"HS256"}"#, r#"{"sellerId":"a","sellerId":"b"}"#, Err(TokenError::Malformed)),
        (r#"{"alg":"HS256"}"#, r#"{"exp":1,"exp":1900000000}"#, Err(TokenError::Malformed)),
        (r#"{"alg":"HS256"}"#, &deep, Err(TokenError::Malformed)),
    ] {
        let token = Signer::Hmac(SECRET).sign_raw(header, payload);
        assert_eq!(verify(hmac_spec(), &token).map(drop), expected, "{header} {payload:.60}");
    }
}

#[test]
fn long_and_cut_tokens_are_refused() {
    let good = Signer::Hmac(SECRET).sign(None, &seller());
    for end in 0..good.len() {
        assert!(verify(hmac_spec(), &good[..end]).is_err(), "{end}");
    }
    for bad in ["", ".", "..", "...", "a.b.c", &format!("{good}."), &format!("{good}="), &format!(" {good}")] {
        assert_eq!(verify(hmac_spec(), bad), Err(TokenError::Malformed), "{bad}");
    }
    // The last character of a signature of 32 bytes has two spare bits, which must be zero.
    let spare = (b'A'..=b'z').filter(|last| {
        let mut token = good.clone().into_bytes();
        *token.last_mut().unwrap() = *last;
        verify(hmac_spec(), str::from_utf8(&token).unwrap()).is_ok()
    });
    assert_eq!(spare.count(), 1);

    let padded = |bytes: usize| {
        let payload = json!({ "sellerId": "s-1", "pad": "x".repeat(bytes) });
        Signer::Hmac(SECRET).sign(None, &payload)
    };
    let longest = (5900..6200).rev().map(padded).find(|token| token.len() <= TOKEN_BYTES_MAX).unwrap();
    assert_eq!(verify(hmac_spec(), &longest).as_deref(), Ok("s-1"));
    assert_eq!(verify(hmac_spec(), &"x".repeat(TOKEN_BYTES_MAX + 1)), Err(TokenError::TooLong));
    assert_eq!(verify(hmac_spec(), &"x".repeat(TOKEN_BYTES_MAX)), Err(TokenError::Malformed));
}

fn all_verifier() -> Verifier {
    let keys = vec![KeyMaterial::Secret(SECRET.to_vec()), pem(RSA_PUBLIC), pem(EC_PUBLIC), pem(ED_PUBLIC)];
    Verifier::new(spec(&all_names(), keys)).unwrap()
}

proptest! {
    #[test]
    fn any_bytes_are_refused(token in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(all_verifier().verify(&token, Timestamp::ZERO).is_err());
    }

    #[test]
    fn any_parts_signed_or_not_do_not_panic(header in ".{0,60}", payload in ".{0,60}") {
        let token = Signer::Hmac(SECRET).sign_raw(&header, &payload);
        prop_assert!(all_verifier().verify(token.as_bytes(), Timestamp::ZERO).is_err());
    }

    #[test]
    fn a_changed_token_is_refused(
        signer in prop::sample::select(vec![Signer::Hmac(SECRET), Signer::RsaA, Signer::Ec, Signer::Ed]),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut token = signer.sign(None, &seller()).into_bytes();
        let at = at.index(token.len());
        let is_same = token[at] == byte;
        token[at] = byte;
        prop_assert_eq!(all_verifier().verify(&token, Timestamp::ZERO).is_ok(), is_same);
    }

    /// Any text in the claims that Weir reads causes no panic.
    #[test]
    fn any_claims_do_not_panic(exp in any::<f64>(), nbf in any::<i64>(), value in any::<String>()) {
        let token = Signer::Hmac(SECRET).sign(None, &json!({ "exp": exp, "nbf": nbf, "sellerId": value }));
        let _ = all_verifier().verify(token.as_bytes(), Timestamp::from_ns(u64::MAX));
    }
}

/// A JWK set with the public half of the Ed25519 key under this `kid`.
fn set_of(kid: &str) -> String {
    let mut jwk = Jwk::from_encoding_key(&Signer::Ed.key(), Signer::Ed.algorithm()).unwrap();
    jwk.common.key_id = Some(kid.to_owned());
    json!({ "keys": [jwk] }).to_string()
}

#[test]
fn configured_keys_precede_fetched_keys() {
    let now = Timestamp::from_ns(NOW_S * 1_000_000_000);
    let url: http::Uri = "https://issuer.example/keys".parse().unwrap();
    assert!(FetchedKeys::new(url.clone(), &[Algorithm::Hs256]).is_none());
    let fetched = FetchedKeys::new(url, &[Algorithm::Hs256, Algorithm::EdDsa]).unwrap();
    let keys = vec![KeyMaterial::Secret(SECRET.to_vec())];
    let verifier =
        Verifier::new(VerifierSpec { fetched: Some(Arc::clone(&fetched)), ..spec(&["HS256", "EdDSA"], keys) }).unwrap();
    let result = |token: &str| verifier.verify(token.as_bytes(), now).map(drop);
    let [known, mine, other] = [
        Signer::Hmac(SECRET).sign(None, &seller()),
        Signer::Ed.sign(Some("a"), &seller()),
        Signer::Ed.sign(Some("b"), &seller()),
    ];
    assert_eq!((result(&known), result(&mine)), (Ok(()), Err(TokenError::NoKeys)));
    assert!(!fetched.is_wanted(), "they are fetched anyway");

    fetched.replace(set_of("a").as_bytes()).unwrap();
    assert_eq!((result(&known), result(&mine), result(&other)), (Ok(()), Ok(()), Err(TokenError::UnknownKey)));
    assert!(fetched.is_wanted());
    assert!(fetched.replace(b"{}").is_err() && fetched.is_wanted());
    assert_eq!(result(&mine), Ok(()), "what is no set changes nothing");
    fetched.replace(set_of("b").as_bytes()).unwrap();
    assert_eq!((result(&mine), result(&other)), (Err(TokenError::UnknownKey), Ok(())));

    // A fetched secret is no key.
    let x = URL_SAFE_NO_PAD.encode(SECRET);
    let oct = json!({ "keys": [{ "kty": "oct", "k": x }] }).to_string();
    assert_eq!(fetched.replace(oct.as_bytes()).unwrap_err(), KeyProblem::NoUsableJwk);
}

/// A key without `kid` may have signed a token that names a key, and does not show that the named key is known.
#[test]
fn keys_without_kid_hide_no_unknown_key() {
    let kid = |kid: &str| json!({ "kid": kid });
    let secret = || KeyMaterial::Secret(SECRET.to_vec());
    let bad = Err(TokenError::Signature);
    for (configured, fetched, signer, named, expected, is_wanted) in [
        (pem(RSA_PUBLIC), Signer::Ed.jwk(&kid("a")), Signer::RsaB, Some("new"), bad, true),
        (pem(RSA_PUBLIC), Signer::Ed.jwk(&kid("a")), Signer::RsaB, None, bad, false),
        (pem(RSA_PUBLIC), Signer::Ed.jwk(&kid("a")), Signer::RsaA, Some("new"), Ok(()), false),
        (pem(RSA_PUBLIC), Signer::RsaA.jwk(&kid("new")), Signer::RsaB, Some("new"), bad, false),
        (jwks(&[Signer::RsaA.jwk(&kid("new"))]), Signer::Ed.jwk(&kid("a")), Signer::RsaB, Some("new"), bad, false),
        (secret(), Signer::RsaA.jwk(&json!({})), Signer::RsaB, Some("new"), bad, true),
        (secret(), Signer::RsaA.jwk(&json!({})), Signer::RsaB, None, bad, false),
        (secret(), Signer::RsaA.jwk(&json!({})), Signer::Ec, None, Err(TokenError::UnknownKey), true),
    ] {
        let keys =
            FetchedKeys::new("https://issuer.example/keys".parse().unwrap(), &Algorithm::ALL.map(|(_, one)| one));
        let keys = keys.unwrap();
        keys.replace(json!({ "keys": [fetched] }).to_string().as_bytes()).unwrap();
        let what = format!("{configured:?} {fetched} {signer:?} {named:?}");
        let spec = VerifierSpec { fetched: Some(Arc::clone(&keys)), ..spec(&all_names(), vec![configured]) };
        assert_eq!(verify(spec, &signer.sign(named, &seller())).map(drop), expected, "{what}");
        assert_eq!(keys.is_wanted(), is_wanted, "{what}");
    }
}
