//! What tests of limits need of a store without a server.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::receipt::RedisReceipt;
use super::settings::{Login, StoreSettings, Topology};
use super::store::Store;
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::RemoteStore;
use crate::engine::store::backend::{Failure, NodeAddress, OnFailure, RemoteReceipt, Report, Settlement};

/// What a store would hear of.
#[derive(Debug)]
pub(crate) enum News {
    GiveBack(RemoteReceipt),
    Settle { limit: Box<str>, key: Key, rule: Algorithm, extra: i64, max_debt: u64 },
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
    /// Lets all servers be known to be down.
    pub(crate) fn go_down(&self) {
        let Self::Redis(store) = self else { panic!("a limiter") };
        store.go_down();
    }

    /// Gives back a charge of a call without an answer.
    pub(crate) fn give_back_unanswered(&self, receipt: RemoteReceipt) {
        let (Self::Redis(store), Some(receipt)) = (self, receipt.into_redis()) else { panic!("a limiter") };
        store.give_back_late(receipt);
    }

    /// What waits to be sent.
    pub(crate) fn take_news(&self) -> Vec<News> {
        let Self::Redis(store) = self else { panic!("a limiter") };
        store.take_news()
    }
}

impl Store {
    /// A store whose server does not exist.
    pub(crate) fn unreachable(on_failure: OnFailure, clock: Clock) -> Arc<Self> {
        let settings = StoreSettings {
            name: "main".into(),
            topology: Topology::Ring(vec![NodeAddress::tcp("redis", 6379)]),
            login: Login::default(),
            tls: None,
            timeout: Duration::from_millis(10),
            prefix: "weir".into(),
            on_failure,
        };
        Self::new(settings, None, clock, &Metrics::new("", "").unwrap())
    }

    /// Lets all servers be known to be down.
    fn go_down(&self) {
        self.nodes().all.iter().for_each(|node| node.failed(Failure::Login, "a test"));
    }

    /// What waits to be sent.
    pub(crate) fn take_news(&self) -> Vec<News> {
        let reports = self.outbox.take();
        self.outbox.sent(reports.len());
        self.common.late_refunds.made(&reports, self.common.clock.now());
        let news = |report| match report {
            Report::GiveBack(receipt, _) => News::GiveBack(RemoteReceipt::Redis(receipt)),
            Report::Settle(settlement) => {
                let Settlement { limit, key, rule, extra, max_debt, .. } = *settlement;
                News::Settle { limit, key, rule, extra, max_debt }
            }
        };
        reports.into_iter().map(news).collect()
    }
}
