//! The loans of this process, by key. Each key has one transaction at a time.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use tokio::sync::Notify;

use super::account::Account;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::LEASE_NS;
use crate::engine::store::backend::EtcdReceipt;
use crate::fleet::stores::driver::Report;

/// Transactions without an answer that are known. Each further try is one more.
const UNANSWERED_MAX: usize = 8;

/// A limit and a key of it.
pub(super) type KeyOf = (Box<str>, Key);

/// Units that were borrowed, as far as this process does not know them to be spent or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loan {
    /// A process never uses a number twice.
    pub(super) number: u64,
    pub(super) at: Timestamp,
    pub(super) units: u64,
}

impl Loan {
    /// Whether its units are spent or given back at `now`, as far as they ever are.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        now.ns_since(self.at) >= LEASE_NS
    }
}

/// A transaction without an answer. It may be made until the counter has another revision than `compared`.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// Its number.
    pub(super) write: u64,
    /// The revision of the counter that it replaces.
    pub(super) compared: i64,
    /// The loans if it was made. A loan that began with it is not among them: nobody has its units.
    pub(super) loans: Vec<Loan>,
    /// It makes so many of the first reports.
    pub(super) reports: usize,
    /// What it charged for a request that is decided without it.
    pub(super) charged: Option<EtcdReceipt>,
}

/// What this process has of one key.
#[derive(Debug, Default)]
pub(super) struct Holding {
    pub(super) loans: Vec<Loan>,
    /// What etcd should hear of with the next transaction.
    pub(super) reports: Vec<Report<EtcdReceipt>>,
    /// The newest transactions without an answer, of which one is made at most. The last one may be in flight.
    pub(super) unanswered: Vec<Unanswered>,
    /// The rule of the last loan.
    pub(super) rule: Option<Algorithm>,
}

/// The holding of a key, in use. An empty one is forgotten on drop.
pub(super) struct HoldingGuard<'l> {
    ledger: &'l Ledger,
    key: &'l KeyOf,
    holding: Arc<tokio::sync::Mutex<Holding>>,
}

impl HoldingGuard<'_> {
    /// Waits until no other transaction on the key is made.
    pub(super) async fn lock(&self) -> tokio::sync::MutexGuard<'_, Holding> {
        self.holding.lock().await
    }
}

impl Drop for HoldingGuard<'_> {
    fn drop(&mut self) {
        // The map and this one.
        let is_last = |holding: &Arc<tokio::sync::Mutex<Holding>>| {
            Arc::strong_count(holding) == 2 && holding.try_lock().is_ok_and(|holding| holding.is_empty())
        };
        self.ledger.holdings.remove_if(self.key, |_, holding| is_last(holding));
    }
}

/// The keys of one store. A lock of a holding is held during a transaction, the other ones for one change.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    holdings: DashMap<KeyOf, Arc<tokio::sync::Mutex<Holding>>>,
    /// The keys that need a transaction, in the order of its time.
    due: Mutex<BTreeSet<(Timestamp, KeyOf)>>,
    pub(super) added: Notify,
}

impl Holding {
    /// Adds reports for the next transaction. Settlements add up, unless a transaction without an answer may make the first
    /// of them.
    pub(super) fn report(&mut self, reports: Vec<Report<EtcdReceipt>>) {
        let asked = self.unanswered.iter().map(|unanswered| unanswered.reports).max().unwrap_or(0);
        for report in reports {
            let mut waiting = self.reports.iter_mut().skip(asked);
            let known = waiting.find_map(|known| if let Report::Settle(known) = known { Some(known) } else { None });
            match (report, known) {
                (Report::Settle(settlement), Some(known)) => known.add(*settlement),
                (report, _) => self.reports.push(report),
            }
        }
    }

    /// Follows transactions without an answer: `account` has one of them, or a later one may be made, or none.
    pub(super) fn resolve(&mut self, account: &Account) {
        let made = self.unanswered.iter().position(|unanswered| unanswered.write == account.own.write);
        if let Some(made) = made {
            let Unanswered { loans, reports, charged, .. } = self.unanswered.swap_remove(made);
            self.loans = loans;
            self.reports.drain(..reports.min(self.reports.len()));
            self.reports.extend(charged.map(|receipt| Report::GiveBack(receipt, Timestamp::ZERO)));
        }
        self.unanswered.retain(|unanswered| unanswered.compared == account.revision);
    }

    /// Notes a transaction that begins on a counter of the revision `compared`, with the loans that it leaves. One of them
    /// begins with it, and so does its part that is `charged` at once.
    pub(super) fn begin(&mut self, write: u64, compared: i64, loans: &[Loan], charged: Option<EtcdReceipt>) {
        let new = charged.as_ref().map_or(0, |receipt| receipt.loan);
        let loans = loans.iter().filter(|loan| loan.number != new).copied().collect();
        if self.unanswered.len() >= UNANSWERED_MAX {
            self.unanswered.remove(0);
        }
        self.unanswered.push(Unanswered { write, compared, loans, reports: self.reports.len(), charged });
    }

    /// The transaction that began is made, and leaves these loans.
    pub(super) fn made(&mut self, loans: Vec<Loan>) {
        self.loans = loans;
        self.reports.clear();
        self.unanswered.clear();
    }

    /// The transaction that began is not made.
    pub(super) fn refused(&mut self) {
        self.unanswered.pop();
    }

    /// Whether etcd should hear of something, without a further loan. With `ends_all` all loans end now.
    pub(super) fn is_due(&self, ends_all: bool, now: Timestamp) -> bool {
        let has_ended = |loan: &Loan| ends_all || loan.has_ended(now);
        !self.reports.is_empty() || !self.unanswered.is_empty() || self.loans.iter().any(has_ended)
    }

    /// Whether there is nothing to know of the key.
    pub(super) fn is_empty(&self) -> bool {
        self.loans.is_empty() && self.reports.is_empty() && self.unanswered.is_empty()
    }
}

impl Ledger {
    /// The holding of a key.
    pub(super) fn holding<'l>(&'l self, key: &'l KeyOf) -> HoldingGuard<'l> {
        let known = self.holdings.get(key).map(|known| Arc::clone(&known));
        let holding = known.unwrap_or_else(|| Arc::clone(&self.holdings.entry(key.clone()).or_default()));
        HoldingGuard { ledger: self, key, holding }
    }

    /// Whether no units are lent.
    pub(super) fn is_empty(&self) -> bool {
        self.holdings.is_empty()
    }

    /// Notes that a key needs a transaction at `at`.
    pub(super) fn note_due(&self, at: Timestamp, key: KeyOf) {
        self.due().insert((at, key));
        self.added.notify_one();
    }

    /// The earliest time of the next transaction.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due().first().map(|(at, _)| *at)
    }

    /// Takes the keys that need a transaction at `now`, or all of them. Each occurs once.
    pub(super) fn take_due(&self, now: Timestamp, all: bool) -> HashSet<KeyOf> {
        let mut due = self.due();
        let mut taken = HashSet::new();
        while due.first().is_some_and(|(at, _)| all || *at <= now) {
            taken.extend(due.pop_first().map(|(_, key)| key));
        }
        taken
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<(Timestamp, KeyOf)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limit::tests::algorithm;
    use crate::engine::store::backend::Settlement;

    /// The settlements of a key that etcd does not take are one, after those that it may have taken.
    #[test]
    fn settlements_of_a_key_add_up() {
        let (mut holding, rule, now) = (Holding::default(), algorithm("token_bucket 10/1s burst 10"), Timestamp::ZERO);
        let units = |holding: &Holding| {
            let of_report = |report: &Report<EtcdReceipt>| match report {
                Report::Settle(settlement) => Some(settlement.units()),
                Report::GiveBack(..) => None,
            };
            holding.reports.iter().map(of_report).collect::<Vec<_>>()
        };
        let settle = |extra| Report::Settle(Box::new(Settlement::new("a", Key::default(), &rule, (extra, 0), now)));
        let receipt =
            EtcdReceipt { limit: "a".into(), key: Key::default(), rule: rule.clone(), loan: 1, at: now, units: 1 };
        for extra in [1, 2, 3] {
            holding.report(vec![settle(extra)]);
        }
        assert_eq!(units(&holding), [Some(6)]);
        holding.begin(1, 0, &[], None);
        holding.report(vec![settle(4), Report::GiveBack(receipt, now), settle(5)]);
        holding.report(vec![settle(6)]);
        assert_eq!(units(&holding), [Some(6), Some(15), None]);
        // The first transaction was made.
        let own = crate::fleet::stores::etcd::account::Loans { write: 1, ..Default::default() };
        holding.resolve(&Account { own, revision: 1, ..Account::default() });
        assert_eq!(units(&holding), [Some(15), None]);
        holding.report(vec![settle(7)]);
        assert_eq!(units(&holding), [Some(22), None]);
    }

    #[test]
    fn keys_are_due_in_the_order_of_time() {
        let ledger = Ledger::default();
        let of = |limit: &str| (Box::from(limit), Key { first: 1, second: 2 });
        let at = Timestamp::from_ns;
        for (ns, limit) in [(30, "late"), (10, "early"), (20, "middle"), (15, "early")] {
            ledger.note_due(at(ns), of(limit));
        }
        assert_eq!(ledger.next_due(), Some(at(10)));
        assert_eq!(ledger.take_due(at(9), false), HashSet::new());
        assert_eq!(ledger.take_due(at(20), false), HashSet::from([of("early"), of("middle")]));
        assert_eq!(ledger.next_due(), Some(at(30)));
        assert_eq!(ledger.take_due(at(20), true), HashSet::from([of("late")]));
        assert_eq!(ledger.next_due(), None);
    }
}
