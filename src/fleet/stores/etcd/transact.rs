//! One transaction on an account: reads it, plans, and writes, until no other replica has written meanwhile.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::account::{Account, AccountKeys, bytes_of};
use super::ledger::{Holding, KeyOf};
use super::plan::{Plan, Wish, Write, plan};
use super::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::etcdserverpb::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op, response_op};
use super::proto::mvccpb::KeyValue;
use super::step::Step;
use super::store::EtcdStore;
use crate::base::time::Timestamp;
use crate::engine::limit::Algorithm;
use crate::engine::store::LEASE_NS;
use crate::engine::store::backend::{EtcdReceipt, Failure, Units};
use crate::fleet::stores::driver::grpc::{CallError, Caller};
use crate::fleet::stores::driver::turn::Turn;

/// Writes of other replicas that one transaction follows.
const CONFLICTS_MAX: usize = 64;

/// The time after the end of a loan until its units count as spent without a further transaction, in nanoseconds. Most
/// loans end with a refund, or with the next loan, before.
const SLACK_NS: u64 = 250_000_000;

/// The pause before a transaction without an answer is resolved, in nanoseconds.
const RESOLVE_NS: u64 = 100_000_000;

/// The error of etcd for a key that is attached to a lease that has ended.
const NO_LEASE: &str = "requested lease not found";

/// One transaction on an account of this process.
pub(super) struct Transaction<'t> {
    pub(super) store: &'t EtcdStore,
    pub(super) caller: &'t Caller,
    /// The steps of other transactions at this time.
    pub(super) turn: &'t Turn<Step>,
    pub(super) deadline: Instant,
    pub(super) of: &'t KeyOf,
    pub(super) rule: &'t Algorithm,
}

impl Transaction<'_> {
    /// Makes the reports of `holding`, and borrows units if `units` are given. Returns the plan that was made, and the
    /// number of the loan.
    ///
    /// If there is no answer, or this is dropped, `holding` knows what has begun, and a later transaction finds out whether
    /// it was made.
    pub(super) async fn make(&self, holding: &mut Holding, units: Option<Units>) -> Result<(Plan, u64), CallError> {
        let Self { store, rule, of, .. } = *self;
        let keys = AccountKeys::new(&store.prefix, (&of.0, of.1), store.replica);
        let number = store.next_number();
        let mut entries = entries_of(self.step(request_op::Request::RequestRange(keys.range())).await?);
        for _ in 0..CONFLICTS_MAX {
            let account = keys.read(entries, rule).map_err(|key| foreign(&key))?;
            holding.resolve(&account);
            let ends_all = store.is_ending.load(Ordering::Relaxed);
            let own = store.context.clock.now();
            if let Some(at) = account.counted_at() {
                store.clock.follow(at, own);
            }
            let now = store.clock.at(own);
            let wish = Wish { rule, borrow: units.map(|units| (units, number)), ends_all, own };
            let mut plan = plan(&account, holding, &wish, now);
            let Some(write) = plan.write.take() else { return Ok((plan, number)) };
            let (question, write_number) = self.question(&keys, &account, &write).await?;
            let charged = units.filter(|_| plan.borrowed > 0).map(|units| (plan.now, units.cost.min(plan.borrowed)));
            holding.begin(
                write_number,
                account.revision,
                &write.loans,
                charged.map(|charged| self.receipt(number, charged)),
            );
            holding.rule = Some(rule.clone());
            store.ledger.note_due(now.saturating_add_ns(RESOLVE_NS), of.clone());
            let answer = self.step(request_op::Request::RequestTxn(question)).await;
            if answer.as_ref().is_err_and(|error| error.text.contains(NO_LEASE)) {
                store.lost_leases().await;
            }
            let response_op::Response::ResponseTxn(answer) = answer? else { return Err(Failure::Reply.into()) };
            if answer.succeeded {
                holding.made(write.loans);
                if !holding.loans.is_empty() {
                    store.ledger.note_due(now.saturating_add_ns(LEASE_NS + SLACK_NS), of.clone());
                }
                return Ok((plan, number));
            }
            holding.refused();
            entries = answer.responses.into_iter().filter_map(|op| op.response).flat_map(entries_of).collect();
        }
        Err(CallError { failure: Failure::Busy, text: "too many replicas write a key".into() })
    }

    /// Makes a step together with those of other transactions.
    async fn step(&self, request: request_op::Request) -> Result<response_op::Response, CallError> {
        self.turn.call(self.caller, Step(RequestOp { request: Some(request) }), self.deadline).await
    }

    /// The receipt for `units` of a loan.
    pub(super) fn receipt(&self, loan: u64, (at, units): (Timestamp, u64)) -> EtcdReceipt {
        let (limit, key) = self.of.clone();
        EtcdReceipt { limit, key, rule: self.rule.clone(), loan, at, units }
    }

    /// The transaction that writes, and its number.
    async fn question(
        &self,
        keys: &AccountKeys,
        account: &Account,
        write: &Write,
    ) -> Result<(TxnRequest, u64), CallError> {
        let store = self.store;
        let counter_lease = store.counter_lease(self.caller, write.idle_at).await?;
        let own_lease = if write.loans.is_empty() { counter_lease } else { held_lease(store, write)? };
        let number = store.next_number();
        let put = |key: &str, value: Vec<u8>, lease| RequestOp {
            request: Some(request_op::Request::RequestPut(PutRequest { key: key.into(), value, lease })),
        };
        let success = vec![
            put(&keys.counter, bytes_of(&write.counter), counter_lease),
            put(&keys.own, bytes_of(&write.own(number)), own_lease),
        ];
        let range: RangeRequest = keys.range();
        let failure = vec![RequestOp { request: Some(request_op::Request::RequestRange(range)) }];
        let target_union = Some(TargetUnion::ModRevision(account.revision));
        let (result, target) = (CompareResult::Equal.into(), CompareTarget::Mod.into());
        let compare = vec![Compare { result, target, key: keys.counter.clone().into(), target_union }];
        Ok((TxnRequest { compare, success, failure }, number))
    }
}

/// The lease of this process, if it lasts longer than its loans.
fn held_lease(store: &EtcdStore, write: &Write) -> Result<i64, CallError> {
    let latest = write.loans.iter().map(|loan| loan.at).max().unwrap_or(Timestamp::ZERO);
    let lease = store.lease().filter(|lease| latest.saturating_add_ns(2 * LEASE_NS) <= lease.until);
    let none = || CallError { failure: Failure::Timeout, text: "the lease of this replica may have ended".into() };
    lease.map(|lease| lease.id).ok_or_else(none)
}

fn foreign(key: &str) -> CallError {
    CallError { failure: Failure::Value, text: format!("`{key}` has a value that no replica has written") }
}

/// The keys that a range has.
fn entries_of(response: response_op::Response) -> Vec<KeyValue> {
    match response {
        response_op::Response::ResponseRange(range) => range.kvs,
        _ => Vec::new(),
    }
}
