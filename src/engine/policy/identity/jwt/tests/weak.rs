//! Unsafe keys, and tokens that are forged with them.

use aws_lc_rs::signature::{ED25519, VerificationAlgorithm as _};
use base64::engine::general_purpose::STANDARD;

use super::*;

/// A PEM block with this content.
fn armoured(label: &str, der: &[u8]) -> KeyMaterial {
    pem(format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der)).as_bytes())
}

/// The content of the only block of a PEM file.
fn der(pem: &[u8]) -> Vec<u8> {
    let lines = str::from_utf8(pem).unwrap().lines();
    STANDARD.decode(lines.filter(|line| !line.starts_with('-')).collect::<String>()).unwrap()
}

fn encoded(bytes: &[u8]) -> Value {
    json!(URL_SAFE_NO_PAD.encode(bytes))
}

fn decoded(jwk: &Value, name: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap()
}

/// The problem of a verifier with this key.
fn refused(algorithm: &str, material: KeyMaterial) -> KeyProblem {
    Verifier::new(spec(&[algorithm], vec![material])).unwrap_err().problem
}

fn key_of_32_bytes(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut key = [middle; 32];
    (key[0], key[31]) = (first, last);
    key
}

/// All encodings of points of small order: eight canonical and six others.
fn small_order_keys() -> Vec<[u8; 32]> {
    let hex = |text: &str| -> [u8; 32] {
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        std::array::from_fn(byte)
    };
    let positive = [
        key_of_32_bytes(0, 0, 0),
        key_of_32_bytes(1, 0, 0),
        hex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
        hex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
        key_of_32_bytes(0xec, 0xff, 0x7f),
        key_of_32_bytes(0xed, 0xff, 0x7f),
        key_of_32_bytes(0xee, 0xff, 0x7f),
    ];
    let negative = positive.map(|mut key| {
        key[31] |= 0x80;
        key
    });
    positive.into_iter().chain(negative).collect()
}

/// A token that verifies under a key of small order, made without a private key. `None` if the library refuses the
/// key.
fn forged(key: &[u8; 32], kid: &str) -> Option<String> {
    // R is the neutral element and S is 0. That verifies if the hash of R, key and message is a multiple of the order.
    let signature = [key_of_32_bytes(1, 0, 0), [0; 32]].concat();
    let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "EdDSA", "kid": kid }).to_string());
    let message = |number: u32| {
        let payload = json!({ "sellerId": "forged", "number": number }).to_string();
        format!("{header}.{}", URL_SAFE_NO_PAD.encode(payload))
    };
    let verifies = |message: &String| ED25519.verify_sig(key, message.as_bytes(), &signature).is_ok();
    let message = (0..1000).map(message).find(verifies)?;
    Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(&signature)))
}

#[test]
fn ed25519_keys_of_small_order_are_refused() {
    let now = Timestamp::from_ns(NOW_S * 1_000_000_000);
    // SubjectPublicKeyInfo (RFC 8410, 4).
    let spki = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let keys = small_order_keys();
    assert_eq!(keys.len(), 14);
    let mut forgeries = 0;
    for key in keys {
        let weak = Signer::Ed.jwk(&json!({ "x": encoded(&key), "kid": "weak" }));
        let good = Signer::Ed.jwk(&json!({ "kid": "good" }));
        assert_eq!(refused("EdDSA", armoured("PUBLIC KEY", &[&spki, &key[..]].concat())), KeyProblem::SmallOrder);
        assert_eq!(refused("EdDSA", jwks(&[good.clone(), weak.clone()])), KeyProblem::SmallOrder);

        let url = "https://issuer.example/keys".parse().unwrap();
        let fetched = FetchedKeys::new(url, &[Algorithm::EdDsa]).unwrap();
        let alone = json!({ "keys": [&weak] }).to_string();
        assert_eq!(fetched.replace(alone.as_bytes()), Err(KeyProblem::SmallOrder));
        let skipped = fetched.replace(json!({ "keys": [weak, good] }).to_string().as_bytes()).unwrap().unwrap();
        assert_eq!(skipped.count, 1);
        let verifier = Verifier::new(VerifierSpec { fetched: Some(fetched), ..spec(&["EdDSA"], Vec::new()) }).unwrap();
        if let Some(token) = forged(&key, "weak") {
            forgeries += 1;
            assert_eq!(verifier.verify(token.as_bytes(), now), Err(TokenError::UnknownKey), "{key:?}");
        }
        let good = Signer::Ed.sign(Some("good"), &seller());
        assert_eq!(verifier.verify(good.as_bytes(), now).map(drop), Ok(()));
    }
    assert_eq!(forgeries, 8, "the library alone accepts the canonical ones");
}

/// `RSAPublicKey` (RFC 8017, A.1.1) of a modulus whose highest bit is set.
fn pkcs1(modulus: &[u8], exponent: u8) -> Vec<u8> {
    let integer = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[0x02, 0x82, length[0], length[1]], bytes].concat()
    };
    let numbers = [integer(&[&[0], modulus].concat()), vec![0x02, 0x01, exponent]].concat();
    let length = u16::try_from(numbers.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82, length[0], length[1]], &numbers[..]].concat()
}

#[test]
fn rsa_keys_with_bad_numbers_are_refused() {
    let jwk = Signer::RsaA.jwk(&json!({}));
    let (n, e) = (decoded(&jwk, "n"), decoded(&jwk, "e"));
    let mut even = n.clone();
    *even.last_mut().unwrap() &= 0xfe;
    let long = |bits: usize| {
        let mut number = vec![0xff; bits.div_ceil(8)];
        number[0] >>= number.len() * 8 - bits;
        number
    };
    let numbers = Err(KeyProblem::RsaNumbers);
    for (n, e, expected) in [
        (n.as_slice(), e.as_slice(), Ok(())),
        (&n, &[3], Ok(())),
        (&n, &[0, 0, 3], Ok(())),
        (&[&[0, 0], &n[..]].concat(), &e, Ok(())),
        (&n, &[1, 0xff, 0xff, 0xff, 0xff], Ok(())),
        (&n, &[2, 0, 0, 0, 1], numbers.clone()),
        (&n, &[0xff; 256], numbers.clone()),
        (&n, &n, numbers.clone()),
        (&n, &[], numbers.clone()),
        (&n, &[0], numbers.clone()),
        (&n, &[1], numbers.clone()),
        (&n, &[0, 1], numbers.clone()),
        (&n, &[2], numbers.clone()),
        (&n, &[4], numbers.clone()),
        (&n, &[1, 0, 0], numbers.clone()),
        (&even, &e, numbers),
        (&long(2047), &e, Err(KeyProblem::RsaBits(2047))),
        (&long(2048), &e, Ok(())),
        (&long(8192), &e, Ok(())),
        (&long(8193), &e, Err(KeyProblem::RsaBits(8193))),
        (&long(1 << 20), &e, Err(KeyProblem::RsaBits(1 << 20))),
        (&[0; 256], &e, Err(KeyProblem::RsaBits(0))),
    ] {
        let key = Signer::RsaA.jwk(&json!({ "n": encoded(n), "e": encoded(e) }));
        let found = Verifier::new(spec(&["RS256"], vec![jwks(&[key])])).map(drop).map_err(|error| error.problem);
        assert_eq!(found, expected, "{} bytes, e = {e:?}", n.len());
    }
    for (n, e, is_good) in [(&n, 3, true), (&n, 1, false), (&n, 2, false), (&even, 3, false)] {
        let found = Verifier::new(spec(&["RS256"], vec![armoured("RSA PUBLIC KEY", &pkcs1(n, e))]));
        assert_eq!(found.is_ok(), is_good, "e = {e}");
    }
    // Leading zeros of the numbers do not invalidate signatures.
    let padded = json!({ "n": encoded(&[&[0], &n[..]].concat()), "e": encoded(&[&[0], &e[..]].concat()) });
    let token = Signer::RsaA.sign(None, &seller());
    assert_eq!(verify(spec(&["RS256"], vec![jwks(&[Signer::RsaA.jwk(&padded)])]), &token).as_deref(), Ok("s-1"));
}

#[test]
fn ec_points_off_the_curve_are_refused() {
    let jwk = Signer::Ec.jwk(&json!({}));
    let (x, y) = (decoded(&jwk, "x"), decoded(&jwk, "y"));
    let flipped = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    let invalid = KeyProblem::Invalid(Algorithm::Es256);
    for (x, y, problem) in [
        (x.as_slice(), flipped(&y).as_slice(), KeyProblem::OffCurve),
        (&flipped(&x), &y, KeyProblem::OffCurve),
        (&y, &x, KeyProblem::OffCurve),
        (&[0; 32], &[0; 32], KeyProblem::OffCurve),
        (&[0xff; 32], &[0xff; 32], KeyProblem::OffCurve),
        (&x[1..], &[&x[..1], &y[..]].concat(), invalid.clone()),
        (&[&[0], &x[..]].concat(), &y, invalid.clone()),
        (&[], &[], invalid.clone()),
    ] {
        let key = Signer::Ec.jwk(&json!({ "x": encoded(x), "y": encoded(y) }));
        assert_eq!(refused("ES256", jwks(&[key])), problem, "{x:?} {y:?}");
    }
    let public = der(EC_PUBLIC);
    assert_eq!(refused("ES256", armoured("PUBLIC KEY", &flipped(&public))), KeyProblem::OffCurve);
    // The structure ends with the point: its tag and coordinates. The neutral element and half a point are no keys.
    let mut compressed = public.clone();
    let tag = public.len() - 65;
    compressed[tag] = 2;
    assert_eq!(refused("ES256", armoured("PUBLIC KEY", &compressed)), invalid);
}

#[test]
fn bytes_behind_a_key_are_refused() {
    for (label, file) in [("PUBLIC KEY", RSA_PUBLIC), ("CERTIFICATE", fixture!("rsa-a.certificate.pem"))] {
        let mut der = der(file);
        assert!(Verifier::new(spec(&["RS256"], vec![armoured(label, &der)])).is_ok(), "{label}");
        der.push(0);
        assert_eq!(refused("RS256", armoured(label, &der)), KeyProblem::Pem, "{label}");
    }
}

#[test]
fn a_pem_file_holds_one_key() {
    let pair = |first: &[u8], second: &[u8]| pem(&[first, second].concat());
    for (material, count) in [
        (pair(RSA_PUBLIC, fixture!("rsa-b.public.pem")), 2),
        (pair(EC_PUBLIC, ED_PUBLIC), 2),
        (pair(fixture!("rsa-a.certificate.pem"), fixture!("rsa-a.certificate.pem")), 2),
        (pair(RSA_PUBLIC, &[EC_PUBLIC, b"-----BEGIN half"].concat()), 3),
    ] {
        assert_eq!(refused("RS256", material), KeyProblem::SeveralPem(count));
    }
    // Text around the key makes it invalid (RFC 7468, 5.2).
    for before in [&b"Subject: a\n"[..], "\u{feff}".as_bytes(), b" \n  "] {
        let described = pem(&[before, RSA_PUBLIC, b"\nend\n"].concat());
        assert_eq!(
            verify(spec(&["RS256"], vec![described]), &Signer::RsaA.sign(None, &seller())).as_deref(),
            Ok("s-1")
        );
    }
}

/// Members of a set beside a valid key: whether a file with them is refused, and the text of the warning.
#[test]
fn unusable_members_of_a_set_are_skipped() {
    let good = Signer::RsaB.jwk(&json!({ "kid": "good" }));
    let rsa = |more: Value| Signer::RsaA.jwk(&more);
    let no_jwk = "not a JWK";
    let other_type = "its `kty` or `crv` is for none of HS256, RS256, ES256 and EdDSA";
    let other_use = "its `use`, `key_ops` or `alg` is for something else";
    let no_rsa = "not a public key for RS256";
    for (odd, is_error, why) in [
        (json!({ "kty": "new" }), false, other_type),
        (json!({}), false, other_type),
        (json!({ "kty": "RSA" }), false, other_type),
        (json!({ "kty": "RSA", "n": 7, "e": "AQAB" }), false, other_type),
        (json!({ "kty": 7 }), false, other_type),
        (json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA" }), false, other_type),
        (json!({ "kty": "EC", "crv": "P-384", "x": "AA", "y": "AA" }), false, other_type),
        (json!({ "kty": "OKP", "crv": "Ed448", "x": "AA" }), false, other_type),
        (json!(null), false, no_jwk),
        (json!("key"), false, no_jwk),
        (json!(["key"]), false, no_jwk),
        (rsa(json!({ "kid": 7 })), false, no_jwk),
        (rsa(json!({ "use": ["sig"] })), false, no_jwk),
        (rsa(json!({ "key_ops": "verify" })), false, no_jwk),
        (rsa(json!({ "use": "enc" })), false, other_use),
        (rsa(json!({ "key_ops": ["encrypt"] })), false, other_use),
        (rsa(json!({ "alg": "RSA-OAEP" })), false, other_use),
        (rsa(json!({ "alg": "new" })), false, other_use),
        (rsa(json!({ "n": "!" })), false, no_rsa),
        (rsa(json!({ "e": "AQAB==" })), false, no_rsa),
        (rsa(json!({ "e": "AQ" })), true, "an unsafe RSA key"),
        (rsa(json!({ "n": "AQAB" })), true, "an RSA key of 17 bits; 2048 to 8192 are accepted"),
        (rsa(json!({ "kid": "good" })), true, "two keys with the kid \"good\""),
    ] {
        let set = json!({ "keys": [&good, &odd] }).to_string().into_bytes();
        let url = "https://issuer.example/keys".parse().unwrap();
        let fetched = FetchedKeys::new(url, &[Algorithm::Rs256]).unwrap();
        let skipped = fetched.replace(&set).unwrap().unwrap().to_string();
        assert!(skipped.starts_with(&format!("a key of the JWK set is not used: key 2: {why}")), "{odd} {skipped}");

        let verifier = Verifier::new(spec(&["RS256"], vec![pem(RSA_PUBLIC), KeyMaterial::Jwks(set)]));
        let error = verifier.as_ref().err().map(|error| (error.index, error.to_string()));
        assert_eq!(error.is_some(), is_error, "{odd}");
        let Ok(verifier) = verifier else {
            assert!(error.is_some_and(|(index, what)| index == 1 && what.starts_with(why)), "{odd}");
            continue;
        };
        let [skipped_keys] = verifier.skipped() else { panic!("{odd}: one set is not used whole") };
        assert_eq!((skipped_keys.index, skipped_keys.to_string()), (1, skipped));
        let token = Signer::RsaB.sign(Some("good"), &seller());
        assert!(verifier.verify(token.as_bytes(), Timestamp::ZERO).is_ok(), "{odd}");
    }
}

#[test]
fn a_warning_about_a_set_is_bounded() {
    let good = Signer::RsaB.jwk(&json!({}));
    let set = |odd: usize| [vec![json!(null); odd], vec![good.clone()]].concat();
    let shown = |odd: usize| {
        let verifier = Verifier::new(spec(&["RS256"], vec![jwks(&set(odd))])).unwrap();
        verifier.skipped().first().map(ToString::to_string)
    };
    assert_eq!(shown(0), None);
    assert_eq!(shown(2).as_deref(), Some("keys of the JWK set are not used: key 1: not a JWK; key 2: not a JWK"));
    let long = shown(1000).unwrap();
    assert!(long.ends_with("key 8: not a JWK; and 992 more"), "{long}");
    // A key for an algorithm that is not configured was left out by its algorithm.
    let two = vec![jwks(&[good.clone(), Signer::Ec.jwk(&json!({ "use": "enc" }))])];
    assert_eq!(Verifier::new(spec(&["RS256"], two)).unwrap().skipped(), []);
}

#[test]
fn a_fetched_set_with_too_many_keys_is_cut() {
    let keys: Vec<_> = (0..66).map(|kid| Signer::Ed.jwk(&json!({ "kid": kid.to_string() }))).collect();
    let fetched = FetchedKeys::new("https://issuer.example/".parse().unwrap(), &[Algorithm::EdDsa]).unwrap();
    let skipped = fetched.replace(json!({ "keys": keys }).to_string().as_bytes()).unwrap().unwrap();
    let expected = "keys of the JWK set are not used: key 65: more than 64 keys; key 66: more than 64 keys";
    assert_eq!(skipped.to_string(), expected);
    assert_eq!(refused("EdDSA", jwks(&keys)), KeyProblem::TooMany);
}

#[test]
fn keys_of_several_types_may_share_a_kid() {
    let shared = json!({ "kid": "k" });
    let set = || vec![jwks(&[Signer::RsaA.jwk(&shared), Signer::Ec.jwk(&shared), Signer::Ed.jwk(&shared)])];
    for signer in [Signer::RsaA, Signer::Ec, Signer::Ed] {
        let token = signer.sign(Some("k"), &seller());
        assert_eq!(verify(spec(&["RS256", "ES256", "EdDSA"], set()), &token).as_deref(), Ok("s-1"), "{signer:?}");
    }
}

/// A header or a payload that is not UTF-8, with a valid signature.
#[test]
fn text_that_is_not_utf8_is_refused() {
    for bad in [&b"\xff"[..], b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"] {
        let around = |before: &[u8], after: &[u8]| [before, bad, after].concat();
        for (header, payload) in [
            (around(br#"{"alg":"HS256","x":""#, br#""}"#), br#"{"sellerId":"s"}"#.to_vec()),
            (around(br#"{"alg":"HS256","x":{"y":[""#, br#""]}}"#), br#"{"sellerId":"s"}"#.to_vec()),
            (around(br#"{"alg":"HS256","kid":""#, br#""}"#), br#"{"sellerId":"s"}"#.to_vec()),
            (around(br#"{"alg":"HS256",""#, br#"":1}"#), br#"{"sellerId":"s"}"#.to_vec()),
            (br#"{"alg":"HS256"}"#.to_vec(), around(br#"{"sellerId":"s","x":""#, br#""}"#)),
            (br#"{"alg":"HS256"}"#.to_vec(), around(br#"{"sellerId":"s","x":[{"y":""#, br#""}]}"#)),
            (br#"{"alg":"HS256"}"#.to_vec(), around(br#"{"sellerId":""#, br#""}"#)),
            (br#"{"alg":"HS256"}"#.to_vec(), around(br#"{"sellerId":"s","iss":""#, br#""}"#)),
            (br#"{"alg":"HS256"}"#.to_vec(), around(br#"{"sellerId":"s",""#, br#"":1}"#)),
        ] {
            let token = Signer::Hmac(SECRET).sign_raw(&header, &payload);
            let shown = String::from_utf8_lossy(&header).into_owned() + &String::from_utf8_lossy(&payload);
            assert_eq!(verify(hmac_spec(), &token), Err(TokenError::Malformed), "{shown}");
        }
    }
}
