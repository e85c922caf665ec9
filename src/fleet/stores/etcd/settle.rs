//! Tells etcd of refunds, settlements and spent units, on the control runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::select;
use tokio::time::{sleep, sleep_until, timeout_at};

use super::ledger::KeyOf;
use super::step::Step;
use super::store::{Etcd, EtcdStore};
use super::transact::Transaction;
use crate::base::time::instant_now;
use crate::engine::limit::Algorithm;
use crate::engine::store::backend::{EtcdReceipt, SendPart, all};
use crate::fleet::stores::driver::grpc::{CallError, Caller};
use crate::fleet::stores::driver::turn::Turn;
use crate::fleet::stores::driver::{BATCH_MAX, BATCH_TIMEOUT, Correct, Reached, Report, Server as _, Work};

/// The pause before a key without an answer is tried again, and while etcd is down.
const PAUSE: Duration = Duration::from_millis(100);

impl Correct for Etcd {
    async fn send(
        reached: &mut Reached<'_, Self>,
        _: u64,
        reports: impl FnOnce() -> Vec<Report<EtcdReceipt>> + Send,
    ) -> bool {
        send(reached.store, reached.connection, by_key(reports())).await
    }
}

impl Work for Etcd {
    /// Ends loans whose units are neither given back nor followed by others, until dropped.
    async fn work(store: &Arc<EtcdStore>) {
        loop {
            let ends_all = store.is_ending.load(Ordering::Relaxed);
            let added = store.ledger.added.notified();
            match store.ledger.next_due() {
                None => added.await,
                Some(at) if !ends_all && at > store.now() => select! {
                    () = added => {}
                    () = sleep_until(store.context.clock.instant(store.clock.own(at))) => {}
                },
                Some(_) => {
                    let is_made = match store.first() {
                        Some((_, caller)) => {
                            let due = store.ledger.take_due(store.now(), ends_all);
                            send(store, &caller, due.into_iter().map(|key| (key, Vec::new())).collect()).await
                        }
                        None => false,
                    };
                    if !is_made {
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

fn by_key(reports: Vec<Report<EtcdReceipt>>) -> Vec<(KeyOf, Vec<Report<EtcdReceipt>>)> {
    let mut by_key: HashMap<KeyOf, Vec<Report<EtcdReceipt>>> = HashMap::new();
    for report in reports {
        let key = match &report {
            Report::GiveBack(receipt, _) => (receipt.limit.clone(), receipt.key),
            Report::Settle(settlement) => (settlement.limit.clone(), settlement.key),
        };
        by_key.entry(key).or_default().push(report);
    }
    by_key.into_iter().collect()
}

/// Makes the reports about each key, some keys at once, and ends their loans. Returns whether all were made. After a failure,
/// the others are kept for later.
async fn send(store: &EtcdStore, caller: &Caller, reports: Vec<(KeyOf, Vec<Report<EtcdReceipt>>)>) -> bool {
    let turn = &Turn::default();
    let mut rest = reports.into_iter().peekable();
    while rest.peek().is_some() {
        let some = rest.by_ref().take(BATCH_MAX);
        let part = |(key, reports)| -> SendPart<'_, bool> {
            Box::pin(async move { correct(store, caller, turn, &key, reports).await })
        };
        let parts: SmallVec<[SendPart<'_, bool>; 2]> = some.map(part).collect();
        if !all(parts).await.into_iter().all(|is_made| is_made) {
            for (key, reports) in rest {
                store.ledger.note_due(store.now(), key);
                store.outbox.park(reports);
            }
            return false;
        }
    }
    true
}

/// Makes the reports about one key, and ends its loans. Returns whether this was done. Otherwise it is tried again later.
async fn correct(
    store: &EtcdStore,
    caller: &Caller,
    turn: &Turn<Step>,
    of: &KeyOf,
    reports: Vec<Report<EtcdReceipt>>,
) -> bool {
    let held = store.ledger.holding(of);
    let mut locked = held.lock().await;
    let rule = reports.iter().map(rule_of).next_back().or(locked.rule.as_ref()).cloned();
    let count = reports.len();
    locked.report(reports);
    store.outbox.sent(count);
    let mut error = None;
    let is_due = locked.is_due(store.is_ending.load(Ordering::Relaxed), store.now());
    if let Some(rule) = rule.filter(|_| is_due) {
        let deadline = instant_now() + BATCH_TIMEOUT;
        let transaction = Transaction { store, caller, turn, deadline, of, rule: &rule };
        let made = timeout_at(deadline, transaction.make(&mut locked, None)).await;
        error = made.unwrap_or_else(|_| Err(CallError::late())).err();
        locked.rule = Some(rule);
    }
    let is_done = error.is_none();
    if !is_done {
        store.ledger.note_due(store.now(), of.clone());
    }
    drop(locked);
    if let Some(error) = error {
        store.node.failed(error.failure, &error.text);
    }
    is_done
}

fn rule_of(report: &Report<EtcdReceipt>) -> &Algorithm {
    match report {
        Report::GiveBack(receipt, _) => &receipt.rule,
        Report::Settle(settlement) => &settlement.rule,
    }
}
