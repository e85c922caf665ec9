//! Where the state of every (limit, key) lives, and the decision over all charges of a request at once.
//!
//! A state outlives the policy that made it. Not here: which limits apply (policy), what they compute
//! (limit), and who waits (gate).

mod memory;
mod overflow;
mod tokens;

use std::borrow::Borrow;

use smallvec::SmallVec;

pub use memory::Table;
pub use tokens::{MAX_TOKEN_AGE_NS, TokenCache};

use crate::limit::{Decision, Key, Quota};
use crate::time::Timestamp;

/// What one limit would take for one request.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'t> {
    /// The limit's keys.
    pub table: &'t Table,
    /// Whose budget.
    pub key: Key,
    /// How much there is.
    pub quota: Quota,
    /// How much is taken; 0 peeks.
    pub cost: u64,
    /// Whether a denial refuses the request; one that does not is only charged if it admits.
    pub enforced: bool,
}

/// One decision for each charge, in their order.
pub type Decisions = SmallVec<[Decision; 4]>;

/// Decides all charges at the instant `now`: if every enforced one admits, those that admit are charged,
/// else none is. Says which of the two it was.
pub fn admit<'t>(charges: &[impl Borrow<Charge<'t>>], now: Timestamp, decisions: &mut Decisions) -> bool {
    decisions.clear();
    for (index, charge) in charges.iter().map(Borrow::borrow).enumerate() {
        let decision = charge.table.admit(charge.key, &charge.quota, charge.cost, now);
        decisions.push(decision);
        if charge.enforced && !decision.is_admitted() {
            let admitted = charges.iter().zip(&*decisions).take(index).filter(|(_, decision)| decision.is_admitted());
            for (charge, decision) in admitted {
                let charge = charge.borrow();
                charge.table.refund(charge.key, charge.cost, decision.full_at(now), now);
            }
            decisions.truncate(index + 1);
            decisions.extend(charges[index + 1..].iter().map(|charge| peek(charge.borrow(), now)));
            return false;
        }
    }
    true
}

/// What a charge would be told at `now`; nothing is charged.
pub fn peek(charge: &Charge<'_>, now: Timestamp) -> Decision {
    charge.table.peek(charge.key, &charge.quota, charge.cost, now)
}

#[cfg(test)]
mod tests;
