//! What is charged, corrected or released after a request was sent on.
//!
//! Most charges stay as they were made, and are not seen here. A [`Bill`] has the others: those of requests in flight,
//! which are released at their end, and those whose true cost the answer tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{LimitState, Standing};
use crate::fields::{Fields, decimal};
use crate::limit::{Algorithm, Key};
use crate::policy::{After, Limit, Mode, Settle, SettleBy};
use crate::store::{Charge, Receipt};
use crate::time::{self, Timestamp};

/// What is needed to settle one charge.
#[derive(Debug)]
pub(super) struct Terms {
    /// Whether clients are told of the limit.
    is_shown: bool,
    after: Option<Arc<After>>,
    rule: Algorithm,
    cost: u64,
    began: Timestamp,
    meter: Option<Meter>,
}

/// Charges a long request as it runs, from a task of its own.
#[derive(Debug)]
struct Meter {
    charged: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Terms {
    /// The terms of a charge of `cost` units under `rule`, made at `began`; `None` if it stays as it is.
    #[inline]
    pub(super) fn of(
        state: &Arc<LimitState>,
        key: Key,
        limit: &Limit,
        rule: &Algorithm,
        cost: u64,
        began: Timestamp,
    ) -> Option<Box<Self>> {
        if limit.after.is_none() && !rule.is_released() {
            return None;
        }
        let after = limit.after.clone();
        let meter = after.as_ref().and_then(|after| after.settle.as_ref()).and_then(|settle| {
            let every = Duration::from_nanos(settle.every_ns?);
            Some(Meter::start(Arc::clone(state), key, rule.clone(), settle.max_debt, every, cost))
        });
        let is_shown = limit.mode == Mode::Enforce;
        Some(Box::new(Self { is_shown, after, rule: rule.clone(), cost, began, meter }))
    }

    /// Units that were charged in all.
    fn charged(&self) -> u64 {
        self.cost.saturating_add(self.metered())
    }

    fn metered(&self) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.charged.load(Ordering::Relaxed))
    }

    fn settle(&self) -> Option<&Settle> {
        self.after.as_ref()?.settle.as_ref()
    }

    /// Takes back what was charged while the request ran, and charges no more.
    pub(super) fn undo(&mut self, state: &LimitState, key: Key) {
        let metered = self.metered();
        self.meter = None;
        correct(state, key, &self.rule, 0, metered, 0);
    }
}

impl Meter {
    fn start(state: Arc<LimitState>, key: Key, rule: Algorithm, max_debt: u64, every: Duration, cost: u64) -> Self {
        let charged = Arc::<AtomicU64>::default();
        let seen = Arc::clone(&charged);
        let began = time::instant_now();
        let task = tokio::spawn(async move {
            let mut ticks = interval_at(began + every, every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let due = elapsed_ms(began, time::instant_now()).saturating_sub(cost);
                let before = seen.swap(due, Ordering::Relaxed);
                correct(&state, key, &rule, due, before, max_debt);
            }
        });
        Self { charged, task }
    }
}

fn elapsed_ms(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(u64::MAX)
}

/// Makes `charged` units `owed` units.
fn correct(state: &LimitState, key: Key, rule: &Algorithm, owed: u64, charged: u64, max_debt: u64) {
    let difference = i128::from(owed) - i128::from(charged);
    let extra = i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX });
    if extra != 0 {
        state.table.settle(key, rule, extra, max_debt, state.clock.now());
        state.tell(key, rule, extra);
    }
    if extra < 0 {
        state.line.wake_front(key);
    }
}

/// What a request still owes, or is owed. Settled when it is dropped, which is when the response ends.
#[derive(Debug)]
pub struct Bill {
    items: Vec<Item>,
    response_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Item {
    state: Arc<LimitState>,
    key: Key,
    receipt: Receipt,
    terms: Terms,
    /// Whether nothing is left to do.
    is_settled: bool,
}

impl Item {
    pub(super) fn new(state: Arc<LimitState>, key: Key, receipt: Receipt, terms: Terms) -> Self {
        Self { state, key, receipt, terms, is_settled: false }
    }

    /// Gives the whole charge back.
    fn give_back(&mut self) {
        self.is_settled = true;
        self.state.table.refund(self.key, &self.receipt, self.state.clock.now());
        self.terms.undo(&self.state, self.key);
        self.state.line.wake_front(self.key);
    }

    fn correct(&self, owed: u64, settle: &Settle) {
        correct(&self.state, self.key, &self.terms.rule, owed, self.terms.charged(), settle.max_debt);
    }

    /// Settles what the head of the answer tells, and returns whether that changed the balance.
    fn answered(&mut self, status: u16, fields: Fields<'_>) -> bool {
        let Some(after) = self.terms.after.clone() else { return false };
        if after.counts.as_ref().is_some_and(|counts| !counts.contains(status)) {
            self.give_back();
            return true;
        }
        let Some(settle) = &after.settle else { return false };
        let owed = match &settle.by {
            SettleBy::ElapsedMs | SettleBy::ResponseBytes => None,
            SettleBy::Header(name) => fields.first(name.as_str()).and_then(number),
            SettleBy::Status(units) => units.iter().find(|(set, _)| set.contains(status)).map(|(_, units)| *units),
        };
        if let Some(owed) = owed {
            self.correct(owed, settle);
        }
        owed.is_some()
    }

    /// Where the client stands with the limit now; `None` if clients are not told of it.
    fn standing(&self) -> Option<Standing<'_>> {
        let Self { ref state, key, ref terms, .. } = *self;
        if !terms.is_shown {
            return None;
        }
        let (now, rule) = (state.clock.now(), &terms.rule);
        let charge = Charge { table: &state.table, key, rule, cost: terms.cost, enforced: true };
        Some(Standing::new(&state.name, &charge, &state.table.peek(key, rule, 0, now), now))
    }

    /// The response has ended.
    fn end(&mut self, response_bytes: u64) {
        if self.is_settled {
            return;
        }
        if self.terms.rule.is_released() {
            return self.give_back();
        }
        let Some(settle) = self.terms.settle() else { return };
        match settle.by {
            SettleBy::ElapsedMs => {
                let elapsed_ns = self.state.clock.now().ns_since(self.terms.began);
                self.correct(elapsed_ns.div_ceil(1_000_000), settle);
            }
            SettleBy::ResponseBytes => self.correct(response_bytes, settle),
            SettleBy::Header(_) | SettleBy::Status(_) => {}
        }
    }
}

impl Bill {
    /// The bill of these charges; `None` if all of them stay as they are.
    pub(super) fn of(items: Vec<Item>) -> Option<Self> {
        (!items.is_empty()).then_some(Self { items, response_bytes: 0 })
    }

    /// The head of the answer has come: settles what it tells. `standing` is that of the request; returns where the
    /// client stands after the settlement.
    pub fn answered<'s>(
        &'s mut self,
        status: u16,
        fields: Fields<'_>,
        standing: Option<Standing<'s>>,
    ) -> Option<Standing<'s>> {
        let mut standing = standing;
        for item in &mut self.items {
            if !item.answered(status, fields) {
                continue;
            }
            let settled: &'s Item = item;
            let before = standing.filter(|standing| !standing.is_of(&settled.state));
            standing = Standing::tightest(before, settled.standing()).or(standing);
        }
        standing
    }

    /// So many bytes of the answer's body have been sent in all.
    pub fn sent(&mut self, response_bytes: u64) {
        self.response_bytes = response_bytes;
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        for item in &mut self.items {
            item.end(self.response_bytes);
        }
    }
}

/// A whole number in digits, perhaps with a fraction that is dropped. More digits than fit are the largest number.
fn number(text: &[u8]) -> Option<u64> {
    let whole = text.split(|&byte| byte == b'.').next()?;
    decimal(whole)
}
