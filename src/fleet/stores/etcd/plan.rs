//! The next state of an account: pure arithmetic over what etcd has, the loans of this process, and what happened since.

use super::account::{Account, Counter, Loans, from_us, to_us};
use super::ledger::{Holding, Loan};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState};
use crate::engine::store::backend::{EtcdReceipt, Units};
use crate::fleet::stores::driver::Report;

/// What a replica wants of an account.
#[derive(Debug)]
pub(super) struct Wish<'w> {
    pub(super) rule: &'w Algorithm,
    /// Units to borrow, and the number of their loan.
    pub(super) borrow: Option<(Units, u64)>,
    /// Whether all loans end now.
    pub(super) ends_all: bool,
    /// The present by the clock of this process, which dates its reports.
    pub(super) own: Timestamp,
}

/// What follows from a wish.
#[derive(Debug)]
pub(super) struct Plan {
    /// The units that are borrowed, with those that are spent at once.
    pub(super) borrowed: u64,
    /// The state with all spent and lent units.
    pub(super) state: AnyState,
    /// The values to write; `None` if nothing changes.
    pub(super) write: Option<Write>,
    /// The time for which the plan holds.
    pub(super) now: Timestamp,
}

/// Values to write.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) counter: Counter,
    /// The loans of this process.
    pub(super) loans: Vec<Loan>,
    /// When the counter is as good as none.
    pub(super) idle_at: Timestamp,
}

impl Write {
    /// The value of the loans.
    pub(super) fn own(&self, write: u64) -> Loans {
        let loans = self.loans.iter().map(|loan| (to_us(loan.at), loan.units)).collect();
        Loans { write, loans }
    }
}

/// The account with the changes of this process.
struct Draft<'d> {
    rule: &'d Algorithm,
    spent: AnyState,
    loans: Vec<Loan>,
    now: Timestamp,
    /// As [`Wish::own`].
    own: Timestamp,
}

impl Draft<'_> {
    fn charge(&mut self, units: u64, at: Timestamp) {
        self.spent.charge_as_of(self.rule, i64::try_from(units).unwrap_or(i64::MAX), at.min(self.now), self.now);
    }

    fn report(&mut self, report: &Report<EtcdReceipt>) {
        match report {
            Report::GiveBack(receipt, _) => {
                let mut units = receipt.units;
                if let Some(loan) = self.loans.iter_mut().find(|loan| loan.number == receipt.loan) {
                    let left = loan.units.min(units);
                    loan.units -= left;
                    units -= left;
                }
                self.spent.take_back(self.rule, units, receipt.at.min(self.now), self.now);
            }
            Report::Settle(settlement) => {
                self.spent.settle_late(self.rule, &settlement.units_at(self.own), settlement.max_debt, self.now);
            }
        }
    }

    /// Moves `units` of the oldest loans to the spent ones.
    fn spend(&mut self, mut units: u64) {
        for index in 0..self.loans.len() {
            let Some(loan) = self.loans.get_mut(index) else { return };
            let (at, some) = (loan.at, loan.units.min(units));
            loan.units -= some;
            units -= some;
            self.charge(some, at);
        }
    }

    /// Ends loans, whose units are spent if they were not given back.
    fn end_loans(&mut self, ends_all: bool) {
        let has_ended = |loan: &Loan| ends_all || loan.has_ended(self.now);
        let (ended, open): (Vec<Loan>, _) = std::mem::take(&mut self.loans).into_iter().partition(has_ended);
        self.loans = open;
        for loan in ended {
            self.charge(loan.units, loan.at);
        }
    }
}

/// The plan for `wish` at the shared time `now`.
pub(super) fn plan(account: &Account, holding: &Holding, wish: &Wish<'_>, now: Timestamp) -> Plan {
    let (rule, own, now) = (wish.rule, wish.own, account.now(now));
    let mut draft = Draft { rule, spent: account.spent(rule), loans: holding.loans.clone(), now, own };
    holding.reports.iter().for_each(|report| draft.report(report));
    draft.end_loans(wish.ends_all);
    if let Some((units, _)) = wish.borrow {
        let lent: u64 = draft.loans.iter().map(|loan| loan.units).sum();
        draft.spend(lent.saturating_sub(units.at_hand));
    }
    draft.loans.retain(|loan| loan.units > 0);
    let mut state = draft.spent.clone();
    let others = account.others.iter().map(|(at_us, units)| (from_us(*at_us), *units));
    for (at, units) in draft.loans.iter().map(|loan| (loan.at, loan.units)).chain(others) {
        state.charge_as_of(rule, i64::try_from(units).unwrap_or(i64::MAX), at.min(now), now);
    }
    let mut borrowed = 0;
    if let Some((units, number)) = wish.borrow {
        borrowed = lendable(&state, rule, units, now);
        if borrowed > 0 {
            state.admit(rule, borrowed, now);
            let cost = units.cost.min(borrowed);
            draft.charge(cost, now);
            draft.loans.push(Loan { number, at: now, units: borrowed - cost });
        }
    }
    let has_spent = draft.loans != holding.loans || !holding.reports.is_empty();
    let write = Write { counter: Counter::new(&draft.spent, rule, now), loans: draft.loans, idle_at: state.idle_at() };
    // A transaction without an answer may have written a loan that nobody has, or may still do so: not after another write.
    let changes = has_spent || !holding.unanswered.is_empty() || write.own(account.own.write) != account.own;
    let write = changes.then_some(write);
    Plan { borrowed, state, write, now }
}

/// The units that a limit lends: none, or from `cost` to `want`.
fn lendable(state: &AnyState, rule: &Algorithm, units: Units, now: Timestamp) -> u64 {
    if !state.peek(rule, units.cost, now).is_admitted() {
        return 0;
    }
    let free = state.peek(rule, 0, now).remaining / units.divisor.max(1);
    units.want.min(free).max(units.cost)
}

#[cfg(test)]
mod tests;
