//! Charges that are corrected or released after a request was forwarded.
//!
//! Most charges stay as they were made, and never come here. A [`Bill`] has the others: charges of requests in flight,
//! which are released at their end, and charges whose real cost is known from the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::account::Account;
use super::adaptation::{self, ServiceOutcome};
use super::body_meter::{BodyMeter, RunningCharge};
use super::check::Checked;
use super::standing::Standing;
use super::state::LimitState;
use crate::base::fields::{Fields, decimal};
use crate::base::telemetry::RequestRecord;
use crate::base::time::{self, Timestamp};
use crate::engine::policy::{AfterResponse, Mode, Settle, SettleBy};
use crate::engine::store::{Charge, Receipt};
use crate::engine::units::{BodyUnits, Reading, UnitReaders};

/// The terms on which one charge is settled.
#[derive(Debug)]
pub(super) struct Terms {
    /// Whether clients see their standing with the limit.
    is_shown: bool,
    after: Option<Arc<AfterResponse>>,
    cost: u64,
    began: Timestamp,
    meter: Option<Meter>,
    /// Units that were charged while a stream ran.
    grown: u64,
    /// What learns from the answer, if anything does.
    learner: Option<Learner>,
    /// Whether there was an answer or a failure.
    has_ended: AtomicBool,
}

/// What learns from answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Learner {
    /// A bound of requests in flight.
    Bound,
    /// A rate that follows a signal.
    Rate,
}

/// A task that charges a long request while it runs.
#[derive(Debug)]
struct Meter {
    metered: Arc<Metered>,
    task: JoinHandle<()>,
}

/// The units of a long request so far, beyond its charge.
#[derive(Debug, Default)]
struct Metered {
    /// The units that it owes.
    due: AtomicU64,
    /// The units that were charged: fewer if the bound on the debt has cut some off.
    charged: AtomicU64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Terms {
    /// The terms of `charge`, which was made at `now`. `None` if the charge stays as it is. A delayed request may leave before
    /// it begins.
    pub(super) fn of<'l, C: Checked<'l>>(charge: &Charge<'_, C>, now: Timestamp) -> Option<Box<Self>> {
        let (limit, rule) = (charge.check.limit(), charge.rule);
        let cost = charge.cost;
        if limit.after.is_none() && !rule.is_released() {
            return None;
        }
        let after = limit.after.clone();
        let is_shown = charge.check.mode() == Mode::Enforce;
        let learner = if limit.is_sampled() {
            Some(Learner::Rate)
        } else {
            // A limit that is not enforced learns nothing: its bound has no effect that could be measured.
            (is_shown && adaptation::bound(rule).is_some()).then_some(Learner::Bound)
        };
        let has_ended = AtomicBool::new(false);
        Some(Box::new(Self { is_shown, after, cost, began: now, meter: None, grown: 0, learner, has_ended }))
    }

    /// Notes that the request begins: at once, or after a delay, which is no work of the service.
    pub(super) fn begin(&mut self, account: &Account, now: Timestamp) {
        self.began = now;
        self.meter = self.settle().and_then(|settle| {
            let every = Duration::from_nanos(settle.every_ns?);
            Some(Meter::start(account.clone(), settle.max_debt, every, self.cost))
        });
    }

    /// Units charged so far.
    fn charged(&self) -> u64 {
        self.cost.saturating_add(self.metered())
    }

    /// Tells the limit how the service treated the request, which got a connection at `sent`, if it did.
    #[inline]
    pub(super) fn adapt(&self, account: &Account, outcome: ServiceOutcome, sent: Option<Instant>) {
        self.has_ended.store(true, Ordering::Relaxed);
        let Some(learner) = self.learner.filter(|_| outcome != ServiceOutcome::Stream) else { return };
        let Account { state, key, rule, .. } = account;
        let now = state.clock.now();
        if learner == Learner::Rate {
            let sent = sent.map_or(self.began, |sent| state.clock.at(sent));
            return state.rate.note(self.began, sent, outcome, now);
        }
        let is_full = !state.table.peek(*key, rule, self.cost.max(1), now).is_admitted();
        if state.adaptation.adapt(self.began, outcome, is_full, now) {
            state.queues.wake_front(*key);
        }
    }

    /// Tells the limit that the client left before the answer, if it did.
    fn abandon(&self, state: &LimitState) {
        if self.learner == Some(Learner::Rate) && !self.has_ended.load(Ordering::Relaxed) {
            state.rate.abandoned(self.began, state.clock.now());
        }
    }

    fn metered(&self) -> u64 {
        self.meter.as_ref().map_or(self.grown, |meter| meter.metered.due.load(Ordering::Relaxed))
    }

    fn settle(&self) -> Option<&Settle> {
        self.after.as_ref()?.settle.as_ref()
    }

    /// The rule by which the charge is settled, if that is by numbers of the body.
    pub(super) fn body_units(&self) -> Option<&Arc<BodyUnits>> {
        self.after.as_ref()?.body_units()
    }

    /// The debt beyond which the limit cuts a stream, if it does.
    fn cut_debt(&self) -> Option<u64> {
        self.settle()?.cut_debt.filter(|_| self.is_shown)
    }

    /// The units that were charged while the request ran.
    fn grown(&self) -> u64 {
        self.meter.as_ref().map_or(self.grown, |meter| meter.metered.charged.load(Ordering::Relaxed))
    }

    /// Stops the task. Returns [`Self::grown`].
    pub(super) fn stop(&mut self) -> u64 {
        let grown = self.grown();
        self.meter = None;
        grown
    }
}

impl Meter {
    /// Charges a millisecond as a unit, in intervals of `every`. The first `cost` units are charged already.
    fn start(account: Account, max_debt: u64, every: Duration, cost: u64) -> Self {
        let metered = Arc::<Metered>::default();
        let so_far = Arc::clone(&metered);
        let began = time::instant_now();
        let task = tokio::spawn(async move {
            let mut ticks = interval_at(began + every, every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let due = elapsed_ms(began, time::instant_now()).saturating_sub(cost);
                let before = so_far.due.swap(due, Ordering::Relaxed);
                let charged = account.correct((due, before), max_debt, account.state.clock.now());
                so_far.charged.fetch_add(charged.unsigned_abs(), Ordering::Relaxed); // time does not run backwards
            }
        });
        Self { metered, task }
    }
}

fn elapsed_ms(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(u64::MAX)
}

/// The charges of a request that are not settled yet. They are settled at the end of the response, at the latest on drop.
#[derive(Debug)]
pub struct Bill {
    items: Vec<BillItem>,
    /// The other charges of the stage whose standing clients see, and their costs.
    others: Vec<(Account, u64)>,
}

#[derive(Debug)]
pub(super) struct BillItem {
    account: Account,
    receipt: Receipt,
    terms: Terms,
    /// Whether the charge was given back.
    is_settled: bool,
    /// The cost of the request.
    cost: u64,
}

impl BillItem {
    pub(super) fn new(account: Account, receipt: Receipt, terms: Terms) -> Self {
        Self { cost: terms.cost, account, receipt, terms, is_settled: false }
    }

    /// Gives the whole charge back.
    fn give_back(&mut self) {
        self.is_settled = true;
        self.account.give_back(&self.receipt, self.terms.stop());
    }

    /// Replaces the charge by `owed` units.
    fn correct(&mut self, owed: u64, max_debt: u64) {
        let Self { account, terms, receipt, .. } = &*self;
        let charged = terms.charged();
        if owed > charged {
            account.correct((owed, charged), max_debt, account.state.clock.now());
        } else if owed < charged {
            account.give_units_back(receipt, charged - owed, terms.grown());
        }
        self.cost = owed;
    }

    /// Settles the charge by the head of the answer, if it can. Returns whether that changed the balance.
    fn answered(&mut self, status: u16, fields: Fields<'_>, sent: Option<Instant>) -> bool {
        if self.terms.learner.is_some() {
            let outcome = ServiceOutcome::of(status, fields);
            self.terms.adapt(&self.account, outcome, sent);
        }
        let Some(after) = self.terms.after.clone() else { return false };
        if after.counts.as_ref().is_some_and(|counts| !counts.contains(status)) {
            self.give_back();
            self.cost = 0;
            return true;
        }
        let Some(settle) = &after.settle else { return false };
        let owed = match &settle.by {
            SettleBy::ElapsedMs | SettleBy::ResponseBytes | SettleBy::Body(_) => None,
            SettleBy::Header(name) => fields.first(name.as_str()).and_then(number),
            SettleBy::Status(units) => units.iter().find(|(set, _)| set.contains(status)).map(|(_, units)| *units),
        };
        if let Some(owed) = owed {
            self.correct(owed, settle.max_debt);
        }
        owed.is_some()
    }

    /// Settles the charge at the end of the response; `body` is `None` without a response.
    fn end(&mut self, response_bytes: u64, body: Option<&UnitReaders>) {
        if self.is_settled {
            return;
        }
        self.terms.abandon(&self.account.state);
        if self.account.rule.is_released() {
            return self.give_back();
        }
        let Some(&Settle { ref by, max_debt, .. }) = self.terms.settle() else { return };
        let owed = match by {
            SettleBy::ElapsedMs => {
                let elapsed_ns = self.account.state.clock.now().ns_since(self.terms.began);
                Some(elapsed_ns.div_ceil(1_000_000))
            }
            SettleBy::ResponseBytes => Some(response_bytes),
            SettleBy::Body(rule) => {
                let reading = body.map_or(Reading::UNANSWERED, |body| body.reading(rule));
                if let Some(reason) = reading.unreadable {
                    let state = &self.account.state;
                    state.metrics.unreadable(&state.name, reason.label()).inc();
                }
                rule.owed(&reading, self.terms.charged())
            }
            SettleBy::Header(_) | SettleBy::Status(_) => None,
        };
        if let Some(owed) = owed {
            self.correct(owed, max_debt);
        }
    }
}

impl Bill {
    /// The bill of `items`, beside `others`; `None` if there are no items.
    pub(super) fn of(items: Vec<BillItem>, others: Vec<(Account, u64)>) -> Option<Self> {
        (!items.is_empty()).then_some(Self { items, others })
    }

    /// Settles charges by the head of the answer to a request that got a connection at `sent`. Returns the client's standing
    /// with the tightest limit of the stage afterwards; `None` if no charge is settled, or clients see no limit.
    pub fn answered(
        &mut self,
        (status, fields): (u16, Fields<'_>),
        sent: impl Into<Option<Instant>>,
    ) -> Option<Standing<'_>> {
        let (mut is_changed, sent) = (false, sent.into());
        for item in &mut self.items {
            is_changed |= item.answered(status, fields, sent);
        }
        if !is_changed {
            return None;
        }
        let items = self.items.iter().filter(|item| item.terms.is_shown).map(|item| (&item.account, item.terms.cost));
        let others = self.others.iter().map(|(account, cost)| (account, *cost));
        items.chain(others).filter_map(|(account, cost)| account.standing(cost)).reduce(Standing::tighter)
    }

    /// Ends the bill without an answer. Only requests in flight are released.
    pub(super) fn close(&mut self) {
        for mut item in self.items.drain(..) {
            if item.account.rule.is_released() {
                item.give_back();
            }
        }
    }

    /// The meter of the body of an answer with these fields; `None` if no charge is settled by its numbers. A body of
    /// known length cannot be cut.
    pub fn meter(&self, fields: Fields<'_>, has_length: bool) -> Option<Box<BodyMeter>> {
        let mut meter: Option<Box<BodyMeter>> = None;
        for (at, item) in self.items.iter().enumerate().filter(|(_, item)| !item.is_settled) {
            let Some(units) = item.terms.body_units() else { continue };
            let meter = meter.get_or_insert_default();
            meter.read(units, fields);
            if let Some(debt) = item.terms.cut_debt().filter(|_| !has_length) {
                let (account, units, charged) = (item.account.clone(), Arc::clone(units), item.terms.cost);
                meter.watch(RunningCharge { item: at, account, units, debt, charged });
            }
        }
        meter
    }

    /// Settles the charges at the end of the response: by the bytes of its body that have come, and by the meter of the
    /// body. Sets the costs in `record`.
    pub fn end(&mut self, response_bytes: u64, body: Option<Box<BodyMeter>>, record: Option<&mut RequestRecord>) {
        if !self.items.is_empty() {
            self.settle(response_bytes, Some(&body.unwrap_or_default()), record);
        }
    }

    /// Settles the charges of a request without a response. Sets the costs in `record`.
    pub(super) fn end_unanswered(&mut self, record: Option<&mut RequestRecord>) {
        self.settle(0, None, record);
    }

    fn settle(&mut self, response_bytes: u64, body: Option<&BodyMeter>, record: Option<&mut RequestRecord>) {
        for (at, item) in self.items.iter_mut().enumerate() {
            item.terms.grown = body.map_or(0, |body| body.grown(at, item.terms.cost));
            item.end(response_bytes, body.map(BodyMeter::readers));
        }
        if let Some(record) = record {
            for BillItem { account: Account { state, key, .. }, cost, .. } in &self.items {
                record.settled(&state.name, [key.first, key.second], *cost);
            }
        }
        self.items.clear();
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        self.end_unanswered(None);
    }
}

/// A whole number in digits. A fraction is dropped. A number that is too large becomes the largest one.
fn number(text: &[u8]) -> Option<u64> {
    let whole = text.split(|&byte| byte == b'.').next()?;
    decimal(whole)
}
