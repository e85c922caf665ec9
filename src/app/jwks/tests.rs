//! When keys are fetched, with time as a column.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;
use crate::app::reload::install;
use crate::base::telemetry::{Metrics, Spans, Taps};
use crate::base::time::Clock;
use crate::config;
use crate::engine::gate::Gate;
use crate::transport::proxy::ConnectionCount;
use crate::transport::upstream::Ceiling;

const fn at(second: u64) -> Timestamp {
    Timestamp::from_ns((1_000_000 + second) * SECOND_NS)
}

#[test]
fn when_keys_are_fetched() {
    // has keys, failures since, a key is wanted; seconds after the last try
    let rows = [
        (true, 0, false, 600),
        (true, 0, true, 60),
        (true, 1, false, 60),
        (true, 9, true, 60),
        (false, 1, false, 1),
        (false, 2, true, 2),
        (false, 3, false, 4),
        (false, 6, false, 32),
        (false, 7, false, 60),
        (false, u32::MAX, false, 60),
    ];
    for (has_keys, failures, is_wanted, after) in rows {
        let schedule = Schedule { tried: Some(at(0)), has_keys, failures };
        let row = format!("{schedule:?} {is_wanted}");
        assert!(!schedule.is_due(is_wanted, at(after - 1)) && schedule.is_due(is_wanted, at(after)), "{row}");
    }
    assert!(Schedule::default().is_due(false, at(0)));
}

#[test]
fn a_try_is_remembered() {
    let mut schedule = Schedule::default();
    schedule.tried(false, at(0));
    schedule.tried(false, at(1));
    assert!(!schedule.has_keys && schedule.failures == 2);
    schedule.tried(true, at(3));
    schedule.tried(false, at(4));
    assert!(schedule.has_keys && schedule.failures == 1 && schedule.tried == Some(at(4)));
}

/// The public half of the Ed25519 key of RFC 8037, appendix A.
fn jwks(kid: &str) -> String {
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    format!("{{\"keys\":[{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"{kid}\",\"x\":\"{x}\"}}]}}")
}

/// An issuer of keys that counts how often it is asked.
struct Issuer {
    port: u16,
    asked: Arc<AtomicUsize>,
    says: Arc<Mutex<String>>,
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, says) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(jwks("a"))));
        let (count, body) = (Arc::clone(&asked), Arc::clone(&says));
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                assert!(socket.read(&mut [0; 1024]).await.unwrap() > 0);
                let body = body.lock().unwrap().clone();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { port, asked, says }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn policy(&self) -> config::Config {
        self.policy_of(&["EdDSA"])
    }

    /// A policy with an identity for each of `algorithms`.
    fn policy_of(&self, algorithms: &[&str]) -> config::Config {
        let identity = |algorithm: &&str| {
            let (name, port) = (algorithm.to_ascii_lowercase(), self.port);
            format!(
                "[identity.{name}.jwt]\nclaim = 'sub'\nalgorithms = ['{algorithm}']\n\
                 keys = [{{ jwks_url = 'http://127.0.0.1:{port}/' }}]\n"
            )
        };
        let identities = algorithms.iter().map(identity).collect::<Vec<_>>().concat();
        let text = format!("[upstream]\nurl = 'http://127.0.0.1:9'\n{identities}");
        config::compile(&text, "", Path::new(""), &|_| None).unwrap_or_else(|problems| panic!("{problems}"))
    }
}

fn shared(config: config::Config) -> SharedState {
    let metrics = Arc::new(Metrics::new("", "").unwrap());
    let gate = Arc::new(Gate::new(Clock::start(), [7; 16], Arc::clone(&metrics)));
    let ceiling = Arc::new(Ceiling::new(1, 1));
    let running_config =
        Arc::new(ArcSwap::from_pointee(install(&gate, (config, Vec::new()), &metrics, &ceiling, None, false)));
    let ([connections, checks], draining) = ([1, 0].map(ConnectionCount::new), AtomicBool::new(false));
    let reloads = watch::Sender::new(());
    let clients = Arc::default();
    let taps = Arc::new(Taps::new(metrics.taps.clone()));
    let spans = Spans::new(metrics.spans.clone());
    SharedState { gate, metrics, taps, spans, running_config, reloads, connections, checks, clients, ceiling, draining }
}

/// What a token with this `kid` is told; its signature is wrong in any case.
fn told(shared: &SharedState, kid: &str) -> String {
    use base64::Engine as _;
    let encode = |text: String| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let head = encode(format!("{{\"alg\":\"EdDSA\",\"kid\":\"{kid}\"}}"));
    let token = format!("{head}.{}.{}", encode("{}".into()), encode("x".repeat(64)));
    let config = shared.running_config.load();
    let identities = &config.live.policy.identities;
    let identity = identities.iter().find(|identity| &*identity.name == "eddsa").unwrap();
    let crate::engine::policy::IdentitySource::Jwt { verifier, .. } = &identity.source else {
        panic!("another source")
    };
    verifier.verify(token.as_bytes(), at(0)).unwrap_err().label().to_owned()
}

#[tokio::test]
async fn a_key_that_is_not_there_is_asked_for_once_a_minute() {
    let issuer = Issuer::start().await;
    let shared = shared(issuer.policy());
    let jwks_cache = Jwks::default();
    // at, the kid of a token before that, what it is told, times asked after that
    let rows = [
        (0, "a", "no_keys", 1),
        (1, "a", "signature", 1),
        (30, "b", "unknown_key", 1),
        (59, "c", "unknown_key", 1),
        (60, "a", "signature", 2),
        (61, "d", "unknown_key", 2),
        (119, "e", "unknown_key", 2),
        (120, "a", "signature", 3),
        // nothing is wanted any more
        (719, "a", "signature", 3),
        (720, "a", "signature", 4),
    ];
    for (second, kid, expected, asked) in rows {
        assert_eq!(told(&shared, kid), expected, "{second} s");
        jwks_cache.fetch_due(&shared, at(second)).await;
        assert_eq!(issuer.asked(), asked, "{second} s");
    }
    issuer.says.lock().unwrap().clone_from(&jwks("b"));
    assert_eq!(told(&shared, "b"), "unknown_key");
    jwks_cache.fetch_due(&shared, at(780)).await;
    assert_eq!((told(&shared, "a"), told(&shared, "b")), ("unknown_key".into(), "signature".into()));
    // What is no set of keys changes nothing, and is tried again.
    issuer.says.lock().unwrap().clear();
    for second in [1400, 1459] {
        jwks_cache.fetch_due(&shared, at(second)).await;
        assert_eq!((issuer.asked(), told(&shared, "b").as_str()), (6, "signature"), "{second} s");
    }
    jwks_cache.fetch_due(&shared, at(1460)).await;
    assert_eq!(issuer.asked(), 7);
}

fn reload(shared: &mut SharedState, jwks_cache: &Jwks, config: config::Config) {
    jwks_cache.adopt(&config.policy, &shared.metrics.jwks);
    let (before, parts) = (shared.running_config.load_full(), (config, Vec::new()));
    let config = install(&shared.gate, parts, &shared.metrics, &shared.ceiling, Some(&before), false);
    shared.running_config = Arc::new(ArcSwap::from_pointee(config));
}

/// Two identities have one URL, which has keys for one of them.
#[tokio::test]
async fn an_identity_without_a_usable_key_starves_no_other() {
    for algorithms in [["EdDSA", "ES256"], ["ES256", "EdDSA"]] {
        let issuer = Issuer::start().await;
        let mut shared = shared(issuer.policy_of(&algorithms));
        let jwks_cache = Jwks::default();
        jwks_cache.fetch_due(&shared, at(0)).await;
        assert_eq!(told(&shared, "a"), "signature", "{algorithms:?}");
        reload(&mut shared, &jwks_cache, issuer.policy_of(&algorithms));
        assert_eq!(told(&shared, "a"), "signature", "{algorithms:?} after a reload");
        // Tokens of withdrawn keys are verified again.
        let tokens = Arc::clone(&shared.running_config.load().live.tokens);
        let claimed = crate::engine::policy::jwt::Claimed { value: "x".into(), plan: None };
        tokens.insert(crate::engine::limit::Key::of_hash(8, 8), claimed, None, at(0));
        issuer.says.lock().unwrap().clone_from(&jwks("b"));
        jwks_cache.fetch_due(&shared, at(600)).await;
        assert_eq!((told(&shared, "a").as_str(), tokens.len()), ("unknown_key", 0), "{algorithms:?}");
    }
}

/// The series of an identity with another name go on under that name only, with the time of the set that it takes.
#[tokio::test]
async fn an_identity_keeps_the_time_of_its_keys_under_another_name() {
    let issuer = Issuer::start().await;
    let mut shared = shared(issuer.policy());
    let jwks_cache = Jwks::default();
    jwks_cache.fetch_due(&shared, at(0)).await;
    let mut renamed = issuer.policy();
    Arc::get_mut(&mut renamed.policy.identities).unwrap()[0].name = "other".into();
    reload(&mut shared, &jwks_cache, renamed);
    let text = String::from_utf8(shared.metrics.render().unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("weir_jwks_")).collect();
    let expected = [
        "weir_jwks_fetches_total{identity=\"other\",result=\"failed\"} 0",
        "weir_jwks_fetches_total{identity=\"other\",result=\"ok\"} 0",
        "weir_jwks_last_success_timestamp_seconds{identity=\"other\"} 1000000",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_new_policy_begins_with_the_keys_that_are_known() {
    let issuer = Issuer::start().await;
    let mut shared = shared(issuer.policy());
    let jwks_cache = Jwks::default();
    jwks_cache.fetch_due(&shared, at(0)).await;
    reload(&mut shared, &jwks_cache, issuer.policy());
    assert_eq!(told(&shared, "a"), "signature");
    jwks_cache.fetch_due(&shared, at(1)).await;
    assert_eq!(issuer.asked(), 1);
    // A URL that no policy names is forgotten.
    let other = Issuer::start().await;
    jwks_cache.adopt(&other.policy().policy, &shared.metrics.jwks);
    assert!(jwks_cache.lock().is_empty());
}
