//! One request, one verdict: finds its limits, identifies it, charges all limits or none, and lets it wait.
//!
//! A decision is synchronous; only [`Asking::ask`], [`Waiting::wait`] and [`Delayed::wait`] are not. Not here: the answer
//! to the client (respond), and the request's path through the proxy.

mod account;
mod admit;
mod answered;
mod ask;
mod assigned_plans;
mod check;
mod identify;
mod identity_fields;
mod lease;
mod look;

mod queue;

mod body_meter;
mod charge_log;
mod pass;
mod receipts;
mod refusal;
mod refusal_log;
mod settle;
mod shadow;

mod ban_changes;
mod ban_lines;
mod bans;

mod budget;
mod standing;

mod adaptation;
mod adapted_rate;
mod adopt_rules;
mod rate_adaptation;

mod access;
mod overload;
mod preflight;
mod shed;

mod bound;
mod budgets;
mod explain;
mod verdict;

mod client_keys;
mod keys;
mod limit_keys;
mod lookup;
mod named_charge;
mod named_verdict;
mod spend;
mod stale;
mod top_keys;

mod keyed;

mod handover;
mod mirrors;

mod delta;
mod gauges;
mod listeners;
mod newest_live;
mod operator_bans;
mod own_limits;
mod replaced;
mod report;
mod shared_bans;
mod state;
mod stated;
mod store_tasks;
mod stored_key;
mod stream_ledger;
mod streamed;
mod worker_stores;

pub use access::{AccessError, EntryError};
pub use adapted_rate::AdaptedRate;
pub use admit::Step;
pub use ask::{Asking, Decider};
pub use ban_changes::LimitBans;
pub use body_meter::BodyMeter;
pub use bound::Bound;
pub use budget::{Budget, BudgetItem, Budgets};
pub use charge_log::LoggedCharge;
pub use client_keys::ClientKeys;
pub use delta::Delta;
pub use explain::{
    BudgetExplanation, Explanation, LimitExplanation, Question, QuestionError, RemoteExplanation, RouteExplanation,
    Routing, RuleSource,
};
pub use identify::{Credential, IdentityError, Unidentified, Unkeyed};
pub use identity_fields::IdentityFields;
pub use keyed::{KeyedCharge, KeyedLimit, KeyedOutcome, KeyedReceipt, KeyedRefusal, KeyedVerdict};
pub use keys::{FoundKey, KeyName, KeyOrder, KeyState, LimitedKey, LimitedKeysQuestion, ListPosition};
pub use lease::Refill;
pub use lookup::KeyError;
pub use named_charge::{ChargeError, NamedCharge, UNITS_MAX};
pub use named_verdict::{NamedDenial, NamedItem, NamedVerdict, decisive};
pub use newest_live::NewestLive;
pub use operator_bans::{BanInForce, BanTarget, OperatorBan};
pub use overload::{LEVEL_MAX, Level, Load, OverloadController};
pub use own_limits::{OwnLimit, OwnLimitsError};
pub use pass::{Charged, Pass};
pub use queue::body::BodyGrowth;
pub use queue::capacity::{HoldCaps, Reservation};
pub use queue::delay::Delayed;
pub use queue::wait::Waiting;
pub use refusal::{Cause, Refusal, RetryJitter};
pub use refusal_log::{LoggedRefusal, Receipt, RefusedState};
pub use settle::Bill;
pub use shed::Shed;
pub use spend::{Balance, Spend};
pub use stale::AnswerKeys;
pub use standing::Standing;
pub use state::{Gate, LimitState, Live};
pub use store_tasks::{StoreTasks, StoreWork};
pub use stored_key::{StoredKey, hear_stores};
pub use stream_ledger::StreamLedger;
pub use top_keys::{HALF_LIFE_NS, TOP_KEYS, TopKeys};
pub use verdict::{Rejection, Verdict};
pub use worker_stores::WorkerStores;

#[cfg(test)]
mod tests;
