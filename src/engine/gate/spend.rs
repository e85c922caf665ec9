//! Charges that a service makes itself, for work that belongs to no request.
//!
//! A charge is made whether it fits or not, down to the limit's largest debt. It is never refused for lack of units.
//! Several charges are independent of each other.

use super::named_charge::{ChargeError, NamedCharge, UNITS_MAX};
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Decision, Key};
use crate::engine::policy::Limit;

/// A charge without a request.
#[derive(Clone, Copy, Debug)]
pub struct Spend<'a> {
    /// The limit's name.
    pub limit: &'a str,
    /// The parts of the limit's key with their names, as the configuration writes them, in any order.
    pub key: &'a [(String, String)],
    /// The client's plan, if it has one.
    pub plan: Option<&'a str>,
    /// At most [`UNITS_MAX`]; 0 changes nothing, and a negative number gives units back.
    pub units: i64,
}

/// The balance of a key after a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Whole units that remain; `None` if the key has no limit, so that nothing was charged.
    pub remaining: Option<u64>,
    /// Units charged beyond the limit and not yet paid. While there is a debt, nothing remains.
    pub debt: u64,
    /// Nanoseconds until the key has all units again; `None` if that is unknown.
    pub reset_after_ns: Option<u64>,
}

impl Gate {
    /// Charges a key without a request. A limit that is off or in shadow mode is charged too.
    ///
    /// # Errors
    /// The problem with `spend`. Nothing is charged then.
    pub fn spend(&self, live: &Live, spend: Spend<'_>, now: Timestamp) -> Result<Balance, ChargeError> {
        let plan = spend.plan.map(str::to_owned);
        let charge = self.named_charge(live, spend.limit, spend.key, plan, 0)?;
        if spend.units.unsigned_abs() > UNITS_MAX {
            return Err(ChargeError::Units);
        }
        Ok(correct(live, &charge, (spend.units, 0), now))
    }

    /// Replaces the `charged` units of a check by the real `cost` of its work: charges the difference, or gives it back. Gives
    /// back at most the capacity of the limit, because no check charges more. Without `settle`, the whole debt stays.
    pub fn report(&self, live: &Live, charge: &NamedCharge, charged: u64, cost: u64, now: Timestamp) -> Balance {
        let units = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        let capacity = rule_of(live, charge).map_or(0, |(.., rule)| rule.capacity());
        let extra = units(cost).saturating_sub(units(charged)).max(-units(capacity));
        correct(live, charge, (extra, u64::MAX), now)
    }
}

/// Charges `extra` units to the key of `charge`, or gives them back if the number is negative. Without `settle`, the
/// largest debt is `max_debt`.
pub(super) fn correct(live: &Live, charge: &NamedCharge, (extra, max_debt): (i64, u64), now: Timestamp) -> Balance {
    let Some(((limit, key, rule), state)) = rule_of(live, charge).zip(live.states.get(charge.limit)) else {
        return Balance { remaining: None, debt: 0, reset_after_ns: Some(0) };
    };
    let settle = limit.after.as_ref().and_then(|after| after.settle.as_ref());
    let max_debt = settle.map_or(max_debt, |settle| settle.max_debt);
    if extra != 0 {
        state.settle(key, rule, extra, max_debt, now);
    }
    let Decision { remaining, reset_after_ns, .. } = state.table.peek(key, rule, 0, now);
    let debt = state.table.over(key, rule, now);
    let reset_after_ns = Some(reset_after_ns).filter(|ns| *ns != Decision::UNKNOWN_NS);
    Balance { remaining: Some(remaining), debt, reset_after_ns }
}

/// The limit of a charge, and its key and rule; `None` if the key has no limit.
fn rule_of<'l>(live: &'l Live, charge: &'l NamedCharge) -> Option<(&'l Limit, Key, &'l Algorithm)> {
    let applied = live.policy.at(charge.limit)?;
    if let Some(requested) = &charge.requested {
        return Some((applied.limit, requested.key, &requested.rule));
    }
    let variant = live.variant(&applied, charge.key, charge.plan.as_deref());
    Some((applied.limit, charge.key, applied.limit.allowed.rule(variant)?))
}
