//! A model of replicas that borrow from one key of etcd: all orders of transactions, late and lost answers, crashes and
//! the ends of loans, over `plan`, `ledger` and `store::lease`.
//!
//! A transaction without an answer may be made at any later time, or never. Time passes in steps of [`LEASE_NS`]; all
//! clocks are equal, and the lease of a living replica lasts.

mod search;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::account::{Account, Counter, Loans};
use super::ledger::{Holding, Loan};
use super::plan::{Plan, Wish, plan};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, Key, LeaseUnits, Rate, fixed_window};
use crate::engine::store::backend::{EtcdReceipt, Settlement};
use crate::engine::store::{Call, Grant, LEASE_NS, Leases, Supply};
use crate::fleet::stores::driver::Report;
use crate::testing::Budget;

const LIMIT: u64 = 3;
const KEY: Key = Key { first: 4, second: 1 };

/// A safeguard that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// A transaction without an answer counts as not made.
    Unresolved,
    /// etcd does not compare revisions.
    Uncompared,
    /// Loans of a living replica are deleted.
    Expired,
    /// Unspent units are not given back.
    Unreturned,
}

#[derive(Debug, Default)]
struct Etcd {
    revision: i64,
    counter: Option<(i64, Counter)>,
    /// By process.
    loans: BTreeMap<u64, Loans>,
    arriving: Vec<Arriving>,
}

#[derive(Clone, Debug)]
struct Arriving {
    process: u64,
    compared: i64,
    counter: Counter,
    own: Loans,
}

#[derive(Debug)]
struct Replica {
    process: u64,
    numbers: u64,
    leases: Arc<Leases<EtcdReceipt>>,
    holding: Holding,
    /// Reports that wait for the end of the transaction.
    outbox: Vec<Report<EtcdReceipt>>,
    pending: Option<Pending>,
}

/// A transaction whose answer is awaited.
#[derive(Debug)]
struct Pending {
    write: u64,
    plan: Plan,
    loans: Vec<Loan>,
    borrowing: Option<(Call<EtcdReceipt>, u64)>,
}

struct World {
    rule: Algorithm,
    now: Timestamp,
    budget: Budget,
    etcd: Etcd,
    replicas: Vec<Replica>,
    dead: Vec<u64>,
    /// Replicas from this one on have got no request, so they are alike.
    fresh: usize,
    /// Requests that were admitted by borrowed units, and without etcd.
    admitted: u64,
    alone: u64,
    /// Units of loans that etcd has deleted, and of reports that were lost with a process.
    forgotten: u64,
    unreported: u64,
}

impl Replica {
    fn new(process: u64) -> Self {
        let (leases, holding) = (Arc::default(), Holding::default());
        Self { process, numbers: 0, leases, holding, outbox: Vec::new(), pending: None }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

fn receipt(rule: &Algorithm, loan: u64, (at, units): (Timestamp, u64)) -> EtcdReceipt {
    EtcdReceipt { limit: "a".into(), key: KEY, rule: rule.clone(), loan, at, units }
}

impl World {
    fn account(&self, process: u64) -> Account {
        let own = self.etcd.loans.get(&process).cloned().unwrap_or_default();
        let others = self.etcd.loans.iter().filter(|(of, _)| **of != process);
        Account {
            revision: self.etcd.counter.as_ref().map_or(0, |(revision, _)| *revision),
            counter: self.etcd.counter.as_ref().map(|(_, counter)| counter.clone()),
            own,
            others: others.flat_map(|(_, loans)| loans.loans.clone()).collect(),
        }
    }

    /// One turn of `Transaction::make` until etcd is asked.
    fn ask(&mut self, index: usize, borrowing: Option<(Call<EtcdReceipt>, u64)>) {
        let account = self.account(self.replicas[index].process);
        let replica = &mut self.replicas[index];
        replica.holding.resolve(&account);
        let borrow = borrowing.as_ref().map(|(call, loan)| (call.units(), *loan));
        let wish = Wish { rule: &self.rule, borrow, ends_all: false, own: self.now };
        let mut plan = plan(&account, &replica.holding, &wish, self.now);
        let Some(write) = plan.write.take() else {
            let loans = replica.holding.loans.clone();
            return self.hear(index, Pending { write: 0, plan, loans, borrowing });
        };
        let number = replica.number();
        let charged = (plan.now, plan.borrowed.min(1));
        let charged = borrowing.as_ref().map(|(_, loan)| receipt(&self.rule, *loan, charged));
        replica.holding.begin(number, account.revision, &write.loans, charged);
        let own = write.own(number);
        let compared = account.revision;
        self.etcd.arriving.push(Arriving { process: replica.process, compared, counter: write.counter, own });
        replica.pending = Some(Pending { write: number, plan, loans: write.loans, borrowing });
    }

    /// The plan of a replica is made.
    fn hear(&mut self, index: usize, pending: Pending) {
        let Pending { plan, loans, borrowing, write } = pending;
        let replica = &mut self.replicas[index];
        if write > 0 {
            replica.holding.made(loans);
        }
        let Some((call, loan)) = borrowing else { return };
        if plan.borrowed > 0 {
            let receipt = Arc::new(receipt(&self.rule, loan, (plan.now, plan.borrowed)));
            let expires = self.now.saturating_add_ns(LEASE_NS);
            call.granted(Grant { units: plan.borrowed, expires, receipt }, 1, self.now);
            self.admitted += 1;
        }
    }

    fn make(&mut self, at: usize, is_heard: bool, fault: Fault) {
        let Arriving { process, compared, counter, own } = self.etcd.arriving.remove(at);
        let write = own.write;
        let is_equal = self.account(process).revision == compared || fault == Fault::Uncompared;
        if is_equal {
            self.etcd.revision += 1;
            self.etcd.counter = Some((self.etcd.revision, counter));
            self.etcd.loans.insert(process, own);
        }
        let waits = |replica: &Replica| replica.pending.as_ref().is_some_and(|pending| pending.write == write);
        let index = self.replicas.iter().position(|replica| replica.process == process && waits(replica));
        let Some(index) = index else { return };
        if !is_heard {
            return self.give_up(index, fault);
        }
        let Some(pending) = self.replicas[index].pending.take() else { return };
        if is_equal {
            return self.hear(index, pending);
        }
        self.replicas[index].holding.refused();
        self.ask(index, pending.borrowing);
    }

    /// The answer is late or lost. The request is admitted without etcd, which hears of it later.
    fn give_up(&mut self, index: usize, fault: Fault) {
        let replica = &mut self.replicas[index];
        if fault == Fault::Unresolved {
            replica.holding.refused();
        }
        if replica.pending.take().is_some_and(|pending| pending.borrowing.is_some()) {
            let settlement = Settlement::new("a", KEY, &self.rule, (1, LIMIT), self.now);
            replica.outbox.push(Report::Settle(Box::new(settlement)));
            self.alone += 1;
        }
    }

    fn settle(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let reports = std::mem::take(&mut replica.outbox);
        replica.holding.reports.extend(reports);
        if replica.holding.is_due(false, self.now) {
            self.ask(index, None);
        }
    }

    fn step(&mut self, fault: Fault) {
        self.now = self.now.saturating_add_ns(LEASE_NS);
        for replica in &mut self.replicas {
            for (_, grant) in replica.leases.sweep(false, self.now) {
                if fault != Fault::Unreturned {
                    let receipt = EtcdReceipt { units: grant.units, ..(*grant.receipt).clone() };
                    replica.outbox.push(Report::GiveBack(receipt, Timestamp::ZERO));
                }
            }
        }
    }

    fn expire(&mut self, process: u64) {
        let loans = self.etcd.loans.remove(&process).unwrap_or_default();
        self.forgotten += loans.loans.iter().map(|(_, units)| units).sum::<u64>();
        self.etcd.arriving.retain(|arriving| arriving.process != process);
        self.dead.retain(|dead| *dead != process);
    }

    fn crash(&mut self, index: usize) {
        let process = self.replicas[index].process;
        let fresh = Replica::new(process + self.replicas.len() as u64);
        let Replica { holding, outbox, leases, .. } = std::mem::replace(&mut self.replicas[index], fresh);
        // Units whose loan has ended in etcd are not given back.
        self.unreported += leases.units();
        // What a lost transaction charged for a request that was decided without it.
        let charged = holding.unanswered.iter().filter_map(|unanswered| unanswered.charged.as_ref());
        self.unreported += charged.map(|receipt| receipt.units).sum::<u64>();
        let lost = holding.reports.into_iter().chain(outbox);
        self.unreported += lost
            .map(|report| match report {
                Report::GiveBack(receipt, _) => receipt.units,
                Report::Settle(settlement) => settlement.units().unsigned_abs(),
            })
            .sum::<u64>();
        self.dead.push(process);
    }

    /// The units that etcd has as spent, and as lent.
    fn counted(&self) -> (u64, u64) {
        let account = self.account(u64::MAX);
        let (spent, lent) = (account.spent(&self.rule), account.others.iter().map(|(_, units)| units));
        let left = spent.peek(&self.rule, 0, self.now).remaining;
        (LIMIT - left + spent.over(&self.rule, self.now), lent.sum())
    }

    /// What is under way comes to its end. Transactions that have not been made never are.
    fn end(&mut self, fault: Fault) {
        for index in 0..self.replicas.len() {
            self.give_up(index, fault);
        }
        self.etcd.arriving.clear();
        self.dead.clone().into_iter().for_each(|process| self.expire(process));
        for _ in 0..3 {
            self.step(fault);
            for index in 0..self.replicas.len() {
                self.settle(index);
                while !self.etcd.arriving.is_empty() {
                    self.make(0, true, Fault::None);
                }
            }
        }
    }
}
