//! One request, one verdict: matches its limits, identifies it, decides, and lets it wait.
//!
//! The decision itself is synchronous; only [`Waiting::wait`] is not. Not here: what a verdict looks like
//! to a client (respond), and the request's way through the proxy.

mod access;
mod ban;
mod budget;
mod candidate;
mod case;
mod charge;
mod decide;
mod delay;
mod explain;
mod hold;
mod identify;
mod journal;
mod keep;
mod line;
mod live;
mod named;
mod outcome;
mod preflight;
mod refused;
mod room;
mod settle;
mod spend;
mod standing;
mod verdict;
mod wait;

pub use access::Shut;
pub use budget::{Budget, BudgetItem, Budgets};
pub use decide::Step;
pub use delay::Delayed;
pub use explain::{BudgetExplained, Explanation, LimitExplained, Question, QuestionError};
pub use identify::{Unidentified, Unkeyed, Why};
pub use journal::Told;
pub use live::{Gate, HoldCaps, LimitState, Live};
pub use named::KeyError;
pub use refused::{HALF_LIFE_NS, TOP_KEYS, TopKey, TopKeys};
pub use settle::Bill;
pub use spend::{Balance, Spend, SpendError, UNITS_MAX};
pub use standing::Standing;
pub use verdict::{Cause, Charged, Pass, Refusal};
pub use wait::Waiting;

#[cfg(test)]
mod tests;
