//! A store without a server, for tests: it hears of corrections, and decides nothing.

use std::any::Any;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::telemetry::{Metrics, StoreMetrics};
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::late::LateByRate;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::backend::{
    Backend, Connections, KeyServer, Mirror, Mirrors, OnFailure, REFUND_NS, RedisReceipt, RemoteReceipt, RemoteStore,
    SendPart, Settlement, Unavailable,
};

/// What a store would hear of.
#[derive(Debug)]
pub(crate) enum News {
    GiveBack(RemoteReceipt),
    Settle { limit: Box<str>, key: Key, rule: Algorithm, extra: i64, late: LateByRate, max_debt: u64 },
}

/// A process that knows no keys.
pub(crate) struct NoMirrors;

impl Mirrors for NoMirrors {
    fn visit(&self, _: &str, _: usize, _: &mut dyn FnMut(&Mirror<'_>)) -> bool {
        false
    }
}

/// The metrics of all these stores, which no test reads.
static METRICS: LazyLock<StoreMetrics> = LazyLock::new(|| Metrics::new("", "").unwrap().store("main"));

/// A store whose server does not exist.
#[derive(Debug)]
struct TestStore {
    name: Arc<str>,
    on_failure: OnFailure,
    clock: Clock,
    is_down: AtomicBool,
    /// What waits to be sent, and since when the mirrors of its keys are in doubt.
    refunds: Mutex<Vec<(RemoteReceipt, Timestamp)>>,
    settlements: Mutex<Vec<Settlement>>,
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
            is_down: AtomicBool::new(false),
            refunds: Mutex::default(),
            settlements: Mutex::default(),
            late_refund_ns: AtomicU64::new(0),
        }))
    }

    /// Lets the server be known to be down.
    pub(crate) fn go_down(&self) {
        self.test_store().is_down.store(true, Ordering::Relaxed);
    }

    /// Gives back a charge of a call without an answer. No mirror was told of it.
    pub(crate) fn give_back_unanswered(&self, receipt: RemoteReceipt) {
        self.test_store().add(receipt, Timestamp::ZERO);
    }

    /// What waits to be sent.
    pub(crate) fn take_news(&self) -> Vec<News> {
        let store = self.test_store();
        let now = store.clock.now();
        let refunds = std::mem::take(&mut *store.refunds.lock().unwrap());
        let settlements = std::mem::take(&mut *store.settlements.lock().unwrap());
        let since = refunds.iter().map(|(_, since)| *since).chain(settlements.iter().map(Settlement::begun));
        if since.into_iter().any(|since| now.ns_since(since) >= REFUND_NS) {
            store.late_refund_ns.fetch_max(now.as_ns(), Ordering::Relaxed);
        }
        let settle = |settlement: Settlement| {
            let (extra, late) = (settlement.units(), settlement.units_at(now));
            let Settlement { limit, key, rule, max_debt, .. } = settlement;
            News::Settle { limit, key, rule, extra, late, max_debt }
        };
        let refunds = refunds.into_iter().map(|(receipt, _)| News::GiveBack(receipt));
        settlements.into_iter().map(settle).chain(refunds).collect()
    }

    fn test_store(&self) -> &TestStore {
        self.settings().downcast_ref().unwrap()
    }
}

impl TestStore {
    fn add(&self, receipt: RemoteReceipt, since: Timestamp) {
        self.refunds.lock().unwrap().push((receipt, since));
    }
}

impl Backend for TestStore {
    fn settings(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn connect(self: Arc<Self>) -> Rc<dyn Connections> {
        panic!("it has no server")
    }

    fn give_back(&self, receipt: RemoteReceipt) {
        self.add(receipt, self.clock.now());
    }

    fn settle(&self, settlement: Settlement) {
        let mut settlements = self.settlements.lock().unwrap();
        let is_same = |other: &&mut Settlement| (&other.limit, other.key) == (&settlement.limit, settlement.key);
        match settlements.iter_mut().find(is_same) {
            Some(other) => other.add(settlement),
            None => settlements.push(settlement),
        }
    }

    fn late_refund_at(&self) -> Timestamp {
        Timestamp::from_ns(self.late_refund_ns.load(Ordering::Relaxed))
    }

    fn server(&self, _: &str, _: Key) -> Option<KeyServer> {
        let why = if self.is_down.load(Ordering::Relaxed) { Unavailable::Down } else { Unavailable::Cold };
        Some(KeyServer { name: "redis:6379".into(), unavailable: Some(why) })
    }

    fn unavailable(&self, _: &str) -> Vec<Unavailable> {
        self.server("", Key { first: 0, second: 0 }).and_then(|server| server.unavailable).into_iter().collect()
    }

    fn run(self: Arc<Self>, _: Arc<dyn Mirrors>) -> SendPart<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn flushed(&self) -> SendPart<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn metrics(&self) -> &StoreMetrics {
        &METRICS
    }
}
