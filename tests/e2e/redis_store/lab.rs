//! A store in a runtime of one thread, and the requests of a test.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use weir::base::telemetry::Metrics;
use weir::base::time::Clock;
use weir::engine::limit::{Algorithm, AnyState, Key, Quota, Rate, concurrency};
use weir::engine::store::backend::{
    Answers, Connections, Handling, Mirror, Mirrors, OnFailure, RemoteCharge, RemoteOutcome, RemoteReceipt,
    RemoteStore, Settlement, Unavailable, Units,
};
use weir::fleet::stores::driver::{Login, NodeAddress, Password, RemoteSettings, Servers, Topology};

use crate::support::PATIENCE;

pub const HOUR_NS: u64 = 3_600_000_000_000;

/// The timeout of calls: long enough for a machine under load, unless a test is about timeouts.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// A store with its background and the connections of one worker.
pub struct Lab {
    pub store: RemoteStore,
    pub worker: Rc<dyn Connections>,
    pub metrics: Metrics,
    background: JoinHandle<()>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.background.abort();
    }
}

/// 10 units, one of which comes back in an hour.
pub fn ten() -> Algorithm {
    Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: HOUR_NS }, 10).unwrap())
}

/// At most `max` requests at once.
pub fn at_once(max: u64) -> Algorithm {
    Algorithm::Concurrency(concurrency::Rule::new(max).unwrap())
}

pub fn key(number: u64) -> Key {
    let mix = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key { first: mix ^ (mix >> 29), second: number }
}

pub fn address(address: SocketAddr) -> NodeAddress {
    NodeAddress::tcp(address.ip().to_string(), address.port())
}

pub fn settings(topology: Topology) -> RemoteSettings {
    settings_with(topology, Login::default())
}

pub fn settings_with(topology: Topology, login: Login) -> RemoteSettings {
    RemoteSettings {
        name: "main".into(),
        servers: Servers::Redis { topology, login, prefix: "weir".into() },
        tls: None,
        timeout: TIMEOUT,
        on_failure: OnFailure::Split,
    }
}

pub fn ring(addresses: &[SocketAddr]) -> RemoteSettings {
    ring_with(addresses, Login::default())
}

pub fn ring_with(addresses: &[SocketAddr], login: Login) -> RemoteSettings {
    settings_with(Topology::Ring(addresses.iter().map(|node| address(*node)).collect()), login)
}

pub fn login(user: Option<&str>, password: &str) -> Login {
    Login { user: user.map(Into::into), password: Some(Password::new(password)) }
}

/// What a replica knows, as a list.
pub struct Known(pub Vec<(&'static str, Key, Algorithm, AnyState)>);

impl Mirrors for Known {
    fn visit(&self, _: &str, part: usize, visit: &mut dyn FnMut(&Mirror<'_>)) -> bool {
        if let Some((limit, key, rule, state)) = self.0.get(part) {
            visit(&Mirror { limit, key: *key, rule, state });
        }
        part + 1 < self.0.len()
    }
}

/// The store with these settings.
pub fn store(settings: RemoteSettings, metrics: &Metrics) -> RemoteStore {
    settings.store(Key::default(), Clock::start(), metrics).unwrap()
}

impl Lab {
    /// Starts a store. To be called in a runtime.
    pub fn start(settings: RemoteSettings) -> Self {
        Self::knowing(settings, Known(Vec::new()))
    }

    /// Starts a store of a replica that knows states of keys.
    pub fn knowing(settings: RemoteSettings, known: Known) -> Self {
        if std::env::var_os("STORE_LOG").is_some() {
            let _ =
                tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(std::io::stderr).try_init();
        }
        let metrics = Metrics::new("", "").unwrap();
        let store = store(settings, &metrics);
        let background = tokio::spawn(store.run(Arc::new(known)));
        let worker = store.connect();
        Self { store, worker, metrics, background }
    }

    /// Starts a store, and waits until it decides about some keys.
    pub async fn deciding(settings: RemoteSettings) -> Self {
        let lab = Self::start(settings);
        lab.until_it_decides().await;
        lab
    }

    /// Waits until the nodes of many keys decide.
    pub async fn until_it_decides(&self) {
        for number in 0..32 {
            until(async || self.take("probe", key(number), &ten(), 0).await.ok()).await;
        }
    }

    /// Decides one enforced charge.
    pub async fn take(&self, limit: &str, key: Key, rule: &Algorithm, cost: u64) -> Result<RemoteOutcome, Unavailable> {
        self.all(&[charge(limit, key, rule, cost)]).await.outcomes.swap_remove(0)
    }

    /// Decides the charges of one request.
    pub async fn all(&self, charges: &[RemoteCharge<'_>]) -> Answers {
        self.worker.decide(charges).await
    }

    /// Whether one unit of [`ten`] was admitted, and the receipt.
    pub async fn one(&self, number: u64) -> Result<Option<RemoteReceipt>, Unavailable> {
        self.take("a", key(number), &ten(), 1).await.map(|outcome| outcome.receipt)
    }

    /// Charges units of [`ten`] that no limit decides.
    pub fn settle(&self, number: u64, extra: i64, max_debt: u64) {
        self.store.settle(Settlement::new("a", key(number), &ten(), (extra, max_debt), Clock::start().now()));
    }

    /// Units of [`ten`] that remain.
    pub async fn left(&self, number: u64) -> Result<u64, Unavailable> {
        let rule = ten();
        let charge = charge("a", key(number), &rule, 0);
        let outcome = self.take(charge.limit, charge.key, &rule, 0).await?;
        Ok(outcome.decision(&charge, Clock::start().now()).remaining)
    }

    /// Waits until so many units of [`ten`] remain.
    pub async fn until_left(&self, number: u64, units: u64) {
        until(async || (self.left(number).await == Ok(units)).then_some(())).await;
    }

    /// The value of a series in the exposition of metrics.
    pub fn metric(&self, series: &str) -> f64 {
        let text = String::from_utf8(self.metrics.render().unwrap()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        line.unwrap_or(f64::NAN)
    }
}

pub fn charge<'a>(limit: &'a str, key: Key, rule: &'a Algorithm, cost: u64) -> RemoteCharge<'a> {
    RemoteCharge { limit, key, rule, units: Units::exactly(cost), handling: Handling::Enforce, asked_again_until: None }
}

/// Looks again and again, for states of servers that send no event.
pub async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < end, "nothing to see");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
