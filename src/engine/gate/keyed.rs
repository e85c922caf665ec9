//! Charges to keys that another Weir has computed: it asks this one about a limit that both have.
//!
//! The rule is that of this Weir. The other one sends a digest of its own, and a rule that differs decides nothing. Whether
//! a limit is enforced, and what a denial leads to, is up to the other one: it holds, delays and bans.
//!
//! Not here: the numbers of calls, by which each has effect once (grpc).

use std::sync::Arc;

use smallvec::SmallVec;

use super::check::{Checks, LimitCheck, is_denied};
use super::pass::record;
use super::state::{Gate, LimitState, Live};
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::limit::late::LateByRate;
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::{Algorithm, AnyState, Key};
use crate::engine::policy::{Applied, Variant};
use crate::engine::store::backend::Handling;
use crate::engine::store::{Charge, Receipt};

/// A key of a limit that this Weir has, and the digest of its rule.
#[derive(Clone, Copy, Debug)]
pub struct KeyedLimit<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The owner of the budget.
    pub key: Key,
    /// The digest of the rule.
    pub rule: u64,
}

/// A charge to a key of a limit.
#[derive(Clone, Copy, Debug)]
pub struct KeyedCharge<'a> {
    /// The limit and the key.
    pub of: KeyedLimit<'a>,
    /// Units; 0 looks.
    pub cost: u64,
    /// What follows if the limit does not admit the charge.
    pub handling: Handling,
}

/// Why a limit decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedRefusal {
    /// There is no limit of this name, or this Weir does not keep its state.
    Limit,
    /// The limit has another rule for the key.
    Rule,
}

/// The decision about charges.
#[derive(Debug)]
pub struct KeyedVerdict {
    /// Whether every enforced charge is admitted. If not, none is made.
    pub is_admitted: bool,
    /// The outcome of each charge, in the order of the charges.
    pub outcomes: Vec<Result<KeyedOutcome, KeyedRefusal>>,
}

/// The outcome of one charge.
#[derive(Debug)]
pub struct KeyedOutcome {
    /// Whether the limit admits the charge.
    pub is_admitted: bool,
    /// The numbers of the state of the key.
    pub numbers: Vec<u64>,
    /// The proof of the charge; `None` if nothing is charged.
    pub receipt: Option<KeyedReceipt>,
}

/// The proof of a charge.
#[derive(Debug)]
pub struct KeyedReceipt {
    state: Arc<LimitState>,
    key: Key,
    rule: Algorithm,
    receipt: Receipt,
    /// The units that are charged.
    pub units: u64,
}

/// A key with its limit and its rule.
struct KeyedRule<'l> {
    applied: Applied<'l>,
    state: &'l Arc<LimitState>,
    variant: Variant,
    rule: &'l Algorithm,
}

impl Gate {
    /// Decides about `charges` at once.
    pub fn decide_keyed(&self, live: &Live, charges: &[KeyedCharge<'_>]) -> KeyedVerdict {
        let now = self.clock.now();
        let mut batch = Checks::default();
        let mut places: SmallVec<[Result<usize, KeyedRefusal>; 4]> = SmallVec::new();
        for charge in charges {
            let found = live.keyed(&charge.of);
            places.push(found.as_ref().map(|_| batch.charges().len()).map_err(|refusal| *refusal));
            let Ok(KeyedRule { applied, state, variant, rule }) = found else { continue };
            let check = LimitCheck { state, applied, variant, is_queued: false, percentile: 0 };
            let is_enforced = charge.handling == Handling::Enforce;
            batch.push(Charge::new(&state.table, charge.of.key, rule, charge.cost, is_enforced, check));
        }
        let is_admitted = batch.admit(now);
        // Before the others are counted, as of requests that this Weir delays itself.
        let delay = |(charge, place): (&KeyedCharge<'_>, &Result<usize, KeyedRefusal>)| match (charge.handling, place) {
            (Handling::Delay { max_debt }, Ok(place)) if is_admitted => slow_down(&mut batch, *place, max_debt, now),
            _ => None,
        };
        let delayed: SmallVec<[Option<u64>; 4]> = charges.iter().zip(&places).map(delay).collect();
        if !is_admitted {
            for check in batch.charges().iter().filter(|check| is_denied(check)) {
                check.check.state.metrics.cells.count(LimitDecision::Refused);
            }
        } else if charges.iter().any(|charge| charge.cost > 0) {
            record(&batch, now);
        }
        let outcome = |(place, delayed): (Result<usize, KeyedRefusal>, Option<u64>)| {
            Ok(outcome(&mut batch, place?, delayed, now))
        };
        KeyedVerdict { is_admitted, outcomes: places.into_iter().zip(delayed).map(outcome).collect() }
    }

    /// Gives `units` of a charge back.
    pub fn give_back_keyed(receipt: &KeyedReceipt, units: u64) {
        let KeyedReceipt { state, key, rule, receipt, units: charged } = receipt;
        let units = if units < *charged { units } else { Receipt::WHOLE };
        state.give_back(*key, rule, &receipt.part(units, 0).0);
    }

    /// Gives `units` back that were charged `age_ns` nanoseconds ago, as far as time has not done so.
    pub fn give_back_late(&self, live: &Live, of: &KeyedLimit<'_>, units: u64, age_ns: u64) {
        let Ok(KeyedRule { rule, .. }) = live.keyed(of) else { return };
        let now = self.clock.now();
        let since = now.saturating_sub_ns(age_ns);
        let left = rule.left_of(units, 0, since, now);
        self.settle_keyed(live, of, i64::try_from(left).unwrap_or(i64::MAX).saturating_neg(), 0);
    }

    /// Charges `extra` units whether they fit or not, at most `max_debt` beyond the limit. A negative number gives units
    /// back. A limit that this Weir does not have changes nothing.
    pub fn settle_keyed(&self, live: &Live, of: &KeyedLimit<'_>, extra: i64, max_debt: u64) {
        let Ok(KeyedRule { state, rule, .. }) = live.keyed_to_settle(of) else { return };
        state.settle(of.key, rule, extra, max_debt, self.clock.now());
    }

    /// Charges units that were charged earlier, of each rate those that still count, at most `max_debt` beyond the limit.
    pub fn settle_keyed_late(&self, live: &Live, of: &KeyedLimit<'_>, late: &LateByRate, max_debt: u64) {
        let Ok(KeyedRule { state, rule, .. }) = live.keyed_to_settle(of) else { return };
        let now = self.clock.now();
        let before = state.table.owed(of.key, rule, now);
        state.table.settle_late(of.key, rule, late, max_debt, now);
        let after = state.table.owed(of.key, rule, now);
        let charged = i64::try_from(i128::from(after) - i128::from(before)).unwrap_or(i64::MAX);
        state.report(of.key, rule, charged, now);
        if charged < 0 {
            state.queues.wake_front(of.key);
        }
    }

    /// Takes over a state of another Weir, if it has spent more than the state here.
    pub fn raise_keyed(&self, live: &Live, of: &KeyedLimit<'_>, numbers: &[u64]) {
        let Ok(KeyedRule { state, rule, .. }) = live.keyed(of) else { return };
        let now = self.clock.now();
        if let Some(other) = AnyState::import(rule, &mut numbers.iter().copied(), now) {
            state.table.raise(of.key, rule, &other, now);
        }
    }

    /// The proof that a Weir hashes keys as this one does.
    pub fn secret_proof(&self) -> Key {
        self.secret.proof()
    }
}

/// Makes the charge at `place` as a debt if its limit, which delays, denies it. Returns the units that are charged.
fn slow_down(batch: &mut Checks<'_>, place: usize, max_debt: u64, now: Timestamp) -> Option<u64> {
    let check = batch.charges().get(place).filter(|check| !check.is_admitted())?;
    let (state, key, rule, cost) = (check.check.state, check.key, check.rule, check.cost);
    let before = state.table.owed(key, rule, now);
    batch.slow_down(place, &SlowDown { step_ns: 1, max_ns: max_debt }, now);
    let units = state.table.owed(key, rule, now).saturating_sub(before).min(cost);
    state.report(key, rule, i64::try_from(units).unwrap_or(i64::MAX), now);
    if cost > 0 {
        state.metrics.cells.decided(LimitDecision::Admitted, 0);
    }
    Some(units)
}

/// The outcome of the charge at `place`, of which so many units were `delayed`.
fn outcome(batch: &mut Checks<'_>, place: usize, delayed: Option<u64>, now: Timestamp) -> KeyedOutcome {
    let mut outcome = KeyedOutcome { is_admitted: false, numbers: Vec::new(), receipt: None };
    let Some(check) = batch.charges().get(place) else { return outcome };
    let (state, key, rule) = (check.check.state, check.key, check.rule);
    outcome.is_admitted = delayed.is_none() && check.is_admitted();
    let units = delayed.unwrap_or(check.cost);
    if let Some(receipt) = batch.take_receipt(place).filter(|_| units > 0) {
        outcome.receipt = Some(KeyedReceipt { state: Arc::clone(state), key, rule: rule.clone(), receipt, units });
    }
    outcome.numbers = state.table.state(key, rule, now).export(rule, now).concat();
    outcome
}

impl Live {
    /// The limit of a key whose rule has this digest: its override, or else the usual rule or that of a plan.
    fn keyed(&self, of: &KeyedLimit<'_>) -> Result<KeyedRule<'_>, KeyedRefusal> {
        self.keyed_by(of, false)
    }

    /// As [`Live::keyed`], but while rates change, and two Weirs have different ones, units count under those in force here,
    /// if the key can have no others.
    fn keyed_to_settle(&self, of: &KeyedLimit<'_>) -> Result<KeyedRule<'_>, KeyedRefusal> {
        self.keyed_by(of, true)
    }

    fn keyed_by(&self, of: &KeyedLimit<'_>, settles: bool) -> Result<KeyedRule<'_>, KeyedRefusal> {
        let applied = self.policy.by_name(of.limit).ok_or(KeyedRefusal::Limit)?;
        let (index, allowed) = (applied.index, &applied.limit.allowed);
        let has_state = self.remotes.get(index).is_some_and(Option::is_none) && !allowed.usual.is_released();
        let state = self.states.get(index).filter(|_| has_state).ok_or(KeyedRefusal::Limit)?;
        let special = self.special(index, of.key);
        let plans = (0..allowed.plans.len()).filter_map(|plan| u16::try_from(plan).ok()).map(Variant::Plan);
        let usual = std::iter::once(Variant::Usual).chain(plans).filter(|_| special.is_none());
        let rules = special.into_iter().chain(usual).filter_map(|variant| Some((variant, allowed.rule(variant)?)));
        let is_only = settles && (special.is_some() || !allowed.has_plans());
        let mut alike = rules.filter(|(_, rule)| is_only || rule.digest() == of.rule);
        let (variant, rule) = alike.next().ok_or(KeyedRefusal::Rule)?;
        Ok(KeyedRule { applied, state, variant, rule })
    }
}
