//! Dates of tokens and API keys under a clock that was started at a wrong date.

use serde_json::json;

use super::*;
use crate::engine::gate::identify::RequestIdentities;
use crate::engine::policy::api_keys::{ApiKey, ApiKeys, KeyOwner, digest_of};
use crate::engine::policy::jwt::{self, KeyMaterial, Verifier, VerifierSpec};
use crate::engine::policy::{IdentitySource, OnMissing};

const HOUR_S: u64 = 3600;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const API_KEY: &[u8] = b"0123456789abcdef";

/// Whether a request with a token of these claims is identified.
fn is_verified(gate: &Gate, live: &Live, claims: &serde_json::Value) -> bool {
    let shown = headers(&[&format!("authorization=Bearer {}", jwt::tests::signed(SECRET, claims))]);
    RequestIdentities::new(gate, live, &facts(&shown), gate.clock.now()).identity(0).is_ok()
}

fn identity(source: IdentitySource) -> Identity {
    Identity { name: "user".into(), source, on_missing: OnMissing::Reject, is_plain: false }
}

fn tokens() -> Identity {
    let spec = VerifierSpec {
        claim: "sub".to_owned(),
        algorithms: vec![jwt::Algorithm::Hs256],
        keys: vec![KeyMaterial::Secret(SECRET.to_vec())],
        fetched: None,
        issuer: None,
        audience: None,
        require_exp: false,
        leeway: Duration::ZERO,
    };
    let verifier = Box::new(Verifier::new(spec).unwrap());
    identity(IdentitySource::Jwt { header: http::header::AUTHORIZATION, verifier })
}

/// A clock that was started behind or ahead of the date that the system has now.
#[tokio::test(start_paused = true)]
async fn tokens_follow_a_corrected_date() {
    let date = time::system_now();
    let at = |hours: i64| date.as_secs().saturating_add_signed(hours * 3600);
    for (started, step) in [
        (date.saturating_sub_ns(2 * HOUR_S * 1_000_000_000), "set forward"),
        (date.saturating_add_ns(2 * HOUR_S * 1_000_000_000), "set back"),
    ] {
        let gate = gate_of(Clock::start_at(started));
        let live = gate.install(policy(Vec::new(), vec![tokens()]), CAPS, 10);
        for (claims, expected) in [
            (json!({ "sub": "a", "exp": at(-1) }), false),
            (json!({ "sub": "a", "exp": at(1) }), true),
            (json!({ "sub": "a", "nbf": at(-1) }), true),
            (json!({ "sub": "a", "nbf": at(1) }), false),
        ] {
            // The second time the token may be in the cache.
            let verified = [(); 2].map(|()| is_verified(gate, &live, &claims));
            assert_eq!(verified, [expected; 2], "{step}: {claims}");
        }
        assert_eq!(live.tokens.len(), 2, "{step}");
        // A token is in the cache until it expires, by the clock of the gate.
        live.tokens.clear();
        assert!(is_verified(gate, &live, &json!({ "sub": "a", "exp": date.as_secs() + 100 })));
        live.tokens.sweep(gate.clock.now().saturating_add_ns(90 * 1_000_000_000));
        assert_eq!(live.tokens.len(), 1, "{step}");
        live.tokens.sweep(gate.clock.now().saturating_add_ns(101 * 1_000_000_000));
        assert!(live.tokens.is_empty(), "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn api_keys_follow_a_corrected_date() {
    let date = time::system_now();
    let hours = |count: u64| count * HOUR_S * 1_000_000_000;
    for (started, expires, expected) in [
        (date.saturating_sub_ns(hours(2)), date.saturating_sub_ns(hours(1)), false),
        (date.saturating_add_ns(hours(2)), date.saturating_add_ns(hours(1)), true),
    ] {
        let gate = gate_of(Clock::start_at(started));
        let keys = vec![ApiKey {
            digest: digest_of(API_KEY),
            created: Timestamp::ZERO,
            expires: Some(expires),
            overlap_ends: None,
        }];
        let owner = KeyOwner { name: "a".into(), plan: None, is_disabled: false, keys };
        let keys = Box::new(ApiKeys::new("keys.toml".into(), vec![owner]));
        let source = IdentitySource::ApiKeys { header: HeaderName::from_static("x-key"), keys, is_forwarded: false };
        let live = gate.install(policy(Vec::new(), vec![identity(source)]), CAPS, 10);
        let shown = headers(&["x-key=0123456789abcdef"]);
        let found = RequestIdentities::new(gate, &live, &facts(&shown), gate.clock.now()).identity(0).is_ok();
        assert_eq!(found, expected, "expires at {expires:?}");
    }
}
