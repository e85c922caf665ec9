//! Sends reports to the limiter, on the control runtime.
//!
//! A batch whose answer is lost is sent again with the same number before any other one, and the limiter makes no batch
//! twice.

use std::sync::Arc;

use super::CORRECT;
use super::limiter::Limiter;
use super::proto::correction::Change;
use super::proto::{self, CorrectRequest, CorrectResponse, Correction, KeyState, MadeCharge};
use super::receipt::{CallId, LimiterReceipt, Refund};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::backend::grpc::{CallError, Caller};
use crate::engine::store::backend::{self, BATCH_TIMEOUT, Batch, Failure, Outbox, Report};

/// Takes some reports out of an outbox.
type Take = fn(&Outbox<Refund>) -> Vec<Report<Refund>>;

/// Sends what is queued, until dropped.
pub(super) async fn flush(store: &Arc<Limiter>) {
    backend::flush(&store.outbox, || pass(store)).await;
}

/// Sends what is queued now, and what has no answer. Returns whether everything was answered, or is parked.
async fn pass(store: &Limiter) -> bool {
    let node = &store.node;
    let caller = store.background.load().as_ref().and_then(|link| link.connection());
    let (Some(caller), Some(process)) = (caller.filter(|_| node.is_closed()), node.process()) else {
        store.outbox.park(store.outbox.take());
        // Its connection may be about to open, or it may decide since. Batches without an answer wait for it too.
        return !node.decides() || store.outbox.len() == 0;
    };
    let sent = send(store, &caller, process, Outbox::take).await;
    sent.map_err(|error| node.failed(error.failure, &error.text)).is_ok()
}

/// Sends what is parked before the limiter decides again.
pub(super) async fn send_parked(store: &Limiter, caller: &Caller, process: u64) -> Result<(), CallError> {
    send(store, caller, process, Outbox::take_parked).await
}

/// Sends all batches without an answer, and then what `take` takes. An error ends it; what was not answered is kept. So
/// nothing is lost if the future is dropped.
async fn send(store: &Limiter, caller: &Caller, process: u64, take: Take) -> Result<(), CallError> {
    let mut unanswered = store.unanswered.lock().await;
    let since = store.context.clock.now();
    unanswered.extend(Batch::of_all(take(&store.outbox), since, |_| store.next_batch()));
    while let Some(batch) = unanswered.front() {
        let is_old = batch.is_old(store.context.clock.now());
        let failed = if is_old { None } else { call(store, caller, process, batch).await.err() };
        let is_refused = failed.as_ref().is_some_and(|error| matches!(error.failure, Failure::Other | Failure::Reply));
        if let Some(error) = failed.filter(|_| !is_refused) {
            return Err(error);
        }
        let Some(batch) = unanswered.pop_front() else { return Ok(()) };
        store.outbox.sent(batch.reports.len());
        if is_old || is_refused {
            store.context.metrics.dropped.inc_by(batch.reports.len() as u64);
        } else {
            store.context.late_refunds.made(&batch.reports, store.context.clock.now());
        }
    }
    Ok(())
}

/// Sends one batch.
async fn call(store: &Limiter, caller: &Caller, process: u64, batch: &Batch<Refund>) -> Result<(), CallError> {
    let now = store.context.clock.now();
    // Another process has states that the refunds of this one are in.
    let is_due = |report: &&Report<Refund>| match report {
        Report::GiveBack(refund, _) => refund.process() == process,
        Report::Settle(_) => true,
    };
    let corrections = batch.reports.iter().filter(is_due).map(|report| correction(report, now)).collect();
    let question = CorrectRequest { process, replica: store.node.replica, batch: batch.first, corrections };
    let answer: CorrectResponse = caller.call_within(BATCH_TIMEOUT, CORRECT, &question).await?;
    if answer.is_done {
        return Ok(());
    }
    store.node.is_cold(process);
    Err(CallError { failure: Failure::Connection, text: "the limiter has begun anew".into() })
}

fn correction(report: &Report<Refund>, now: Timestamp) -> Correction {
    let change = match report {
        Report::GiveBack(Refund::Call(id), _) => Change::Call(call_message(*id)),
        Report::GiveBack(Refund::Charge(receipt), _) => {
            let LimiterReceipt { call, index, limit, key, rule, units } = receipt;
            Change::Charge(MadeCharge {
                call: Some(call_message(*call)),
                index: *index,
                of: Some(key_state(limit, *key, *rule)),
                units: *units,
                age_us: now.ns_since(call.at) / 1000,
            })
        }
        Report::Settle(settlement) => Change::Settlement(proto::Settlement {
            of: Some(key_state(&settlement.limit, settlement.key, settlement.rule.digest())),
            units: settlement.units(now),
            max_debt: settlement.max_debt,
        }),
    };
    Correction { change: Some(change) }
}

fn call_message(CallId { session, number, .. }: CallId) -> proto::Call {
    proto::Call { session, number }
}

fn key_state(limit: &str, key: Key, rule: u64) -> KeyState {
    KeyState { limit: limit.into(), key: Some(key.into()), rule, numbers: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::base::telemetry::Metrics;
    use crate::base::time::Clock;
    use crate::engine::store::backend::{OnFailure, grpc};
    use crate::engine::store::service::settings::LimiterSettings;

    /// The limiter of process 7, to which there is no connection, and a lost call.
    fn limiter_and_call() -> (Arc<Limiter>, CallId) {
        let settings = LimiterSettings {
            name: "main".into(),
            host: "limiter".into(),
            port: 1,
            tls: None,
            timeout: Duration::from_millis(10),
            on_failure: OnFailure::Split,
        };
        let store = Limiter::new(settings, None, Key::default(), Clock::start(), &Metrics::new("", "").unwrap());
        store.node.warmed(7);
        let call = CallId { process: 7, session: 1, number: 1, at: store.context.clock.now() };
        (store, call)
    }

    /// Without a further report, nothing else would begin the next try.
    #[tokio::test(start_paused = true)]
    async fn a_batch_without_an_answer_waits_for_a_connection() {
        let (store, call) = limiter_and_call();
        assert!(pass(&store).await, "nothing waits");
        store.give_back_call(call);
        let now = store.context.clock.now();
        store.unanswered.lock().await.extend(Batch::of_all(store.outbox.take(), now, |_| store.next_batch()));
        assert!(!pass(&store).await, "its connection broke");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_takes_too_long_loses_no_report() {
        let (store, call) = limiter_and_call();
        store.give_back_call(call);
        store.outbox.park(store.outbox.take());
        let (near, _far) = tokio::io::duplex(1 << 16);
        let Ok(opened) = grpc::begin(near, "http://limiter".into()).await else { panic!("no connection") };
        // Another call of the same task has no answer yet.
        let sending = store.unanswered.lock().await;
        let sent = timeout(Duration::from_secs(1), send_parked(&store, &opened.connection, 7)).await;
        assert!(sent.is_err(), "it waits");
        drop(sending);
        assert_eq!((store.outbox.parked(), store.outbox.len()), (1, 1));
    }
}
