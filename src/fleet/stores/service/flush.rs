//! Sends reports to the limiter, on the control runtime.
//!
//! A batch whose answer is lost is sent again with the same number before any other one, and the limiter makes no batch
//! twice.

use super::CORRECT;
use super::limiter::{Limiter, Service};
use super::proto::correction::Change;
use super::proto::{self, CorrectRequest, CorrectResponse, Correction, KeyState, LateUnits, MadeCharge};
use super::refund::Refund;
use crate::base::time::Timestamp;
use crate::engine::limit::{Key, late};
use crate::engine::store::backend::{CallId, Failure, LimiterReceipt, Settlement};
use crate::fleet::stores::driver::grpc::{CallError, Caller};
use crate::fleet::stores::driver::{BATCH_TIMEOUT, Batch, Correct, Reached, Report, Server as _};

impl Correct for Service {
    async fn send(
        reached: &mut Reached<'_, Self>,
        process: u64,
        reports: impl FnOnce() -> Vec<Report<Refund>> + Send,
    ) -> bool {
        let sent = send(reached.store, reached.connection, process, reports).await;
        sent.map_err(|error| reached.node.failed(error.failure, &error.text)).is_ok()
    }
}

/// Sends all batches without an answer, and then `reports`. An error ends it; what was not answered is kept. So
/// nothing is lost if the future is dropped.
async fn send(
    store: &Limiter,
    caller: &Caller,
    process: u64,
    reports: impl FnOnce() -> Vec<Report<Refund>> + Send,
) -> Result<(), CallError> {
    let mut unanswered = store.unanswered.lock().await;
    let since = store.context.clock.now();
    unanswered.extend(Batch::of_all(reports(), since, |_| store.next_batch()));
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
        Report::Settle(settlement) => Change::Settlement(settlement_message(settlement, now)),
    };
    Correction { change: Some(change) }
}

fn settlement_message(settlement: &Settlement, now: Timestamp) -> proto::Settlement {
    let late = settlement.units_at(now);
    let aged = late.iter().zip(0..).flat_map(|(units, rate)| {
        units.iter().map(move |late| LateUnits { rate, units: late.units, age_us: late.age_ns / 1000 })
    });
    proto::Settlement {
        of: Some(key_state(&settlement.limit, settlement.key, settlement.rule.digest())),
        units: late::most(&late),
        max_debt: settlement.max_debt,
        late: if settlement.is_fresh(now) { Vec::new() } else { aged.collect() },
    }
}

fn call_message(CallId { session, number, .. }: CallId) -> proto::Call {
    proto::Call { session, number }
}

fn key_state(limit: &str, key: Key, rule: u64) -> KeyState {
    KeyState { limit: limit.into(), key: Some(key.into()), rule, numbers: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::base::time::Clock;
    use crate::engine::store::backend::OnFailure;
    use crate::fleet::stores::driver::{Generation, StoreContext, View, grpc, pass, send_parked};

    /// The limiter of process 7, to which there is no connection, and a lost call.
    fn limiter_and_call() -> (Arc<Limiter>, CallId) {
        let context = StoreContext::of_test(OnFailure::Split, Duration::from_millis(10), Clock::start());
        let store = Limiter::new(context, None, ("limiter".into(), 1), Key::default());
        store.node.warmed(Generation::of(7));
        let call = CallId { process: 7, session: 1, number: 1, at: store.context.clock.now() };
        (store, call)
    }

    /// Without a further report, nothing else would begin the next try.
    #[tokio::test(start_paused = true)]
    async fn a_batch_without_an_answer_waits_for_a_connection() {
        let (store, call) = limiter_and_call();
        store.background.store(Some(View::new(store.nodes())));
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
        let Ok(mut opened) = grpc::begin(near, "http://limiter".into()).await else { panic!("no connection") };
        // Another call of the same task has no answer yet.
        let sending = store.unanswered.lock().await;
        let mut reached = Reached { store: &store, node: &store.node, connection: &mut opened.connection };
        let sent = timeout(Duration::from_secs(1), send_parked(&mut reached, 7)).await;
        assert!(sent.is_err(), "it waits");
        drop(sending);
        assert_eq!((store.outbox.parked(), store.outbox.len()), (1, 1));
    }
}
