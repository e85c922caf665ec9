//! Refunds and settlements that a store has not heard of yet. Nobody waits for them.
//!
//! Settlements of one key are added up. A report whose node is down is parked until the node decides again; meanwhile time
//! gives units back, so an old report has the units that still count ([`Settlement::units_at`]). Not here: how reports are sent
//! (`redis::flush`, `service::flush`, `etcd::plan`).

use std::collections::HashMap;
use std::sync::PoisonError;

use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::base::sync::{Mutex, MutexGuard};
use crate::base::telemetry::Counter;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::backend::Settlement;

/// The most reports of one store that wait.
const REPORTS_MAX: usize = 65_536;

/// The pause between looks for settlements that count no more, while no further report fits.
const SWEEP_NS: u64 = 1_000_000_000;

/// What a store should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fleet::stores) enum Report<R> {
    /// A charge is given back, since the instant when the mirror of its key was put in doubt; zero if it was not.
    GiveBack(R, Timestamp),
    /// Units are charged or given back without a receipt.
    Settle(Box<Settlement>),
}

/// Reports that are sent together. Sent again, they have the same numbers.
#[derive(Debug)]
pub(in crate::fleet::stores) struct Batch<R> {
    /// The number of the first report. The others follow.
    pub(in crate::fleet::stores) first: u64,
    pub(in crate::fleet::stores) reports: Vec<Report<R>>,
    /// When they were sent first.
    pub(in crate::fleet::stores) since: Timestamp,
}

impl<R> Report<R> {
    /// Whether it takes units from a key.
    pub(in crate::fleet::stores) fn is_charge(&self) -> bool {
        matches!(self, Self::Settle(settlement) if settlement.units() > 0)
    }

    /// Whether it changes units in flight without a receipt.
    pub(in crate::fleet::stores) fn changes_flights(&self) -> bool {
        matches!(self, Self::Settle(settlement) if settlement.rule.is_released())
    }

    /// The instant from which the mirror of its key is in doubt; zero if it is not.
    pub(in crate::fleet::stores) fn queued_at(&self) -> Timestamp {
        match self {
            Self::GiveBack(_, since) => *since,
            Self::Settle(settlement) => settlement.begun(),
        }
    }
}

/// The reports of one store. `R` is the proof of a charge.
#[derive(Debug)]
pub(in crate::fleet::stores) struct Outbox<R> {
    /// Held for one change, or for the length of one scan of all reports.
    waiting: Mutex<Waiting<R>>,
    queued: Notify,
    /// Notified at the end of each pass.
    pass_ended: Notify,
    dropped: Counter,
}

#[derive(Debug)]
struct Waiting<R> {
    fresh: Reports<R>,
    parked: Reports<R>,
    /// Reports that are being sent.
    taken: usize,
    /// When idle settlements were forgotten last.
    swept: Timestamp,
    /// Passes that have begun, and those that have ended. Each sends what is queued at its beginning. Those without a report
    /// do not count.
    passes: (u64, u64),
}

#[derive(Debug)]
struct Reports<R> {
    /// By key: of each limit one.
    settlements: HashMap<Key, SmallVec<[Settlement; 1]>>,
    settlement_count: usize,
    receipts: Vec<(R, Timestamp)>,
}

impl<R> Default for Reports<R> {
    fn default() -> Self {
        Self { settlements: HashMap::new(), settlement_count: 0, receipts: Vec::new() }
    }
}

impl<R> Outbox<R> {
    pub(in crate::fleet::stores) fn new(dropped: Counter) -> Self {
        let (fresh, parked) = (Reports::default(), Reports::default());
        let waiting = Waiting { fresh, parked, taken: 0, swept: Timestamp::ZERO, passes: (0, 0) };
        Self { waiting: Mutex::new(waiting), queued: Notify::new(), pass_ended: Notify::new(), dropped }
    }

    /// Queues the return of a charge. The mirror of its key was put in doubt at `since`; zero if it was not.
    pub(in crate::fleet::stores) fn give_back(&self, receipt: R, since: Timestamp) {
        let mut waiting = self.waiting();
        if waiting.is_full() {
            return self.dropped.inc();
        }
        waiting.fresh.receipts.push((receipt, since));
        drop(waiting);
        self.queued.notify_one();
    }

    /// Queues a settlement, or adds it to one of the same key that waits.
    pub(in crate::fleet::stores) fn settle(&self, settlement: Settlement) {
        let mut waiting = self.waiting();
        if waiting.is_full() {
            waiting.forget_idle(settlement.begun());
        }
        let is_full = waiting.is_full();
        if !waiting.fresh.settle(settlement, is_full) {
            return self.dropped.inc();
        }
        drop(waiting);
        self.queued.notify_one();
    }

    /// Waits until something is queued or unparked.
    pub(in crate::fleet::stores) async fn queued(&self) {
        self.queued.notified().await;
    }

    /// Begins a pass: takes all reports that are not parked. The caller sends or parks them, and says so.
    pub(in crate::fleet::stores) fn take(&self) -> Vec<Report<R>> {
        let mut waiting = self.waiting();
        let reports = std::mem::take(&mut waiting.fresh);
        waiting.taken += reports.len();
        waiting.passes.0 += u64::from(waiting.taken > 0);
        drop(waiting);
        reports.into_reports()
    }

    /// The pass that began last has ended.
    pub(in crate::fleet::stores) fn end_pass(&self) {
        let mut waiting = self.waiting();
        waiting.passes.1 = waiting.passes.0;
        drop(waiting);
        self.pass_ended.notify_waiters();
    }

    /// The number of passes with reports that have ended.
    pub(in crate::fleet::stores) fn passes(&self) -> u64 {
        self.waiting().passes.1
    }

    /// Waits until what is queued or being sent now was sent, as far as its nodes answer. Returns [`Self::passes`].
    pub(in crate::fleet::stores) async fn drained(&self) -> u64 {
        let pass = {
            let Waiting { fresh, passes: (begun, _), .. } = &*self.waiting();
            begun + u64::from(fresh.len() > 0)
        };
        loop {
            let pass_ended = self.pass_ended.notified();
            let ended = self.passes();
            if ended >= pass {
                return ended;
            }
            pass_ended.await;
        }
    }

    /// So many taken reports were sent.
    pub(in crate::fleet::stores) fn sent(&self, reports: usize) {
        let mut waiting = self.waiting();
        waiting.taken = waiting.taken.saturating_sub(reports);
    }

    /// Takes all reports that are parked.
    pub(in crate::fleet::stores) fn take_parked(&self) -> Vec<Report<R>> {
        let mut waiting = self.waiting();
        let reports = std::mem::take(&mut waiting.parked);
        waiting.taken += reports.len();
        drop(waiting);
        reports.into_reports()
    }

    /// Keeps taken reports until [`Self::unpark`].
    pub(in crate::fleet::stores) fn park(&self, reports: Vec<Report<R>>) {
        let mut waiting = self.waiting();
        waiting.taken = waiting.taken.saturating_sub(reports.len());
        waiting.parked.extend(reports);
    }

    /// Reports that are parked.
    pub(in crate::fleet::stores) fn parked(&self) -> usize {
        self.waiting().parked.len()
    }

    /// Lets parked reports be taken again. Wakes the task that sends them, also for what it has sent without an answer.
    pub(in crate::fleet::stores) fn unpark(&self) {
        let mut waiting = self.waiting();
        let parked = std::mem::take(&mut waiting.parked);
        waiting.fresh.extend(parked.into_reports());
        let is_empty = waiting.len() == 0;
        drop(waiting);
        if !is_empty {
            self.queued.notify_one();
        }
    }

    /// Reports that wait or are being sent.
    pub(in crate::fleet::stores) fn len(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Waiting<R> {
    fn len(&self) -> usize {
        self.fresh.len() + self.parked.len() + self.taken
    }

    fn is_full(&self) -> bool {
        self.len() >= REPORTS_MAX
    }

    /// Makes room for keys that are in use: forgets settlements of which time has given all units back.
    fn forget_idle(&mut self, now: Timestamp) {
        if now.ns_since(self.swept) >= SWEEP_NS {
            self.swept = now;
            self.parked.forget_idle(now);
        }
    }
}

impl<R> Reports<R> {
    fn len(&self) -> usize {
        self.settlement_count + self.receipts.len()
    }

    /// Adds a settlement. Returns whether there was place: a known key always has one.
    fn settle(&mut self, settlement: Settlement, is_full: bool) -> bool {
        let of_key = self.settlements.get_mut(&settlement.key);
        match of_key.and_then(|all| all.iter_mut().find(|known| known.limit == settlement.limit)) {
            Some(known) => known.add(settlement),
            None if is_full => return false,
            None => {
                self.settlements.entry(settlement.key).or_default().push(settlement);
                self.settlement_count += 1;
            }
        }
        true
    }

    fn forget_idle(&mut self, now: Timestamp) {
        let settlements = &mut self.settlements;
        settlements.retain(|_, of_key| {
            of_key.retain(|settlement| settlement.units_at(now).iter().any(|rate| !rate.is_empty()));
            !of_key.is_empty()
        });
        self.settlement_count = settlements.values().map(SmallVec::len).sum();
    }

    fn extend(&mut self, reports: Vec<Report<R>>) {
        for report in reports {
            match report {
                Report::GiveBack(receipt, since) => self.receipts.push((receipt, since)),
                Report::Settle(settlement) => _ = self.settle(*settlement, false),
            }
        }
    }

    fn into_reports(self) -> Vec<Report<R>> {
        let settlements =
            self.settlements.into_values().flatten().map(|settlement| Report::Settle(Box::new(settlement)));
        let refunds = self.receipts.into_iter().map(|(receipt, since)| Report::GiveBack(receipt, since));
        refunds.chain(settlements).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limit::{Algorithm, Quota, Rate};

    const SECOND: u64 = 1_000_000_000;

    /// 10 units, one of which comes back every second.
    fn rule() -> Algorithm {
        Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: SECOND }, 10).unwrap())
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ns(1_000 * SECOND + ms * 1_000_000)
    }

    fn settlement(key: u64, extra: i64, ms: u64) -> Settlement {
        Settlement::new("a", Key { first: key, second: 0 }, &rule(), (extra, 0), at(ms))
    }

    /// Takes all settlements: their keys, units and debts.
    fn taken(outbox: &Outbox<()>) -> Vec<(u64, i64, u64)> {
        let found = outbox.take().into_iter().map(|report| match report {
            Report::Settle(settlement) => (settlement.key.first, settlement.units(), settlement.max_debt),
            Report::GiveBack(..) => panic!("a refund"),
        });
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        found
    }

    fn outbox() -> Outbox<()> {
        Outbox::new(Counter::new("dropped", "Dropped.").unwrap())
    }

    #[test]
    fn settlements_of_a_key_add_up() {
        let outbox = outbox();
        for (key, extra) in [(1, 5), (2, 1), (1, -2), (1, 4)] {
            outbox.settle(settlement(key, extra, 0));
        }
        assert_eq!(taken(&outbox), [(1, 7, 0), (2, 1, 0)]);
        assert_eq!((outbox.take(), outbox.len()), (vec![], 2));
        outbox.sent(2);
        assert_eq!(outbox.len(), 0);
    }

    /// Units that are given back, and a change of the rule, have no debt. They do not lower that of units that were charged.
    #[test]
    fn the_larger_debt_counts() {
        let outbox = outbox();
        let of_debt = |extra, max_debt| {
            let mut settlement = settlement(1, extra, 0);
            settlement.max_debt = max_debt;
            settlement
        };
        for (extra, max_debt) in [(-1, 0), (50, 100), (-2, 0), (0, 0)] {
            outbox.settle(of_debt(extra, max_debt));
        }
        assert_eq!(taken(&outbox), [(1, 47, 100)]);
    }

    #[test]
    fn parked_reports_come_back_with_newer_ones() {
        let outbox = outbox();
        outbox.settle(settlement(1, 5, 0));
        let taken = outbox.take();
        outbox.settle(settlement(1, 1, 10));
        outbox.park(taken);
        assert_eq!(outbox.parked(), 1);
        assert_eq!(outbox.take(), [Report::Settle(Box::new(settlement(1, 1, 10)))]);
        outbox.sent(1);
        outbox.settle(settlement(1, 2, 20));
        outbox.unpark();
        let all = outbox.take();
        let [Report::Settle(all)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((all.units(), all.begun()), (7, at(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_without_an_answer_wakes_its_sender_after_an_outage() {
        let outbox = outbox();
        let woken = async || tokio::time::timeout(std::time::Duration::from_secs(1), outbox.queued()).await.is_ok();
        outbox.give_back((), at(0));
        assert!(woken().await);
        assert_eq!(outbox.take(), [Report::GiveBack((), at(0))]);
        outbox.unpark();
        assert!(woken().await);
        outbox.sent(1);
        outbox.unpark();
        assert!(!woken().await, "nothing waits");
    }

    #[test]
    fn further_keys_are_dropped_at_the_bound() {
        let outbox = outbox();
        for key in 0..REPORTS_MAX as u64 {
            outbox.settle(settlement(key, 1, 0));
        }
        outbox.settle(settlement(7, 1, 0));
        assert_eq!(outbox.dropped.get(), 0);
        outbox.settle(settlement(u64::MAX, 1, 0));
        assert_eq!((outbox.dropped.get(), outbox.len()), (1, REPORTS_MAX));
        let taken = outbox.take();
        outbox.settle(settlement(u64::MAX, 1, 0));
        assert_eq!(outbox.dropped.get(), 2);
        outbox.sent(taken.len());
        outbox.settle(settlement(u64::MAX, 1, 0));
        assert_eq!((outbox.dropped.get(), outbox.len()), (2, 1));
    }

    #[test]
    fn idle_keys_make_room() {
        let outbox = outbox();
        for key in 0..REPORTS_MAX as u64 {
            let (key, idle_at) = (Key { first: key, second: 0 }, [at(if key < 2 { 2000 } else { 1000 })]);
            outbox.settle(Settlement::on_mirror("a", key, &rule(), (1, 1, &idle_at), 0, at(0)));
        }
        outbox.park(outbox.take());
        // One unit comes back in a second.
        for (now_ms, dropped, len) in [(999, 1, REPORTS_MAX), (1500, 2, REPORTS_MAX), (2000, 2, 1)] {
            outbox.settle(settlement(u64::MAX, 1, now_ms));
            assert_eq!((outbox.dropped.get(), outbox.len()), (dropped, len), "{now_ms}");
        }
    }
}

#[cfg(test)]
#[cfg(feature = "loom")]
mod interleavings {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::base::sync::AtomicU64;
    use crate::testing::is_woken;

    /// The sender of a report finds that the node does not decide, and parks the report, while the node decides again. The
    /// sender has sent it, is woken, or comes again by itself.
    #[test]
    fn no_report_stays_parked() {
        loom::model(|| {
            let outbox = Arc::new(Outbox::new(Counter::new("dropped", "Dropped.").unwrap()));
            let decides = Arc::new(AtomicU64::new(0));
            outbox.give_back((), Timestamp::ZERO);
            assert!(is_woken(outbox.queued()));
            let recovers = {
                let (outbox, decides) = (Arc::clone(&outbox), Arc::clone(&decides));
                loom::thread::spawn(move || {
                    decides.store(1, Ordering::Relaxed);
                    outbox.unpark();
                })
            };
            // As `flush::pass` does.
            let decides = || decides.load(Ordering::Relaxed) == 1;
            let (taken, mut comes_again) = (outbox.take(), false);
            if decides() {
                outbox.sent(taken.len());
            } else {
                outbox.park(taken);
                comes_again = decides() && outbox.len() > 0;
            }
            recovers.join().unwrap();
            let is_found = outbox.parked() == 0 && is_woken(outbox.queued());
            assert!(outbox.len() == 0 || comes_again || is_found, "{outbox:?}");
        });
    }
}
