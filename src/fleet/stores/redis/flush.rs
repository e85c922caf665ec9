//! Sends reports to their nodes, on the control runtime.
//!
//! A batch whose reply is lost is sent again with the same numbers before any other one, and the node makes no correction
//! twice. In a cluster each key is a call of its own, and the calls of a batch are written at once.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::timeout;

use super::call::reply_of;
use super::node::Node;
use super::script::{self, Change, Correction, InFlight, Noting};
use super::store::{Redis, Store};
use crate::engine::store::backend::{Failure, RedisReceipt};
use crate::fleet::stores::driver::{
    BATCH_MAX, BATCH_TIMEOUT, Batch, ConnectError, Correct, Reached, Report, Server as _,
};

impl Correct for Redis {
    async fn send(
        reached: &mut Reached<'_, Self>,
        _: u64,
        reports: impl FnOnce() -> Vec<Report<RedisReceipt>> + Send,
    ) -> bool {
        let Reached { store, node, connection } = reached;
        let mut unanswered = node.unanswered.lock().await;
        let sent = send(store, node, &mut unanswered, connection, reports()).await;
        sent.map_err(|failure| node.failed(failure, "reports were not answered")).is_ok()
    }
}

/// Sends all batches without a reply, and then `reports`. An error ends it; what was not answered is kept.
async fn send(
    store: &Store,
    node: &Node,
    unanswered: &mut VecDeque<Batch<RedisReceipt>>,
    connection: &mut MultiplexedConnection,
    reports: Vec<Report<RedisReceipt>>,
) -> Result<(), Failure> {
    let since = store.context.clock.now();
    unanswered.extend(Batch::of_all(reports, since, |count| store.number_corrections(count)));
    while let Some(batch) = unanswered.front() {
        let is_old = batch.is_old(store.context.clock.now());
        let replies = if is_old { Ok(Vec::new()) } else { call(store, connection, batch).await };
        // No reply: the same batch is sent again.
        let replies = replies?;
        let Some(batch) = unanswered.pop_front() else { return Ok(()) };
        if batch.reports.iter().any(Report::changes_flights) {
            node.note_inexact();
        }
        if is_old {
            store.context.metrics.dropped.inc_by(batch.reports.len() as u64);
            store.outbox.sent(batch.reports.len());
            continue;
        }
        settle_batch(store, batch, &replies)?;
    }
    Ok(())
}

/// Handles the replies to a batch, report by report: what the node refused for now is sent again later, with other numbers.
fn settle_batch(store: &Store, batch: Batch<RedisReceipt>, replies: &[Value]) -> Result<(), Failure> {
    let (mut result, mut refused, now) = (Ok(()), Vec::new(), store.context.clock.now());
    let per_call = batch.reports.len().div_ceil(replies.len().max(1));
    for (index, report) in batch.reports.into_iter().enumerate() {
        let Some(Value::ServerError(error)) = replies.get(index / per_call.max(1)) else {
            store.outbox.sent(1);
            store.context.late_refunds.made(&[report], now);
            continue;
        };
        let failure = Failure::of(&RedisError::from(error.clone()));
        match failure {
            // The node would refuse it again.
            Failure::Other | Failure::Reply => {
                store.context.metrics.dropped.inc();
                store.outbox.sent(1);
            }
            _ => refused.push(report),
        }
        if failure == Failure::Moving {
            store.lost.notify_one();
        }
        result = Err(failure);
    }
    store.outbox.park(refused);
    result
}

/// The replies to the calls of a batch.
async fn call(
    store: &Store,
    connection: &mut MultiplexedConnection,
    batch: &Batch<RedisReceipt>,
) -> Result<Vec<Value>, Failure> {
    let now = store.context.clock.now();
    let correction = |(number, report): (u64, &Report<RedisReceipt>)| {
        let change = match report {
            Report::GiveBack(receipt, _) => Change::GiveBack(receipt.clone()),
            Report::Settle(settlement) => Change::Settle {
                store_key: store.names.of_key(&settlement.limit, settlement.key),
                rule: settlement.rule.clone(),
                late: settlement.units_at(now),
                max_debt: settlement.max_debt,
            },
        };
        Correction { number, change }
    };
    let corrections: Vec<Correction> = (batch.first..).zip(&batch.reports).map(correction).collect();
    let correct =
        |noting, corrections: &[Correction]| script::correct(&store.names, &store.caller, noting, corrections, now);
    let calls: Vec<script::Call> = if store.nodes().is_cluster() {
        corrections.chunks(1).map(|one| correct(Noting::AtKey, one)).collect()
    } else {
        vec![correct(Noting::ByReplica, &corrections)]
    };
    run(connection, &calls).await.map_err(|error| error.failure)
}

/// Renews the units that this replica has in flight on a node: all of them if `is_exact`, also where it has none any more,
/// else no less than the node knows.
pub(super) async fn renew_flights(
    store: &Store,
    node: &Arc<Node>,
    connection: &mut MultiplexedConnection,
    is_exact: bool,
) -> Result<(), ConnectError> {
    let nodes = store.nodes();
    let own = nodes.all.iter().position(|known| Arc::ptr_eq(known, node));
    let keys: Vec<Box<str>> =
        store.flights.keys(is_exact).into_iter().filter(|key| nodes.node_of(key) == own).collect();
    let size = if nodes.is_cluster() { 1 } else { BATCH_MAX };
    for keys in keys.chunks(BATCH_MAX) {
        // Units are read now: the node hears of a request that ends during an earlier round before this one.
        let flights: Vec<InFlight> = store
            .flights
            .of(keys, is_exact)
            .into_iter()
            .map(|(key, units)| InFlight { key: key.into(), units, is_exact })
            .collect();
        let calls: Vec<script::Call> = flights.chunks(size).map(|some| script::renew(&store.caller, some)).collect();
        if !calls.is_empty() {
            run(connection, &calls).await?.into_iter().try_for_each(|reply| reply_of(reply).map(drop))?;
        }
    }
    Ok(())
}

/// Calls scripts at once, and loads them if the node does not know them. Errors of the node are among the replies.
pub(super) async fn run(
    connection: &mut MultiplexedConnection,
    calls: &[script::Call],
) -> Result<Vec<Value>, ConnectError> {
    let mut replies = Vec::new();
    for loads_scripts in [false, true] {
        let mut all = Pipeline::new();
        let mut loaded = 0;
        if loads_scripts && let Some(call) = calls.first() {
            all.cmd("SCRIPT").arg("LOAD").arg(call.script.text);
            loaded = 1;
        }
        for call in calls {
            all.add_command(call.by_hash());
        }
        let sent = timeout(BATCH_TIMEOUT, connection.send_packed_commands(&all, 0, calls.len() + loaded)).await;
        let sent = sent.map_err(|_| Failure::Timeout)?;
        replies = sent.map_err(|error| ConnectError::redis(&error))?.split_off(loaded);
        let is_unknown = |reply: &Value| matches!(reply, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript));
        if !replies.iter().any(is_unknown) {
            break;
        }
    }
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Clock;
    use crate::engine::limit::Key;
    use crate::engine::limit::tests::algorithm;
    use crate::engine::store::backend::{Backend as _, OnFailure, Settlement};

    /// In a cluster each report has a reply of its own.
    #[test]
    fn each_report_has_its_own_outcome() {
        // replies, reports that are sent again, dropped ones
        let (fine, moved, poisoned) = (":1\r\n", "-MOVED 1 127.0.0.1:1\r\n", "-WRONGTYPE of another program\r\n");
        for (replies, parked, dropped) in [
            ([fine, fine], 0_usize, 0_u64),
            ([fine, moved], 1, 0),
            ([moved, poisoned], 1, 1),
            ([poisoned, moved], 1, 1),
            ([poisoned, poisoned], 0, 2),
        ] {
            let store = Store::unreachable(OnFailure::Split, Clock::start());
            let rule = algorithm("token_bucket 10/1s burst 10");
            for key in 0..2 {
                store.settle(Settlement::new("l", Key::of_hash(key, key), &rule, (1, 0), store.context.clock.now()));
            }
            let reports = store.outbox.take();
            let batch = Batch { first: 1, reports, since: store.context.clock.now() };
            let replies = replies.map(|reply| redis::parse_redis_value(reply.as_bytes()).unwrap());
            let settled = settle_batch(&store, batch, &replies);
            assert_eq!(settled.is_ok(), parked == 0 && dropped == 0, "{replies:?}");
            let counts = (store.outbox.len(), store.outbox.parked(), store.context.metrics.dropped.get());
            assert_eq!(counts, (parked, parked, dropped), "{replies:?}");
        }
    }
}
