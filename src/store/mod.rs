//! Where the state of every (limit, key) lives, and the decision over all charges of a request at once.
//!
//! A state outlives the policy that made it. Not here: which limits apply (policy), what they compute
//! (limit), and who waits (gate).

mod bans;
mod crowd;
mod group;
mod kept;
mod map;
mod memory;
mod overflow;
mod shards;
mod sketches;
mod slots;
mod table;
mod tokens;

pub mod snapshot;

use smallvec::SmallVec;

pub use bans::Bans;
pub use crowd::{Crowd, Share};
pub use table::{Known, Outcome, Receipt, Table};
pub use tokens::{MAX_TOKEN_AGE_NS, TokenCache};

use crate::limit::{Algorithm, Key, Retry};
use crate::time::Timestamp;

/// What one limit would take for one request.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'t> {
    /// The limit's keys.
    pub table: &'t Table,
    /// Whose budget.
    pub key: Key,
    /// How much there is.
    pub rule: &'t Algorithm,
    /// How much is taken; 0 peeks.
    pub cost: u64,
    /// Whether a denial refuses the request; one that does not is only charged if it admits.
    pub enforced: bool,
}

/// One for each charge, in their order.
pub type Outcomes = SmallVec<[Outcome; 4]>;

/// Decides all charges at the instant `now`: if every enforced one admits, those that admit are charged,
/// else none is. Says which of the two it was.
#[inline]
pub fn admit<'t>(charges: impl Iterator<Item = Charge<'t>> + Clone, now: Timestamp, outcomes: &mut Outcomes) -> bool {
    outcomes.clear();
    for charge in charges.clone() {
        let outcome = charge.table.admit(charge.key, charge.rule, charge.cost, now);
        let is_refused = charge.enforced && !outcome.is_admitted();
        outcomes.push(outcome);
        if is_refused {
            give_back(charges, now, outcomes);
            return false;
        }
    }
    true
}

/// The last of `outcomes` refuses: what those before it charged is given back, and those behind it are asked.
#[cold]
fn give_back<'t>(charges: impl Iterator<Item = Charge<'t>> + Clone, now: Timestamp, outcomes: &mut Outcomes) {
    let decided = outcomes.len();
    for (charge, outcome) in charges.clone().zip(&mut *outcomes) {
        charge.table.refund(charge.key, &std::mem::replace(&mut outcome.receipt, Receipt::None), now);
    }
    outcomes.extend(charges.skip(decided).map(|charge| peek(&charge, now)));
}

/// What a charge would be told at `now`; nothing is charged.
pub fn peek(charge: &Charge<'_>, now: Timestamp) -> Outcome {
    charge.table.peek(charge.key, charge.rule, charge.cost, now).into()
}

/// The first instant from `earliest` to `now` as of which every enforced charge admits, for charges that all admit at
/// `now`; no charge falls into a window that has ended by then.
pub fn slot<'t>(charges: impl Iterator<Item = Charge<'t>> + Clone, earliest: Timestamp, now: Timestamp) -> Timestamp {
    let from = charges.clone().fold(earliest, |from, charge| charge.rule.chargeable_from(from, now));
    let denials = charges.filter(|charge| charge.enforced).filter_map(|charge| peek(&charge, from).decision.denied);
    match denials.max() {
        None => from,
        Some(Retry::AfterNs(ns)) => from.saturating_add_ns(ns).min(now),
        Some(Retry::Never) => now,
    }
}

#[cfg(test)]
mod tests;
