//! The limits that apply to a request, and the keys that they charge.
//!
//! A [`Policy`] is immutable: `config` builds it, and a reload replaces it. This module has no state, clock, lock, I/O
//! or log.

pub mod access;
mod allowed;
mod body_cost;
mod body_member;
mod body_need;
mod client_api;
mod compiled;
mod cost;
pub mod descriptors;
mod facts;
mod identity;
mod keys;
mod limit;
mod matching;
mod mismatch;
mod overload;
pub mod overrides;
mod plan;
mod plan_rates;
mod priority;
mod ramp;
mod refusal_answer;
mod refusal_log_rules;
mod routing;
mod settle;
mod shares;
mod stale;
mod strategy;
mod written_rule;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use allowed::{Allowed, Variant, WrittenRules};
pub use body_cost::BodyCost;
pub use body_member::{BodyMember, MemberTest};
pub use body_need::BodyNeed;
pub use client_api::ClientApi;
pub use compiled::{Applied, LimitTraits, Policy};
pub use cost::{Cost, CostLine, CostSource};
pub use facts::Facts;
pub use identity::certificates::{Certificate, CertificateName};
pub use identity::sources::{Identity, IdentitySource, OnMissing, Principal};
pub use identity::{api_keys, bearer, client_ip, forwarded, identity_header, jwt};
pub use keys::fleet_secret::{FLEET_SECRET_BYTES_MIN, FleetSecret, PROOF_BYTES, ProofKey, WeakSecret};
pub use keys::key::{KeySecret, key_of_marked_id};
pub use keys::part::KeyPart;
pub use keys::shown::{CREDENTIALS, SHOWN_BYTES_MAX};
pub use limit::{DelayRule, HoldRule, Limit, Mode, OnLimit, RefusalRules, Stage};
pub use matching::conditions::{Except, HeaderTest, HostPattern, Match};
pub use matching::networks::Networks;
pub use matching::notation::Mark;
pub use matching::path;
pub use matching::pattern::{PathPattern, PatternError};
pub use matching::regex::{RegexError, TextRegex};
pub use matching::values::{AmbiguousValue, Repeated, compared, in_header, is_empty_as_read, is_in_form};
pub use mismatch::Mismatch;
pub use overload::Overload;
pub use plan::{Plan, PlanSource};
pub use plan_rates::{PlanRates, ReadRate};
pub use priority::{Priorities, Priority, PriorityRule};
pub use ramp::{Ramp, Retirement};
pub use refusal_answer::RefusalAnswer;
pub use refusal_log_rules::RefusalLogRules;
pub use routing::{affinity, host, route, upgrades};
pub use settle::{AfterResponse, Settle, SettleBy, StatusSet, Unit};
pub use stale::{StaleCause, StaleRule};
pub use strategy::Strategy;
pub use written_rule::WrittenRule;
