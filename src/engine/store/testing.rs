//! A store without a server, for tests: it hears of corrections, and decides nothing.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use crate::base::telemetry::{Metrics, StoreMetrics};
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::backend::{
    Backend, Connections, KeyServer, Mirrors, OnFailure, REFUND_NS, RedisReceipt, RemoteReceipt, RemoteStore, SendPart,
    Unavailable,
};

/// What a store would hear of.
#[derive(Debug)]
pub(crate) enum News {
    GiveBack(RemoteReceipt),
    Settle { limit: Box<str>, key: Key, rule: Algorithm, extra: i64, max_debt: u64 },
}

/// A store whose server does not exist.
#[derive(Debug)]
struct TestStore {
    name: Arc<str>,
    on_failure: OnFailure,
    clock: Clock,
    metrics: StoreMetrics,
    is_down: AtomicBool,
    /// What waits to be sent, and since when the mirrors of its keys are in doubt.
    news: Mutex<Vec<(News, Timestamp)>>,
    late_refund_ns: AtomicU64,
}

impl RemoteReceipt {
    /// A receipt of a server that only tests have.
    pub(crate) fn numbered(number: u64, units: u64) -> Self {
        Self::Redis(RedisReceipt { store_key: number.to_string().into(), units, rates: SmallVec::new() })
    }

    /// The number of a receipt of [`RemoteReceipt::numbered`].
    pub(crate) fn number(&self) -> u64 {
        let Self::Redis(receipt) = self else { panic!("a receipt of a limiter") };
        receipt.store_key.parse().unwrap()
    }
}

impl RemoteStore {
    /// A store whose server does not exist.
    pub(crate) fn unreachable(on_failure: OnFailure, clock: Clock) -> Self {
        Self::new(Arc::new(TestStore {
            name: "main".into(),
            on_failure,
            clock,
            metrics: Metrics::new("", "").unwrap().store("main"),
            is_down: AtomicBool::new(false),
            news: Mutex::default(),
            late_refund_ns: AtomicU64::new(0),
        }))
    }

    /// Lets the server be known to be down.
    pub(crate) fn go_down(&self) {
        self.test_store().is_down.store(true, Ordering::Relaxed);
    }

    /// Gives back a charge of a call without an answer. No mirror was told of it.
    pub(crate) fn give_back_unanswered(&self, receipt: RemoteReceipt) {
        self.test_store().add(News::GiveBack(receipt), Timestamp::ZERO);
    }

    /// What waits to be sent.
    pub(crate) fn take_news(&self) -> Vec<News> {
        let store = self.test_store();
        let (news, now) = (std::mem::take(&mut *store.news.lock().unwrap()), store.clock.now());
        if news.iter().any(|(_, since)| now.ns_since(*since) >= REFUND_NS) {
            store.late_refund_ns.fetch_max(now.as_ns(), Ordering::Relaxed);
        }
        news.into_iter().map(|(news, _)| news).collect()
    }

    fn test_store(&self) -> &TestStore {
        self.of_kind().unwrap()
    }
}

impl TestStore {
    fn add(&self, news: News, since: Timestamp) {
        self.news.lock().unwrap().push((news, since));
    }
}

impl Backend for TestStore {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    fn connect(self: Arc<Self>) -> Rc<dyn Connections> {
        panic!("it has no server")
    }

    fn give_back(&self, receipt: RemoteReceipt) {
        self.add(News::GiveBack(receipt), self.clock.now());
    }

    fn settle(&self, limit: &str, key: Key, rule: &Algorithm, extra: i64, max_debt: u64) {
        if extra != 0 {
            let (limit, rule) = (limit.into(), rule.clone());
            self.add(News::Settle { limit, key, rule, extra, max_debt }, self.clock.now());
        }
    }

    fn late_refund_at(&self) -> Timestamp {
        Timestamp::from_ns(self.late_refund_ns.load(Ordering::Relaxed))
    }

    fn server(&self, _: &str, _: Key) -> Option<KeyServer> {
        let why = if self.is_down.load(Ordering::Relaxed) { Unavailable::Down } else { Unavailable::Cold };
        Some(KeyServer { name: "redis:6379".into(), unavailable: Some(why) })
    }

    fn run(self: Arc<Self>, _: Arc<dyn Mirrors>) -> SendPart<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn flushed(&self) -> SendPart<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn metrics(&self) -> &StoreMetrics {
        &self.metrics
    }
}
