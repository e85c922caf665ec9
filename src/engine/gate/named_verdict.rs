//! Decides about charges that a caller names, without a request: all are made, or none.
//!
//! The answer is immediate. A limit that holds or delays requests denies such a charge, and says when to retry. A charge
//! of 0 units is a look: it charges nothing, and its limit denies it if it would deny one unit.
//!
//! Not here: the keys of charges (`named_charge`), the rules for callers (`policy::descriptors`), and the protocols (grpc).

use smallvec::SmallVec;

use super::admit::refuse;
use super::ask::{Decider, ask, look};
use super::bans;
use super::budget::Budget;
use super::check::{Check, Checked as _, Checks, LimitCheck, is_denied, would_queue};
use super::look::retry;
use super::named_charge::NamedCharge;
use super::operator_bans;
use super::pass::{Charged, record};
use super::refusal::Cause;
use super::standing::Standing;
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Retry};
use crate::engine::policy::{Limit, Mode, Variant};
use crate::engine::store::{Charge, LocalDecision};

/// The decision about named charges.
#[derive(Debug)]
pub struct NamedVerdict<'l> {
    /// Whether every enforced limit admits its charge. If so, all charges are made.
    pub is_admitted: bool,
    /// The limit of each charge, in the order of the charges; `None` if the key has no limit.
    pub items: Vec<Option<NamedItem<'l>>>,
}

/// The decision of one limit.
#[derive(Debug)]
pub struct NamedItem<'l> {
    /// The limit.
    pub limit: &'l Limit,
    /// The mode of the limit for the key.
    pub mode: Mode,
    /// The rule for the key.
    pub rule: &'l Algorithm,
    /// The standing of the key after the decision.
    pub standing: Standing<'l>,
    /// Why the limit denies the charge; `None` if it does not, or is not enforced.
    pub denial: Option<NamedDenial>,
    /// The budget, if answers list it.
    pub budget: Option<Budget<'l>>,
}

/// Why a limit denies a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedDenial {
    /// [`Cause::Banned`], or [`Cause::Limit`].
    pub cause: Cause,
    /// When the charge could be admitted.
    pub retry: Retry,
}

impl<'l> NamedVerdict<'l> {
    /// The decision that a caller hears of: the denial with the longest wait, or the tightest enforced limit.
    pub fn decisive(&self) -> Option<&NamedItem<'l>> {
        decisive(&self.items)
    }
}

/// The denial with the longest wait, or the tightest enforced limit.
pub fn decisive<'i, 'l>(items: &'i [Option<NamedItem<'l>>]) -> Option<&'i NamedItem<'l>> {
    let items = || items.iter().flatten();
    let denial = items().filter(|item| item.denial.is_some()).max_by_key(|item| item.denial.map(|denial| denial.retry));
    denial.or_else(|| {
        let enforced = items().filter(|item| item.mode == Mode::Enforce);
        enforced.reduce(|one, other| if other.standing.is_tighter(&one.standing) { other } else { one })
    })
}

/// The position of a charge among those of its kind.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// No limit applies.
    None,
    Charge(usize),
    Look(usize),
}

/// Charges that are being decided.
struct Deciding<'l> {
    gate: &'l Gate,
    live: &'l Live,
    charges: &'l [NamedCharge],
    positions: SmallVec<[Position; 4]>,
    /// The charges of one unit or more. They are given back if the decision is dropped.
    charged: Charged<'l>,
    /// The looks, as charges of one unit that are never made.
    looks: Checks<'l>,
}

impl Gate {
    /// Decides about `charges` at once; `None` if a store has to be asked.
    pub fn decide_named<'l>(&'l self, live: &'l Live, charges: &'l [NamedCharge]) -> Option<NamedVerdict<'l>> {
        let now = self.clock.now();
        let mut deciding = Deciding::new(self, live, charges, now);
        let is_admitted = deciding.decide(now)?;
        Some(deciding.end(is_admitted, now))
    }

    /// Decides about `charges` with the stores of their limits. If the future is dropped, nothing is charged.
    pub async fn decide_named_by<'l, D: Decider>(
        &'l self,
        live: &'l Live,
        charges: &'l [NamedCharge],
        decider: &D,
    ) -> NamedVerdict<'l> {
        let mut deciding = Deciding::new(self, live, charges, self.clock.now());
        let is_admitted = deciding.ask(decider).await;
        deciding.end(is_admitted, self.clock.now())
    }
}

impl<'l> Deciding<'l> {
    fn new(gate: &'l Gate, live: &'l Live, charges: &'l [NamedCharge], now: Timestamp) -> Self {
        let (positions, charged, looks) = (SmallVec::new(), Charged::default(), Checks::default());
        let mut deciding = Self { gate, live, charges, positions, charged, looks };
        for charge in charges {
            let position = deciding.add(charge, now).unwrap_or(Position::None);
            deciding.positions.push(position);
        }
        deciding
    }

    /// Adds a charge, or its units to the charge of the same key: a store decides about each key once. `None` if its key
    /// has no limit.
    fn add(&mut self, charge: &'l NamedCharge, now: Timestamp) -> Option<Position> {
        let live = self.live;
        let applied = live.policy.at(charge.limit).filter(|applied| applied.limit.mode != Mode::Off)?;
        let (limit, state) = (applied.limit, live.states.get(charge.limit)?);
        let (key, variant, rule) = if let Some(requested) = &charge.requested {
            (requested.key, Variant::Usual, Some(&requested.rule))
        } else {
            let variant = live.variant(&applied, charge.key, charge.plan.as_deref());
            (charge.key, variant, limit.allowed.rule(variant))
        };
        let is_banned = charge.banned_ns(state, limit, now).is_some();
        // A ban outweighs an override without a limit.
        let rule = rule.or(is_banned.then_some(&limit.allowed.usual))?;
        let is_barred = is_banned || charge.requests_zero();
        let mut check = LimitCheck { state, applied, variant, is_queued: false, percentile: charge.percentile };
        check.is_queued = is_barred || would_queue(&check, key);
        let is_enforced = check.mode() == Mode::Enforce;
        // A rate of 0 has a stand-in rule of one unit. One unit more never fits it.
        let cost = charge.units.max(1).saturating_add(charge.requests_zero().into());
        let mut check = Charge::new(&state.table, key, rule, cost, is_enforced, check);
        check.set_remote(live.remotes.get(charge.limit)?.as_ref());
        let (batch, position): (_, fn(usize) -> Position) = match charge.units {
            0 => (&mut self.looks, Position::Look),
            _ => (&mut self.charged.checks, Position::Charge),
        };
        let is_same = |other: &Check<'_>| other.check.applied.index == charge.limit && other.key == key;
        let index = batch.charges().iter().position(is_same).unwrap_or(batch.charges().len());
        match batch.charges_mut().get_mut(index) {
            Some(same) => {
                same.check.is_queued |= check.check.is_queued;
                if charge.units > 0 {
                    same.cost = same.cost.saturating_add(charge.units);
                }
            }
            None => batch.push(check),
        }
        Some(position(index))
    }

    /// Whether a limit denies its charge whatever remains: the key is banned, or requests wait for it, or the caller
    /// requests a rate without units.
    fn is_barred(&mut self, now: Timestamp) -> bool {
        let is_barred = |check: &Check<'_>| check.enforced && check.check.is_queued;
        let mut all = self.charged.checks.charges().iter().chain(self.looks.charges());
        if !all.any(is_barred) {
            return false;
        }
        self.charged.checks.peek(now);
        self.looks.peek(now);
        true
    }

    /// Decides without stores. Returns whether all charges are made; `None` if stores have to be asked.
    fn decide(&mut self, now: Timestamp) -> Option<bool> {
        if self.is_barred(now) {
            return Some(false);
        }
        let asks = |check: &Check<'_>| check.remote().is_some_and(|remote| remote.lease.is_none());
        if self.looks.has_remote() || self.charged.checks.charges().iter().any(asks) {
            return None;
        }
        let are_looks_admitted = self.looks.peek(now);
        match self.admit(are_looks_admitted, now) {
            LocalDecision::Denied => Some(false),
            LocalDecision::Admitted => Some(true),
            LocalDecision::Open => None,
        }
    }

    /// Makes the charges that no store has to decide, if all looks are admitted and no limit denies.
    fn admit(&mut self, are_looks_admitted: bool, now: Timestamp) -> LocalDecision {
        let checks = &mut self.charged.checks;
        if !are_looks_admitted {
            checks.peek(now);
            return LocalDecision::Denied;
        }
        if checks.has_remote() {
            return checks.admit_local(now);
        }
        if checks.admit(now) { LocalDecision::Admitted } else { LocalDecision::Denied }
    }

    /// Decides with stores. Returns whether all charges are made.
    async fn ask<D: Decider>(&mut self, decider: &D) -> bool {
        let (clock, now) = (self.gate.clock, self.gate.clock.now());
        if self.is_barred(now) {
            return false;
        }
        let looks = &mut self.looks;
        let are_looks_admitted = if looks.has_remote() { look(looks, decider, clock).await } else { looks.peek(now) };
        match self.admit(are_looks_admitted, clock.now()) {
            LocalDecision::Denied => false,
            LocalDecision::Admitted => true,
            LocalDecision::Open => ask(&mut self.charged.checks, decider, false, clock).await,
        }
    }

    /// Counts the decision, and describes it.
    fn end(mut self, is_admitted: bool, now: Timestamp) -> NamedVerdict<'l> {
        let items = self.positions.iter().zip(self.charges).map(|(position, charge)| match position {
            Position::None => None,
            Position::Charge(index) => Some(item(self.charged.checks.charges().get(*index)?, charge, is_admitted, now)),
            Position::Look(index) => Some(item(self.looks.charges().get(*index)?, charge, is_admitted, now)),
        });
        let items = items.collect();
        if is_admitted {
            record(&self.charged.checks, now);
            self.charged.commit(true);
        } else {
            self.count_denied(now);
        }
        NamedVerdict { is_admitted, items }
    }

    /// Counts a denial. Looks are not counted.
    #[cold]
    fn count_denied(&self, now: Timestamp) {
        let charges = self.charged.checks.charges();
        let banned = |(index, check): (usize, &Check<'l>)| {
            let (state, limit) = (check.check.state, check.check.applied.limit);
            Some((state, check.key, limit.refusals.banned, self.charge_of(index)?.banned_ns(state, limit, now)?))
        };
        let is_banned = bans::refusal(charges.iter().enumerate().filter_map(banned), now).is_some();
        for (index, check) in charges.iter().enumerate() {
            let is_denying = if is_banned { banned((index, check)).is_some() } else { is_denied(check) };
            if let Some(charge) = self.charge_of(index).filter(|_| is_denying) {
                let shown = || self.gate.shown_charge(self.live, charge);
                check.check.state.refused.count(charge.key, shown);
            }
        }
        if !is_banned {
            refuse(&self.charged.checks, Cause::Limit, None, now);
        }
    }

    /// The first charge that the check at `index` stands for.
    fn charge_of(&self, index: usize) -> Option<&'l NamedCharge> {
        let is_own = |position: &Position| matches!(position, Position::Charge(own) if *own == index);
        self.charges.get(self.positions.iter().position(is_own)?)
    }
}

/// The decision about `check`, which stands for `charge`.
fn item<'l>(check: &Check<'l>, charge: &NamedCharge, is_admitted: bool, now: Timestamp) -> NamedItem<'l> {
    let (state, limit, rule) = (check.check.state, check.check.applied.limit, check.rule);
    let denial = is_denied(check).then(|| denial(check, charge, now));
    let is_charged = is_admitted && charge.units > 0;
    let mut standing = if is_charged || denial.is_some() {
        Standing::new(&state.name, check, &check.decision(), now)
    } else {
        let mut free = Charge::new(&state.table, check.key, rule, 0, true, ());
        free.set_remote(check.remote());
        Standing::new(&state.name, check, &free.peek(now), now)
    };
    let mut budget = Budget::of(check);
    if charge.requests_zero() {
        (standing.burst, standing.remaining, budget) = (0, 0, None);
    }
    NamedItem { limit, mode: check.check.mode(), rule, standing, denial, budget }
}

/// Why a limit denies this charge.
fn denial(check: &Check<'_>, charge: &NamedCharge, now: Timestamp) -> NamedDenial {
    let state = check.check.state;
    if let Some(ban_ns) = charge.banned_ns(state, check.check.applied.limit, now) {
        return NamedDenial { cause: Cause::Banned, retry: operator_bans::retry(ban_ns) };
    }
    NamedDenial { cause: Cause::Limit, retry: retry(check, now) }
}
