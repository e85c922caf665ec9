//! Charges that a store decides, its answers, and what decides without it.
//!
//! Not here: how a call is encoded, and how it reaches a server.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::failure::Failure;
use super::receipt::RemoteReceipt;
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, Decision, Key};

/// The charge of one remote limit for one request.
#[derive(Clone, Copy, Debug)]
pub struct RemoteCharge<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The owner of the budget.
    pub key: Key,
    /// The whole rule that the limit has for this key.
    pub rule: &'a Algorithm,
    /// The units that are asked for.
    pub units: Units,
    /// What follows if the limit does not admit the charge.
    pub handling: Handling,
    /// Units came back to the key a moment ago, of which the store may not know yet. If it denies, it is asked again when it
    /// knows of them, if that is in time.
    pub asked_again_until: Option<Instant>,
}

/// The units that a charge asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// The least number of units that is of use; 0 peeks.
    pub cost: u64,
    /// The most units that are granted. More than `cost` only for a lease.
    pub want: u64,
    /// Of the units beyond `cost`, a grant leaves the others: it is at most what remains divided by this. At least 1.
    pub divisor: u64,
    /// Units of earlier grants that the caller has not spent.
    pub at_hand: u64,
}

impl Units {
    /// Exactly `cost` units.
    pub const fn exactly(cost: u64) -> Self {
        Self { cost, want: cost, divisor: 1, at_hand: 0 }
    }
}

/// What follows if a limit does not admit a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// No charge of the request is made.
    Enforce,
    /// This charge is not made.
    Shadow,
    /// This charge is made as a debt.
    Delay {
        /// The most units beyond the limit.
        max_debt: u64,
    },
}

/// The answers to charges of one request: of one server, or of all nodes that have the keys.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Whether every enforced charge that a node decided was admitted. Otherwise none stays charged.
    pub is_admitted: bool,
    /// The answer to each charge, in the order of the charges. Charges without an answer are decided by `on_failure`; if
    /// these deny, the receipts of the others are to be given back.
    pub outcomes: SmallVec<[Result<RemoteOutcome, Unavailable>; 2]>,
}

/// The answer to one charge.
#[derive(Clone, Debug)]
pub struct RemoteOutcome {
    /// The units that the limit admits; 0 for a cost above 0 is a denial.
    pub admitted: u64,
    /// Whether units are charged now. A charge that was denied and is made as a debt has `admitted` 0 and is charged.
    pub is_charged: bool,
    /// Whether nothing is charged, and the store keeps the state under another rule than that of the charge.
    pub is_outdated: bool,
    /// The state of the key after the call, under the rule of the charge.
    pub state: AnyState,
    /// The proof of the charge; `None` if nothing is charged.
    pub receipt: Option<RemoteReceipt>,
}

impl RemoteOutcome {
    /// The decision about the charge. `now` is the instant for which the answer was read.
    pub fn decision(&self, charge: &RemoteCharge<'_>, now: Timestamp) -> Decision {
        let cost = if self.is_charged { 0 } else { charge.units.cost };
        self.state.peek(charge.rule, cost, now)
    }
}

/// Why a store did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The server is known to be down, or cannot be reached.
    Down,
    /// The answer did not come in time. Whether the charges are made is unknown until it comes.
    Timeout,
    /// The server has lost its keys, and does not decide yet.
    Cold,
    /// The server answered with an error.
    Error(Failure),
}

/// The server that has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyServer {
    /// Its label in metrics.
    pub name: Arc<str>,
    /// Why it does not decide now; `None` if it does.
    pub unavailable: Option<Unavailable>,
}

/// What decides about a key while its server is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Each replica, by its share of the limit.
    #[default]
    Split,
    /// Each replica, by the whole limit.
    Local,
    /// Every request is refused.
    Reject,
    /// Every request is admitted, and charged nothing.
    Allow,
}

impl OnFailure {
    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Local => "local",
            Self::Reject => "reject",
            Self::Allow => "allow",
        }
    }
}
