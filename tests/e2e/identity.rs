//! Identities from headers and tokens, and their budgets.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const LIMIT: &str = "[[limit]]\nname = \"l\"\nkey = [\"who\"]\nrate = \"1/h\"\n";

fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/keys", name].iter().collect()
}

fn rsa(name: &str) -> EncodingKey {
    EncodingKey::from_rsa_pem(&std::fs::read(fixture(name)).unwrap()).unwrap()
}

fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + seconds
}

fn sign(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
    jsonwebtoken::encode(&Header::new(algorithm), claims, key).unwrap()
}

/// A token of a seller that expires in a minute.
fn hs256(seller: &str) -> String {
    let claims = json!({ "sellerId": seller, "exp": in_seconds(60) });
    sign(Algorithm::HS256, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap(), &claims)
}

fn jwt(algorithm: &str, key: &str) -> String {
    format!("{LIMIT}[identity.who.jwt]\nclaim = \"sellerId\"\nalgorithms = [\"{algorithm}\"]\nkeys = [{{ {key} }}]\n")
}

/// A Weir with `rest`, the secret in `JWT_SECRET`, and these files beside its configuration.
fn start(upstream: &Upstream, rest: &str, files: &[(&str, String)]) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::write(folder.path().join("weir.toml"), Weir::config(upstream, "", rest)).unwrap();
    Weir::start_in_env(folder, &[("JWT_SECRET", SECRET)])
}

fn get(weir: &Weir, headers: &str) -> Answer {
    Client::connect(weir.address()).send(format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).answer()
}

fn bearer(weir: &Weir, token: &str) -> u16 {
    get(weir, &format!("Authorization: Bearer {token}\r\n")).status
}

#[test]
fn a_header_has_its_own_budget_and_on_missing_applies_without_it() {
    // Two requests with a, one with b, three without.
    for (on_missing, statuses) in [
        ("reject", [200, 429, 200, 401, 401]),
        ("anonymous", [200, 429, 200, 200, 429]),
        ("ip", [200, 429, 200, 200, 429]),
    ] {
        let upstream = Upstream::start();
        let rest = format!("{LIMIT}[identity.who]\nheader = \"x-api-key\"\non_missing = \"{on_missing}\"");
        let weir = Weir::start(&upstream, &rest);
        let asked = ["X-Api-Key: a\r\n", "x-api-key: a\r\n", "X-API-KEY: b\r\n", "", ""];
        assert_eq!(asked.map(|headers| get(&weir, headers).status), statuses, "{on_missing}");
        let several = get(&weir, "X-Api-Key: c\r\nX-Api-Key: d\r\n");
        assert_eq!((several.status, several.header("www-authenticate")), (401, None));
        // No header value can name the bucket of anonymous requests or of an address.
        assert_eq!(get(&weir, "X-Api-Key: 127.0.0.1\r\n").status, 200);
    }
}

#[test]
fn several_values_of_a_header_follow_the_option() {
    let lines = |values: &[&str]| values.iter().flat_map(|value| ["X-Api-Key: ", value, "\r\n"]).collect::<String>();
    for (several, rows) in [
        ("reject", &[(&["a"][..], 200), (&["a", "b"], 401), (&["a", "a"], 401), (&["", "a"], 401)][..]),
        ("first", &[(&["a"], 200), (&["a", "b"], 429), (&["b", "a"], 200), (&["b", "c", "d"], 429), (&["", "a"], 401)]),
        ("last", &[(&["a"], 200), (&["b", "a"], 429), (&["a", "b"], 200), (&["c", "d", "b"], 429), (&["a", ""], 401)]),
        ("join", &[(&["a"], 200), (&["a", "b"], 200), (&["a, b"], 429), (&["b", "a"], 200), (&["a", "b", "c"], 200)]),
    ] {
        let upstream = Upstream::start();
        let rest = format!("{LIMIT}[identity.who]\nheader = \"x-api-key\"\nseveral = \"{several}\"");
        let weir = Weir::start(&upstream, &rest);
        for (values, status) in rows {
            assert_eq!(get(&weir, &lines(values)).status, *status, "{several} {values:?}");
        }
    }
}

#[test]
fn without_identity_an_address_has_its_own_budget() {
    let upstream = Upstream::start();
    for (on_missing, second) in [("ip", 200), ("anonymous", 429)] {
        let rest = format!("{LIMIT}[identity.who]\nheader = \"x-api-key\"\non_missing = \"{on_missing}\"");
        let weir = Weir::start_with(&upstream, "trusted_proxies = [\"127.0.0.1\"]", &rest);
        assert_eq!(get(&weir, "X-Forwarded-For: 192.0.2.1\r\n").status, 200);
        assert_eq!(get(&weir, "X-Forwarded-For: 192.0.2.2\r\n").status, second);
        assert_eq!(get(&weir, "X-Forwarded-For: 192.0.2.1\r\n").status, 429);
    }
}

#[test]
fn secrets_come_from_the_environment_or_from_a_file() {
    let upstream = Upstream::start();
    for key in ["secret = { env = \"JWT_SECRET\" }", "secret = { file = \"jwt-secret\" }"] {
        let weir = start(&upstream, &jwt("HS256", key), &[("jwt-secret", format!("{SECRET}\n"))]);
        let statuses = [hs256("1"), hs256("1"), hs256("2")].map(|token| bearer(&weir, &token));
        assert_eq!(statuses, [200, 429, 200], "{key}");
        assert!(weir.lines().iter().all(|line| !line.contains(SECRET)));
    }
}

#[test]
fn public_keys_are_read_from_pem_or_a_set() {
    let upstream = Upstream::start();
    let (known, unknown) = (rsa("rsa-a.private.pem"), rsa("rsa-b.private.pem"));
    let jwk = Jwk::from_encoding_key(&known, Algorithm::RS256).unwrap();
    let files = [
        ("keys.json", json!({ "keys": [jwk] }).to_string()),
        ("key.pem", std::fs::read_to_string(fixture("rsa-a.public.pem")).unwrap()),
    ];
    let token = |key: &EncodingKey, seller: i64| {
        sign(Algorithm::RS256, key, &json!({ "sellerId": seller, "exp": in_seconds(60) }))
    };
    for key in ["pem = \"key.pem\"", "jwks = \"keys.json\""] {
        let weir = start(&upstream, &jwt("RS256", key), &files);
        let statuses = [token(&known, 1), token(&known, 1), token(&known, 2)].map(|token| bearer(&weir, &token));
        assert_eq!(statuses, [200, 429, 200], "{key}");
        assert_eq!(bearer(&weir, &token(&unknown, 3)), 401);
        // The public key used as an HMAC secret does not sign valid tokens.
        let forged = EncodingKey::from_secret(files[1].1.as_bytes()).unwrap();
        let forged = sign(Algorithm::HS256, &forged, &json!({ "sellerId": 4, "exp": in_seconds(60) }));
        assert_eq!(bearer(&weir, &forged), 401);
    }
}

#[test]
fn an_invalid_token_is_401_and_is_not_forwarded() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &jwt("HS256", "secret = { env = \"JWT_SECRET\" }"), &[]);
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    let signed = |claims: Value| sign(Algorithm::HS256, &key, &claims);
    let good = hs256("1");
    let (rest, signature) = good.rsplit_once('.').unwrap();
    let tampered = format!("{rest}.{}{}", if signature.starts_with('A') { "B" } else { "A" }, &signature[1..]);
    for (token, why) in [
        (tampered, "signature"),
        (signed(json!({ "sellerId": "1", "exp": in_seconds(-1) })), "expired"),
        (signed(json!({ "sellerId": "1", "exp": in_seconds(60), "nbf": in_seconds(50) })), "not valid yet"),
        (signed(json!({ "sellerId": "1" })), "no expiry"),
        (signed(json!({ "sub": "1", "exp": in_seconds(60) })), "does not name"),
        ("garbage".to_owned(), "malformed"),
        (format!("{good}, {good}"), "malformed"),
    ] {
        let answer = get(&weir, &format!("Authorization: Bearer {token}\r\n"));
        assert_eq!(answer.status, 401, "{why}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(answer.text().contains(why) && !answer.text().contains(&token), "{}", answer.text());
    }
    for headers in ["", "Authorization: Basic dTpw\r\n", "Authorization: Bearer\r\n"] {
        let answer = get(&weir, headers);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{headers}");
    }
    assert_eq!(upstream.received_count(), 0);
    assert_eq!(bearer(&weir, &good), 200);
}

#[test]
fn a_token_that_is_not_utf8_is_401() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &jwt("HS256", "secret = { env = \"JWT_SECRET\" }"), &[]);
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    let token = |header: &[u8], payload: &[u8]| {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{message}.{signature}")
    };
    let (header, payload) = (br#"{"alg":"HS256"}"#, br#"{"sellerId":"1","exp":4000000000}"#);
    assert_eq!(bearer(&weir, &token(header, payload)), 200);
    let bad_header = token(b"{\"alg\":\"HS256\",\"x\":\"\xff\"}", payload);
    let bad_claim = token(header, b"{\"sellerId\":\"2\",\"exp\":4000000000,\"x\":\"\xff\"}");
    let bad_client = token(header, b"{\"sellerId\":\"\xff\",\"exp\":4000000000}");
    for token in [bad_header, bad_claim, bad_client] {
        assert_eq!(bearer(&weir, &token), 401, "{token}");
    }
    assert_eq!(upstream.received_count(), 1);
}

/// A key in a file, and the text of `weir check` beside its place.
#[test]
fn unsafe_keys_are_errors_with_their_place() {
    let jwk = |algorithm: Algorithm, name: &str, more: Value| {
        let pem = std::fs::read(fixture(name)).unwrap();
        let key = match algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(&pem),
            Algorithm::ES256 => EncodingKey::from_ec_pem(&pem),
            _ => EncodingKey::from_ed_pem(&pem),
        };
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&key.unwrap(), algorithm).unwrap()).unwrap();
        jwk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "keys": [jwk] }).to_string()
    };
    let two = ["rsa-a.public.pem", "rsa-b.public.pem"].map(|name| std::fs::read_to_string(fixture(name)).unwrap());
    for (algorithm, option, file, why) in [
        ("RS256", "jwks", jwk(Algorithm::RS256, "rsa-a.private.pem", json!({ "e": "AQ" })), "an unsafe RSA key"),
        ("ES256", "jwks", jwk(Algorithm::ES256, "ec-p256.private.pem", json!({ "y": "A".repeat(43) })), "not on P-256"),
        (
            "EdDSA",
            "jwks",
            jwk(Algorithm::EdDSA, "ed25519.private.pem", json!({ "x": "A".repeat(43) })),
            "a point of small order",
        ),
        ("RS256", "pem", two.concat(), "2 keys or certificates in one file"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keys"), file).unwrap();
        let config =
            format!("[upstream]\nurl = \"http://127.0.0.1:9\"\n{}", jwt(algorithm, &format!("{option} = \"keys\"")));
        std::fs::write(folder.path().join("weir.toml"), &config).unwrap();
        let line = config.lines().position(|line| line.starts_with("keys")).unwrap() + 1;
        for command in ["check", "run --config"] {
            let (code, text) = command_with(command, &folder.path().join("weir.toml"));
            assert_eq!(code, Some(3), "{text}");
            assert!(text.contains(why) && text.contains(&format!("weir.toml:{line}:")), "{text}");
        }
    }
}

/// Runs `weir` with a command and a configuration. Returns its exit code and its messages.
fn command_with(command: &str, config: &std::path::Path) -> (Option<i32>, String) {
    let mut weir = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = weir.args(command.split(' ')).arg(config).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn unusable_keys_of_a_set_are_warnings() {
    let upstream = Upstream::start();
    let known = rsa("rsa-a.private.pem");
    let good = Jwk::from_encoding_key(&known, Algorithm::RS256).unwrap();
    let set = json!({ "keys": [{ "kty": "EC", "crv": "secp256k1" }, good, { "kty": "RSA", "use": "enc", "n": "", "e": "" }] });
    let weir = start(&upstream, &jwt("RS256", "jwks = \"keys.json\""), &[("keys.json", set.to_string())]);
    let line = weir.wait_for_line("skipped_keys");
    assert!(line.contains("key 1: its `kty` or `crv`") && line.contains("key 3: its `use`"), "{line}");
    let token = sign(Algorithm::RS256, &known, &json!({ "sellerId": 1, "exp": in_seconds(60) }));
    assert_eq!(bearer(&weir, &token), 200);

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys.json"), set.to_string()).unwrap();
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, Weir::config(&upstream, "", &jwt("RS256", "jwks = \"keys.json\""))).unwrap();
    for (command, expected) in [("check", 0), ("check --strict", 3)] {
        let (code, text) = command_with(command, &path);
        assert_eq!(code, Some(expected), "{text}");
        assert!(text.contains("skipped_keys") && text.contains("key 3: its `use`"), "{text}");
    }
}

#[test]
fn an_expired_token_is_refused() {
    let upstream = Upstream::start();
    let rest = jwt("HS256", "secret = { env = \"JWT_SECRET\" }").replace("1/h", "1000000/s");
    let weir = start(&upstream, &rest, &[]);
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    let token = sign(Algorithm::HS256, &key, &json!({ "sellerId": "1", "exp": in_seconds(4) }));
    assert_eq!(bearer(&weir, &token), 200);
    // A cached token expires in the same second.
    let expired = crate::support::poll(|| (bearer(&weir, &token) == 401).then_some(in_seconds(0)));
    assert!(expired >= in_seconds(0) - 1);
}

#[test]
fn sellers_have_budgets_whatever_their_address() {
    let upstream = Upstream::start();
    let folder_of = jwt("HS256", "secret = { env = \"JWT_SECRET\" }");
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(&upstream, "trusted_proxies = [\"127.0.0.1\"]", &folder_of);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    let weir = Weir::start_in_env(folder, &[("JWT_SECRET", SECRET)]);
    let from = |ip: &str, seller: &str| {
        get(&weir, &format!("X-Forwarded-For: {ip}\r\nAuthorization: bearer {}\r\n", hs256(seller))).status
    };
    assert_eq!([from("192.0.2.1", "1"), from("192.0.2.2", "1")], [200, 429]);
    assert_eq!([from("192.0.2.1", "2"), from("192.0.2.1", "2")], [200, 429]);
}

#[test]
fn arrival_limits_charge_requests_without_an_identity() {
    let upstream = Upstream::start();
    let arrival = "[[limit]]\nname = \"outer\"\nstage = \"arrival\"\nkey = [\"ip\"]\nrate = \"3/h\"\n";
    let rest = jwt("HS256", "secret = { env = \"JWT_SECRET\" }") + arrival;
    let weir = start(&upstream, &rest, &[]);
    let statuses = ["bad", "bad", &hs256("1"), &hs256("2")].map(|token| bearer(&weir, token));
    assert_eq!(statuses, [401, 401, 200, 429]);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"outer\"}"), 3.0);
    assert_eq!(weir.metric("weir_problems_total{kind=\"unidentified\"}"), 2.0);
}
