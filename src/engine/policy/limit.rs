//! A limit as the configuration declares it, and comparisons of two: whether one shadows the other, and whether one
//! bounds the keys of the other.

use std::sync::Arc;

use http::StatusCode;
use http::header::CONTENT_LENGTH;

use super::allowed::Allowed;
use super::body_member::BodyMember;
use super::cost::{Cost, CostSource};
use super::facts::Facts;
use super::identity::client_ip::Prefixes;
use super::identity::sources::Identity;
use super::keys::key::KeySecret;
use super::keys::part::KeyPart;
use super::matching::conditions::{Except, Match};
use super::ramp::{Ramp, Retirement};
use super::refusal_answer::RefusalAnswer;
use super::settle::{AfterResponse, SettleBy, Unit};
use super::stale::StaleRule;
use super::strategy::Strategy;
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::{Key, OnFull, Retry, Scale, adaptive_rate, ban};
use crate::engine::units::Pointer;

/// A compiled `[[limit]]`.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The name, unique in its policy: printable ASCII without `"` and `\`.
    pub name: Box<str>,
    /// The stage at which the limit is decided.
    pub stage: Stage,
    /// Whether the limit is enforced.
    pub mode: Mode,
    /// The part of the keys for which the limit is enforced, in percent. It charges and counts the others as in
    /// [`Mode::Shadow`].
    pub enforced_percent: u8,
    /// The index of the limit whose candidate this one is: it counts what other numbers would do, in [`Mode::Shadow`].
    pub candidate_of: Option<usize>,
    /// The requests that the limit applies to.
    pub matches: Match,
    /// The requests of `matches` that are exempt.
    pub except: Except,
    /// The parts of the key; empty for one bucket that all requests share.
    pub key: Vec<KeyPart>,
    /// The amount that the limit allows, as far as this replica may spend it alone.
    pub allowed: Allowed,
    /// The change of `allowed` over time; `None` if there is none.
    pub ramp: Option<Arc<Ramp>>,
    /// The instants of `ramp` that are reached, as `allowed` has it.
    pub ramp_steps: usize,
    /// How `allowed` follows a signal; `None` if it does not.
    pub adapt: Option<adaptive_rate::Rule>,
    /// The thousandths of the written numbers that `allowed` has by `adapt`.
    pub adapted: u64,
    /// How replicas share the limit.
    pub strategy: Strategy,
    /// The cost of a request.
    pub cost: Cost,
    /// What the units are, if the configuration says it.
    pub unit_name: Option<Arc<str>>,
    /// The rules for a charge once the response is known; `None` if the charge stays.
    pub after: Option<Arc<AfterResponse>>,
    /// The action for requests that the limit does not admit.
    pub on_limit: OnLimit,
    /// The answers to refused requests.
    pub refusals: RefusalRules,
    /// The longest random time that refused clients are asked to wait beyond their wait, in percent of it.
    pub jitter_percent: u8,
    /// The ban of keys that are refused too often; `None` if there is none.
    pub ban: Option<ban::Rule>,
    /// The stored answers for requests that get no other; `None` if there are none.
    pub stale: Option<StaleRule>,
    /// The maximum number of keys that are counted exactly.
    pub max_keys: usize,
    /// The treatment of further keys.
    pub on_full: OnFull,
    /// Whether snapshots contain the state of the limit.
    pub persist: bool,
    /// Whether responses list each rate of the limit.
    pub is_listed: bool,
}

/// The answers of a limit to requests that it refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRules {
    /// The status for a request beyond the limit.
    pub refused: StatusCode,
    /// The status for a request of a banned key.
    pub banned: StatusCode,
    /// The answer to a request beyond the limit; `None` for a problem document.
    pub answer: Option<Arc<RefusalAnswer>>,
}

impl Default for RefusalRules {
    fn default() -> Self {
        Self { refused: StatusCode::TOO_MANY_REQUESTS, banned: StatusCode::FORBIDDEN, answer: None }
    }
}

/// The stage at which a limit is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Before identities are verified. Requests that are refused later are charged too.
    Arrival,
    /// Once identities are known, together with all other limits of this stage.
    #[default]
    Identified,
}

/// Whether a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The limit is enforced.
    #[default]
    Enforce,
    /// The limit charges and counts requests, and never refuses them.
    Shadow,
    /// The limit is not decided.
    Off,
}

impl Mode {
    /// The word of the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// The action for a request that a limit does not admit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The request is refused with 429 at once.
    #[default]
    Reject,
    /// The request waits in a queue.
    Hold(HoldRule),
    /// The request is forwarded after a delay.
    Delay(DelayRule),
}

impl OnLimit {
    /// Whether requests wait in a queue.
    pub fn is_hold(&self) -> bool {
        matches!(self, Self::Hold(_))
    }

    /// Whether a request that could be admitted at `retry` waits until then, if no request waits before it.
    pub fn waits(&self, retry: Retry) -> bool {
        match (self, retry) {
            (Self::Reject, _) | (Self::Hold(_), Retry::Never) => false,
            (Self::Hold(_), Retry::ON_RELEASE) | (Self::Delay(_), _) => true,
            (Self::Hold(rule), Retry::AfterNs(ns)) => rule.max_wait_ns.is_none_or(|max_ns| ns <= max_ns),
        }
    }
}

/// The delay of requests over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRule {
    /// The length of the delay.
    pub slow_down: SlowDown,
    /// The maximum number of delayed requests on one key.
    pub max_waiting: usize,
}

/// The bounds of the wait queue of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRule {
    /// The maximum wait in nanoseconds; `None` for no maximum.
    pub max_wait_ns: Option<u64>,
    /// The maximum number of waiting requests on one key.
    pub max_waiting: usize,
}

impl Limit {
    /// Whether only callers of the limiter service meet the limit: no request has such a key.
    pub fn is_for_callers(&self) -> bool {
        self.key.iter().any(|part| matches!(part, KeyPart::Named(_)))
    }

    /// Whether the limit is enforced for some keys only.
    #[inline]
    pub fn is_partly_enforced(&self) -> bool {
        self.enforced_percent < 100
    }

    /// The mode for keys of this percentile.
    #[inline]
    pub fn mode_of(&self, percentile: u8) -> Mode {
        if self.mode == Mode::Enforce && percentile >= self.enforced_percent { Mode::Shadow } else { self.mode }
    }

    /// The percentile of the key with these texts, on all replicas and in all processes. Zero if no part of the keys is left
    /// out, or a text is not valid.
    pub fn percentile(&self, texts: &[&str], prefixes: Prefixes, identities: &[Identity]) -> u8 {
        let hash = || KeySecret::public().key_of_texts(&self.key, texts, prefixes, identities);
        if self.is_partly_enforced() { hash().map_or(0, Key::percentile) } else { 0 }
    }

    /// What the units are; `None` for requests and what else the configuration does not say.
    pub fn unit(&self) -> Option<Unit> {
        let is_money = self.after.as_ref().and_then(|after| after.body_units()).is_some_and(|units| units.is_money());
        match &self.unit_name {
            Some(name) => Some(Unit::Named(Arc::clone(name))),
            None if is_money => Some(Unit::MicroUsd),
            None => self.counts_bytes().then_some(Unit::ContentBytes),
        }
    }

    /// The members of bodies in the key, the conditions and the correction.
    fn members(&self) -> impl Iterator<Item = &BodyMember> {
        let key = self.key.iter().filter_map(|part| match part {
            KeyPart::Json(member) => Some(&**member),
            _ => None,
        });
        let after = self.after.iter().flat_map(|after| after.members());
        key.chain(self.matches.json.iter().map(|(member, _)| member)).chain(after)
    }

    /// The pointers to what the limit reads of the body of a request.
    pub(super) fn body_pointers(&self) -> impl Iterator<Item = &Pointer> {
        let cost = match &self.cost {
            Cost::FromBody(cost) => &cost.numbers[..],
            _ => &[],
        };
        cost.iter().map(|(pointer, _)| pointer).chain(self.members().map(|member| &member.pointer))
    }

    /// The longest body that the limit reads; `None` if it reads none.
    pub fn read_bytes(&self) -> Option<u64> {
        match &self.cost {
            Cost::FromBody(cost) => Some(cost.read_bytes),
            _ => self.members().map(|member| member.read_bytes).next(),
        }
    }

    fn counts_bytes(&self) -> bool {
        let settles = self.after.as_ref().and_then(|after| after.settle.as_ref());
        let header = match &self.cost {
            Cost::FromRequest { by: CostSource::Header(header), .. } => Some(header),
            _ => None,
        };
        header == Some(&CONTENT_LENGTH) || settles.is_some_and(|settle| matches!(settle.by, SettleBy::ResponseBytes))
    }

    /// Whether a ramp lowers the limit to zero.
    pub fn retires(&self) -> bool {
        self.ramp.as_ref().is_some_and(|ramp| ramp.retirement.is_some())
    }

    /// The announcement to clients, if the limit is on its way to zero.
    pub fn retirement(&self) -> Option<&Arc<Retirement>> {
        self.ramp.as_ref()?.retirement_after(self.ramp_steps)
    }

    /// Whether a ramp has come to zero, and refused requests get 410.
    pub fn is_gone(&self) -> bool {
        self.ramp.as_ref().is_some_and(|ramp| ramp.is_gone(self.ramp_steps))
    }

    /// Whether answers to its requests are samples of its signal.
    pub fn is_sampled(&self) -> bool {
        self.adapt.is_some_and(|rule| rule.signal != adaptive_rate::Signal::Cpu)
    }

    /// The part of the written numbers that `allowed` has; `None` if they do not change.
    pub(super) fn scale(&self) -> Option<Scale> {
        let ramped = || self.ramp.as_ref().map(|ramp| ramp.scale(self.ramp_steps));
        let adapted = self.adapt.map(|_| Scale { numerator: self.adapted, denominator: adaptive_rate::WHOLE });
        adapted.or_else(ramped)
    }

    /// Whether the limit is enforced for all keys.
    pub(super) fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce && !self.is_partly_enforced()
    }

    /// Whether all conditions but the path are met, and neither the client nor the path is exempt.
    #[inline(never)]
    pub(super) fn applies_beyond_path(&self, facts: &Facts<'_>) -> bool {
        self.may_apply_beyond_path(facts) && self.matches.has_body(facts)
    }

    /// Whether the limit applies if the body of the request meets its conditions.
    pub(super) fn may_apply_beyond_path(&self, facts: &Facts<'_>) -> bool {
        self.guards_beyond_path(facts)
            && self.matches.has_client(facts)
            && self.except.network(facts.client_ip).is_none()
    }

    /// Whether the limit guards the request, if a pattern matches its path: its identities are verified whatever the mode
    /// of the limit is, and whether the limit selects or exempts the client or not, and whatever its body is.
    pub(super) fn guards_beyond_path(&self, facts: &Facts<'_>) -> bool {
        self.matches.fits_any_client(facts) && self.except.path(facts.path).is_none()
    }

    /// Whether a decision of the limit needs an identity or a plan of the request.
    pub fn needs_identity(&self) -> bool {
        let has_identity = self.key.iter().any(|part| matches!(part, KeyPart::Identity(_)));
        self.stage == Stage::Identified && (has_identity || self.allowed.has_plans()) && !self.is_for_callers()
    }

    /// Whether this limit refuses every request that `other` refuses. `false` also if that is unknown.
    pub fn shadows(&self, other: &Self) -> bool {
        let refuses_all_beyond = self.is_enforced()
            && !matches!(self.on_limit, OnLimit::Delay(_))
            && self.on_full != OnFull::Allow
            && !self.allowed.is_special()
            && self.after.is_none();
        // A key with fewer parts is charged for at least as many requests.
        let is_charged_as_much = self.key.iter().all(|part| other.key.contains(part))
            && match (&self.cost, &other.cost) {
                (Cost::Units(own), Cost::Units(other)) => own >= other,
                _ => false,
            };
        let sees_as_much = (self.stage == other.stage || self.stage == Stage::Arrival)
            && self.except.is_within(&other.except)
            && self.matches.covers(&other.matches);
        let is_plain = other.mode == Mode::Enforce
            && !other.allowed.is_special()
            && other.after.is_none()
            && other.adapt.is_none();
        // Replicas count alone, or together. Neither way is stricter in every case.
        let counts_alike =
            self.strategy == other.strategy || self.strategy.counts_alone() && other.strategy.counts_alone();
        refuses_all_beyond
            && is_plain
            && counts_alike
            && is_charged_as_much
            && sees_as_much
            && self.allowed.usual.is_within(&other.allowed.usual)
    }

    /// Whether this limit bounds the requests of each client address that `other` limits. A limit that only delays
    /// bounds nothing. A limit that counts some outcomes bounds only limits that count the same outcomes.
    pub fn bounds_addresses_of(&self, other: &Self) -> bool {
        let counts = |limit: &Self| limit.after.as_ref().and_then(|after| after.counts.clone());
        self.is_enforced()
            && !matches!(self.on_limit, OnLimit::Delay(_))
            && self.key.iter().any(|part| matches!(part, KeyPart::Ip | KeyPart::Network { .. }))
            && self.key.iter().all(|part| matches!(part, KeyPart::Ip | KeyPart::Network { .. } | KeyPart::Route))
            && counts(self).is_none_or(|own| counts(other) == Some(own))
            && self.matches.covers(&other.matches)
    }
}
