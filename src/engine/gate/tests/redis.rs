//! A store in this process, in virtual time: states by limit and key, as a server has them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::sleep;

use crate::base::time::{Clock, Timestamp};
use crate::engine::gate::{Decider, Refill};
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::state::{Receipt as _, State as _};
use crate::engine::limit::{Algorithm, AnyReceipt, AnyState, Key};
use crate::engine::store::RemoteStore;
use crate::engine::store::backend::{
    Answers, Handling, OnFailure, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable,
};
use crate::engine::store::testing::News;

/// The server, as one replica reaches it. Clones reach the same server.
#[derive(Clone, Debug)]
pub(super) struct FakeRedis {
    server: Arc<Mutex<Server>>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Server {
    states: HashMap<(Box<str>, Key), AnyState>,
    /// Charges by the number of their receipts.
    charges: HashMap<u64, Made>,
    receipts: u64,
    stores: Vec<RemoteStore>,
    calls: usize,
    latency: Duration,
    /// The latency of the second store.
    other_latency: Duration,
    trouble: Option<Unavailable>,
}

#[derive(Clone, Debug)]
struct Made {
    limit: Box<str>,
    key: Key,
    rule: Algorithm,
    units: u64,
    /// Units that were given back.
    returned: u64,
    receipt: AnyReceipt,
}

impl FakeRedis {
    pub(super) fn new(clock: Clock) -> Self {
        Self { server: Arc::default(), clock }
    }

    /// A store whose server this is.
    pub(super) fn store(&self, on_failure: OnFailure) -> RemoteStore {
        let store = RemoteStore::unreachable(on_failure, self.clock);
        self.lock().stores.push(store.clone());
        store
    }

    /// Sets how the server answers from now on.
    pub(super) fn set(&self, trouble: Option<Unavailable>, latency: Duration) {
        let mut server = self.lock();
        (server.trouble, server.latency) = (trouble, latency);
    }

    /// Sets the latency of the second store.
    pub(super) fn slow_other(&self, latency: Duration) {
        self.lock().other_latency = latency;
    }

    /// Calls since the last look.
    pub(super) fn take_calls(&self) -> usize {
        std::mem::take(&mut self.lock().calls)
    }

    /// Units that remain of a key.
    pub(super) fn remaining(&self, limit: &str, key: Key, rule: &Algorithm) -> u64 {
        let mut server = self.lock();
        let now = self.clock.now();
        server.hear(now);
        server.state(limit, key, rule).peek(rule, 0, now).remaining
    }

    /// Charges units that no limit decides.
    pub(super) fn settle(&self, limit: &str, key: Key, rule: &Algorithm, units: i64) {
        self.lock().state(limit, key, rule).settle(rule, units, 0, self.clock.now());
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }
}

impl Decider for FakeRedis {
    async fn decide(&self, store: &RemoteStore, charges: &[RemoteCharge<'_>]) -> Answers {
        let (latency, trouble) = {
            let server = self.lock();
            let is_other = server.stores.get(1).is_some_and(|other| store.is(other));
            (if is_other { server.other_latency } else { server.latency }, server.trouble)
        };
        sleep(latency / 2).await;
        let answers = {
            let mut server = self.lock();
            server.calls += 1;
            match trouble {
                Some(why) => Answers { is_admitted: true, outcomes: charges.iter().map(|_| Err(why)).collect() },
                None => server.decide(charges, self.clock.now()),
            }
        };
        let mut abandoned = Abandoned { redis: self, store, answers: Some(answers) };
        sleep(latency / 2).await;
        abandoned.answers.take().unwrap()
    }

    fn refill(&self, refill: Refill) {
        let redis = self.clone();
        tokio::spawn(async move {
            let answers = redis.decide(refill.store(), &[refill.charge()]).await;
            refill.complete(answers);
        });
    }
}

/// Gives charges back for which nobody waits.
struct Abandoned<'r> {
    redis: &'r FakeRedis,
    store: &'r RemoteStore,
    answers: Option<Answers>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Some(answers) = self.answers.take() else { return };
        for receipt in answers.outcomes.into_iter().filter_map(|answer| answer.ok()?.receipt) {
            self.store.give_back_unanswered(receipt);
        }
        self.redis.lock().hear(self.redis.clock.now());
    }
}

impl Server {
    fn state(&mut self, limit: &str, key: Key, rule: &Algorithm) -> &mut AnyState {
        self.states.entry((limit.into(), key)).or_insert_with(|| AnyState::fresh(rule))
    }

    /// Applies what the replicas reported.
    fn hear(&mut self, now: Timestamp) {
        for news in self.stores.clone().iter().flat_map(RemoteStore::take_news) {
            match news {
                News::GiveBack(receipt) => self.give_back(&receipt, now),
                News::Settle { limit, key, rule, late, max_debt, .. } => {
                    self.state(&limit, key, &rule).settle_late(&rule, &late, max_debt, now);
                }
            }
        }
    }

    fn give_back(&mut self, receipt: &RemoteReceipt, now: Timestamp) {
        let Some(made) = self.charges.get_mut(&receipt.number()) else { return };
        made.returned += receipt.units();
        let Made { limit, key, rule, units, returned, receipt: made } = made.clone();
        assert!(returned <= units, "{returned} of {units} units are given back");
        let state = self.state(&limit, key, &rule);
        match receipt.units() {
            all if all == units => _ = state.refund(&rule, &made, now),
            part => _ = state.refund(&rule, &made.part(part, 0).0, now),
        }
    }

    fn decide(&mut self, charges: &[RemoteCharge<'_>], now: Timestamp) -> Answers {
        self.hear(now);
        let admits: Vec<bool> = charges
            .iter()
            .map(|charge| {
                let state = self.state(charge.limit, charge.key, charge.rule);
                state.adopt(charge.rule, now);
                state.peek(charge.rule, charge.units.cost, now).is_admitted()
            })
            .collect();
        let denies = |(charge, admits): (&RemoteCharge<'_>, &bool)| charge.handling == Handling::Enforce && !admits;
        let is_admitted = !charges.iter().zip(&admits).any(denies);
        let outcomes = charges.iter().zip(admits).map(|(charge, admits)| {
            let RemoteCharge { limit, key, rule, units, handling, .. } = *charge;
            let cost = match self.state(limit, key, rule).peek(rule, 0, now).remaining / units.divisor {
                _ if !admits => units.cost,
                free => units.want.min(free).max(units.cost),
            };
            let is_debt = !admits && matches!(handling, Handling::Delay { .. });
            let is_charged = is_admitted && cost > 0 && (admits || is_debt);
            let number = self.receipts;
            self.receipts += 1;
            let state = self.state(limit, key, rule);
            let mut receipt = None;
            if is_charged {
                let made = match handling {
                    Handling::Delay { max_debt } if is_debt => {
                        // One unit of debt takes a nanosecond.
                        SlowDown { step_ns: 1, max_ns: max_debt }.admit(state, rule, cost, now).receipt
                    }
                    _ => {
                        state.admit(rule, cost, now);
                        state.receipt(cost, now)
                    }
                };
                receipt = Some((RemoteReceipt::numbered(number, cost), made));
            }
            let state = state.clone();
            let receipt = receipt.map(|(receipt, made)| {
                let made =
                    Made { limit: limit.into(), key, rule: rule.clone(), units: cost, returned: 0, receipt: made };
                self.charges.insert(number, made);
                receipt
            });
            Ok(RemoteOutcome {
                admitted: if admits { cost } else { 0 },
                is_charged,
                is_outdated: false,
                state,
                receipt,
            })
        });
        Answers { is_admitted, outcomes: outcomes.collect() }
    }
}

/// For requests without remote limits.
pub(super) struct NoStore;

impl Decider for NoStore {
    async fn decide(&self, _: &RemoteStore, charges: &[RemoteCharge<'_>]) -> Answers {
        panic!("no store is asked, but {charges:?} are")
    }

    fn refill(&self, refill: Refill) {
        panic!("no units are borrowed, but {refill:?} is")
    }
}
