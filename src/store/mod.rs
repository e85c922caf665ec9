//! Where the state of every (limit, key) lives, and the decision over all charges of a request at once.
//!
//! A state outlives the policy that made it. Not here: which limits apply (policy), what they compute
//! (limit), and who waits (gate).

mod memory;
mod overflow;
mod tokens;

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
    pub quota: &'t Quota,
    /// How much is taken; 0 peeks.
    pub cost: u64,
    /// Whether a denial refuses the request; one that does not is only charged if it admits.
    pub enforced: bool,
}

/// One decision for each charge, in their order.
pub type Decisions = SmallVec<[Decision; 4]>;

/// Decides all charges at the instant `now`: if every enforced one admits, those that admit are charged,
/// else none is. Says which of the two it was.
#[inline]
pub fn admit<'t>(charges: impl Iterator<Item = Charge<'t>> + Clone, now: Timestamp, decisions: &mut Decisions) -> bool {
    decisions.clear();
    for charge in charges.clone() {
        let decision = charge.table.admit(charge.key, charge.quota, charge.cost, now);
        decisions.push(decision);
        if charge.enforced && !decision.is_admitted() {
            give_back(charges, now, decisions);
            return false;
        }
    }
    true
}

/// The last of `decisions` refuses: what those before it charged is given back, and those behind it are asked.
#[cold]
fn give_back<'t>(charges: impl Iterator<Item = Charge<'t>> + Clone, now: Timestamp, decisions: &mut Decisions) {
    let decided = decisions.len();
    let admitted = charges.clone().zip(&*decisions).filter(|(_, decision)| decision.is_admitted());
    for (charge, decision) in admitted {
        charge.table.refund(charge.key, charge.cost, decision.full_at(now), now);
    }
    decisions.extend(charges.skip(decided).map(|charge| peek(&charge, now)));
}

/// What a charge would be told at `now`; nothing is charged.
pub fn peek(charge: &Charge<'_>, now: Timestamp) -> Decision {
    charge.table.peek(charge.key, charge.quota, charge.cost, now)
}

#[cfg(test)]
mod tests;
