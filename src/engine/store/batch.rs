//! All charges of one request, decided together: all are made, or none.
//!
//! Every path of a request goes through here: the usual one, held and delayed requests, and explanations, which only
//! peek. A batch is built, decided and undone in place, because copying a struct that was just written in pieces takes
//! longer than the arithmetic of a token bucket. The receipt of a token bucket is not stored: it is computed from the
//! decision when a charge is undone, which is rare.
//!
//! Charges that a store decides are in `remote.rs`. The usual path does not look for them.
//!
//! Not here: which limits apply to a request, and what happens after a denial (gate).

mod lease;
mod remote;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::remote::LocalDecision;
use super::remote::RemoteLimit;
use super::returned::Returned;
use super::table::{Receipt, Table};
use crate::base::time::Timestamp;
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::token_bucket::Answer;
use crate::engine::limit::{Algorithm, Decision, Key, Retry};

/// All charges of one request. `C` is the caller's context of each charge.
#[derive(Debug)]
pub struct Batch<'t, C> {
    charges: SmallVec<[Charge<'t, C>; 4]>,
    /// The instant of the last call of [`Batch::admit`].
    at: Timestamp,
    /// Receipts of charges in the state [`Progress::Receipt`] or [`Progress::Slowed`], with the index of the charge.
    /// Boxed, because few batches have any.
    receipts: Option<Box<Receipts>>,
}

type Receipts = SmallVec<[(usize, Receipt); 2]>;

/// The charge that one limit makes for one request.
#[derive(Debug)]
pub struct Charge<'t, C> {
    table: &'t Table,
    /// The owner of the budget.
    pub key: Key,
    /// The rule that the limit has for this key.
    pub rule: &'t Algorithm,
    /// Units; 0 peeks. After [`Batch::slow_down`] those that are charged.
    pub cost: u64,
    /// Whether a denial denies the request. A charge that is not enforced is made only if its limit admits it.
    pub enforced: bool,
    /// How replicas share the limit, if its state is in a store.
    remote: Option<&'t Arc<RemoteLimit>>,
    progress: Progress,
    /// The part of a token bucket's receipt that the decision does not hold; see [`Answer::refunded`].
    refunded: u32,
    decision: Decision,
    /// The caller's context.
    pub check: C,
}

/// How far a charge got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing is charged.
    Open,
    /// Charged to a token bucket. The receipt can be computed.
    Bucket,
    /// Charged. The batch holds the receipt.
    Receipt,
    /// Charged although the limit denied it, because the limit delays requests. The batch holds the receipt.
    Slowed,
    /// Nothing is charged, because the store denied it.
    Denied,
    /// Nothing is charged, because the store says nothing, and its limits reject then.
    Rejected,
    /// Charged and given back.
    Undone,
    /// Charged. The caller holds the receipt, or there is nothing to give back.
    Taken,
}

impl<'t, C> Charge<'t, C> {
    /// A charge that is not made yet.
    #[inline]
    pub fn new(table: &'t Table, key: Key, rule: &'t Algorithm, cost: u64, enforced: bool, check: C) -> Self {
        let decision = Decision { denied: None, remaining: 0, reset_after_ns: 0 };
        Self { table, key, rule, cost, enforced, remote: None, progress: Progress::Open, refunded: 0, decision, check }
    }

    /// The decision of the limit at the last [`Batch::admit`] or [`Batch::peek`].
    #[inline]
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Whether the limit admitted the charge.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.decision.is_admitted()
    }

    /// Whether units are charged now.
    #[inline]
    pub fn is_charged(&self) -> bool {
        !matches!(self.progress, Progress::Open | Progress::Denied | Progress::Rejected | Progress::Undone)
    }

    /// Whether units are charged by the batch alone, and the receipt can be computed.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.progress == Progress::Bucket
    }

    /// Whether the charge was made by [`Batch::slow_down`].
    #[inline]
    pub fn is_slowed(&self) -> bool {
        self.progress == Progress::Slowed
    }

    /// Whether the charge was made and given back.
    pub fn is_undone(&self) -> bool {
        self.progress == Progress::Undone
    }

    /// The limit's decision at `now`. Nothing is charged.
    pub fn peek(&self, now: Timestamp) -> Decision {
        if self.remote.is_some() {
            return self.peek_mirror(now);
        }
        self.table.peek(self.key, self.rule, self.cost, now)
    }

    /// The wait at `now` behind requests that take `ahead` units. Borrowed units at hand serve the first of them.
    pub fn wait(&self, ahead: u64, now: Timestamp) -> Retry {
        let at_hand = self.at_hand(now);
        let cost = self.cost.saturating_sub(at_hand.saturating_sub(ahead));
        self.table.wait(self.key, self.rule, ahead.saturating_sub(at_hand), cost, now)
    }

    /// The table of the limit.
    pub fn table(&self) -> &'t Table {
        self.table
    }

    #[inline]
    fn admit(&mut self, index: usize, receipts: &mut Option<Box<Receipts>>, now: Timestamp) {
        // Most keys are known token buckets.
        let Some((answer, quota)) = self.table.charge_known(self.key, self.rule, self.cost, now) else {
            return self.admit_other(index, receipts, now);
        };
        self.decision = answer.decision(quota, self.cost);
        if self.decision.is_admitted() {
            (self.progress, self.refunded) = (Progress::Bucket, answer.refunded());
        }
    }

    /// Charges a new key, or a limit with another algorithm.
    #[inline(never)]
    fn admit_other(&mut self, index: usize, receipts: &mut Option<Box<Receipts>>, now: Timestamp) {
        let outcome = self.table.admit(self.key, self.rule, self.cost, now);
        self.decision = outcome.decision;
        if outcome.is_admitted() {
            receipts.get_or_insert_default().push((index, outcome.receipt));
            self.progress = Progress::Receipt;
        }
    }

    /// The receipt of a plain charge, made at `at`.
    #[cold]
    fn plain_receipt(&self, at: Timestamp) -> Receipt {
        let Algorithm::TokenBucket(quota) = self.rule else { return Receipt::None };
        let answer = Answer::admitted(self.decision.reset_after_ns, self.refunded);
        Receipt::Bucket(answer.receipt(quota, self.cost, at), quota.interval_ns())
    }
}

impl<C> Default for Batch<'_, C> {
    #[inline]
    fn default() -> Self {
        Self { charges: SmallVec::new(), at: Timestamp::ZERO, receipts: None }
    }
}

impl<'t, C> FromIterator<Charge<'t, C>> for Batch<'t, C> {
    fn from_iter<I: IntoIterator<Item = Charge<'t, C>>>(charges: I) -> Self {
        Self { charges: charges.into_iter().collect(), ..Self::default() }
    }
}

impl<'t, C> Batch<'t, C> {
    /// Adds a charge.
    #[inline]
    pub fn push(&mut self, charge: Charge<'t, C>) {
        self.charges.push(charge);
    }

    /// The charges in the order in which they were added.
    #[inline]
    pub fn charges(&self) -> &[Charge<'t, C>] {
        &self.charges
    }

    /// The charges, to be completed before they are decided.
    #[inline]
    pub fn charges_mut(&mut self) -> &mut [Charge<'t, C>] {
        &mut self.charges
    }

    /// Whether there is no charge.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Removes charges that are not wanted, before they are decided.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&Charge<'t, C>) -> bool) {
        self.charges.retain(|charge| is_wanted(charge));
    }

    /// Decides all charges at `now`. If every enforced charge is admitted, those that are admitted are made and the
    /// result is `true`. Otherwise none is made. Another thread may see charges of a denied batch for a moment.
    ///
    /// A batch that has been admitted must be undone before it is decided again.
    #[inline]
    pub fn admit(&mut self, now: Timestamp) -> bool {
        self.at = now;
        for (index, charge) in self.charges.iter_mut().enumerate() {
            charge.admit(index, &mut self.receipts, now);
            if charge.enforced && !charge.decision.is_admitted() {
                self.deny(index, now);
                return false;
            }
        }
        true
    }

    /// Undoes a batch that the charge at `index` denied, and asks the limits behind it for their decisions.
    #[cold]
    fn deny(&mut self, index: usize, now: Timestamp) {
        self.undo(now);
        for charge in self.charges.iter_mut().skip(index + 1) {
            charge.decision = charge.peek(now);
        }
    }

    /// Finds the decisions of all limits at `now` without charging them. Returns whether every enforced one admits.
    pub fn peek(&mut self, now: Timestamp) -> bool {
        for charge in &mut self.charges {
            charge.decision = charge.peek(now);
        }
        self.charges.iter().all(|charge| charge.is_admitted() || !charge.enforced)
    }

    /// The first instant from `earliest` to `now` as of which every enforced charge is admitted, if all are admitted at
    /// `now`. No charge falls into a window that has ended by `now`.
    pub fn slot(&self, earliest: Timestamp, now: Timestamp) -> Timestamp {
        let from = self.charges.iter().fold(earliest, |from, charge| charge.rule.chargeable_from(from, now));
        let enforced = self.charges.iter().filter(|charge| charge.enforced);
        match enforced.filter_map(|charge| charge.peek(from).denied).max() {
            None => from,
            Some(Retry::AfterNs(ns)) => from.saturating_add_ns(ns).min(now),
            Some(Retry::Never) => now,
        }
    }

    /// Makes the charge at `index` although its limit denied it. Returns the delay of the request in nanoseconds, and the
    /// units that are charged: fewer than the cost if there is no room for more debt.
    pub fn slow_down(&mut self, index: usize, by: &SlowDown, now: Timestamp) -> (u64, u64) {
        let Some(charge) = self.charges.get_mut(index) else { return (0, 0) };
        let slowed = charge.table.slow_down(charge.key, charge.rule, by, charge.cost, now);
        (charge.decision, charge.cost, charge.progress) = (slowed.decision, slowed.charged, Progress::Slowed);
        self.receipts.get_or_insert_default().push((index, slowed.receipt));
        (slowed.delay_ns, slowed.charged)
    }

    /// Gives back at `now` all charges whose receipts the caller has not taken.
    #[cold]
    pub fn undo(&mut self, now: Timestamp) {
        self.undo_each(now, |_, _| {});
    }

    /// Undoes the batch as [`Batch::undo`] does. Calls `returned` with each charge and the effect of its refund.
    pub fn undo_each(&mut self, now: Timestamp, mut returned: impl FnMut(&Charge<'t, C>, Returned)) {
        for charge in self.charges.iter_mut().filter(|charge| charge.is_plain()) {
            let units = charge.table.refund(charge.key, &charge.plain_receipt(self.at), now);
            charge.progress = Progress::Undone;
            returned(charge, units);
        }
        for (index, receipt) in self.receipts.take().into_iter().flat_map(|receipts| *receipts) {
            if let Some(charge) = self.charges.get_mut(index) {
                let units = charge.table.refund(charge.key, &receipt, now);
                charge.progress = Progress::Undone;
                returned(charge, units);
            }
        }
    }

    /// The receipt of the charge at `index`. From now on the caller undoes or settles it. `None` if nothing is charged,
    /// or the receipt was taken before.
    pub fn take_receipt(&mut self, index: usize) -> Option<Receipt> {
        let charge = self.charges.get_mut(index)?;
        let receipt = match charge.progress {
            Progress::Bucket => charge.plain_receipt(self.at),
            Progress::Receipt | Progress::Slowed => {
                let receipts = self.receipts.as_deref_mut()?;
                let place = receipts.iter().position(|(of, _)| *of == index)?;
                receipts.swap_remove(place).1
            }
            Progress::Open | Progress::Denied | Progress::Rejected | Progress::Undone | Progress::Taken => return None,
        };
        charge.progress = Progress::Taken;
        Some(receipt)
    }
}
