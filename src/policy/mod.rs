//! What: which limits apply to a request, and whose budgets they are.
//!
//! A [`Policy`] is immutable, built by `config` and swapped whole. Nothing here keeps state, reads a clock,
//! takes a lock, does I/O or logs.

mod allowed;
mod cost;
mod facts;
mod fields;
pub mod forwarded;
mod matcher;
mod notation;
mod pattern;
mod plan;
mod settle;
mod shadow;
mod shown;
mod siphash;
mod values;
mod why;

pub mod access;
pub mod affinity;
pub mod client_ip;
pub mod host;
pub mod jwt;
pub mod key;
pub mod path;
pub mod route;
pub mod upgrades;

use std::sync::Arc;

use http::{HeaderName, Method};
use ipnet::IpNet;

pub use allowed::{Allowed, Variant};
pub use cost::{Cost, CostLine, SaidBy};
pub use facts::{Certificate, Facts};
pub use fields::{FieldBuf, Fields, Spans};
pub use matcher::{HeaderTest, HostPattern, Match};
pub use notation::Mark;
pub use pattern::{PathPattern, PatternError};
pub use plan::{Plan, PlanSource};
pub use settle::{After, Settle, SettleBy, StatusSet};
pub use shown::SHOWN_BYTES_MAX;
pub use values::{Several, compared, in_header, trim_ows};
pub use why::Mismatch;

use access::Access;
use client_ip::ClientIpRules;
use jwt::Verifier;
use key::KeyPart;
use matcher::Matcher;

use crate::limit::ban;
use crate::limit::slow_down::SlowDown;
use crate::limit::{Algorithm, OnFull, Retry};

/// Everything that is decided about requests, as the configuration says it.
#[derive(Debug)]
pub struct Policy {
    limits: Vec<Limit>,
    /// In the order of `limits`.
    foreknown: Vec<Foreknown>,
    /// Of the limits of each stage, but of those that are off.
    matchers: [Matcher; 2],
    /// Who a request says it is from; named by [`KeyPart::Identity`] through its index here.
    pub identities: Vec<Identity>,
    /// Whose address counts as the client's.
    pub client_ip: ClientIpRules,
    /// How many CORS preflights of a client address are free of most limits; `None` if none is.
    pub free_preflights: Option<Algorithm>,
    /// How paths are read.
    pub paths: path::Rules,
    /// Who is shut out, who is free of limits, and what needs a plan.
    pub access: Option<Box<Access>>,
    /// Where a request's plan is found.
    pub plans: Option<PlanSource>,
}

/// One named allowance.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Unique in its policy; printable ASCII without `"` and `\`.
    pub name: Box<str>,
    /// When it is decided.
    pub stage: Stage,
    /// Whether it is decided at all, and whether that has consequences.
    pub mode: Mode,
    /// Which requests it sees.
    pub matches: Match,
    /// Client networks that it does not see.
    pub except: Vec<IpNet>,
    /// Whose budget is charged; empty for one bucket shared by all.
    pub key: Vec<KeyPart>,
    /// How much.
    pub allowed: Allowed,
    /// Units that a request takes.
    pub cost: Cost,
    /// What becomes of a charge once the answer is known; `None` if it stays.
    pub after: Option<Arc<After>>,
    /// What happens beyond it.
    pub on_limit: OnLimit,
    /// When keys that go on are refused everything, and for how long.
    pub ban: Option<ban::Rule>,
    /// Keys that are remembered exactly.
    pub max_keys: usize,
    /// What happens to other keys then.
    pub on_full: OnFull,
    /// Whether its state outlives the process, if there is a place to keep it.
    pub persist: bool,
    /// Whether answers list its rates one by one.
    pub is_listed: bool,
}

/// When a limit is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Before identity is verified: every request is charged, also those refused later.
    Arrival,
    /// With all others of this stage, once identity is known.
    #[default]
    Identified,
}

/// Whether a limit has consequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It is charged and counted, and never refuses.
    Shadow,
    /// It is not decided.
    Off,
}

/// What happens to a request beyond a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// 429 at once.
    #[default]
    Reject,
    /// It waits for its turn.
    Hold(HoldRule),
    /// It passes, but later.
    Delay(DelayRule),
}

impl OnLimit {
    /// Whether requests wait for their turn.
    pub fn is_hold(&self) -> bool {
        matches!(self, Self::Hold(_))
    }

    /// Whether a request that may pass at `retry` waits for that, if nobody waits before it.
    pub fn waits(&self, retry: Retry) -> bool {
        match (self, retry) {
            (Self::Reject, _) | (Self::Hold(_), Retry::Never) => false,
            (Self::Hold(_), Retry::ON_RELEASE) | (Self::Delay(_), _) => true,
            (Self::Hold(rule), Retry::AfterNs(ns)) => rule.max_wait_ns.is_none_or(|max_ns| ns <= max_ns),
        }
    }
}

/// How much later requests beyond a limit pass, and how many may be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRule {
    /// By how much.
    pub slow_down: SlowDown,
    /// Requests delayed on one key.
    pub max_waiting: usize,
}

/// How long and how many may wait on one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRule {
    /// Nanoseconds; `None` waits until there is budget or the client leaves.
    pub max_wait_ns: Option<u64>,
    /// Requests waiting on one key.
    pub max_waiting: usize,
}

/// One `[identity.NAME]`.
#[derive(Debug)]
pub struct Identity {
    /// Its name in the configuration, for messages.
    pub name: Box<str>,
    /// Where it comes from.
    pub source: IdentitySource,
    /// What a request without it gets. One that is present and wrong is always refused.
    pub on_missing: OnMissing,
}

/// Where an identity comes from.
#[derive(Debug)]
pub enum IdentitySource {
    /// The value of a header, trusted as it stands, and which if there are several.
    Header(HeaderName, Repeated),
    /// A name in the certificate that the client opened its connection with.
    Certificate(CertificateName),
    /// A claim of a verified JSON Web Token.
    Jwt {
        /// The header that carries it; in `authorization` after `Bearer `, elsewhere bare.
        header: HeaderName,
        /// Keys, algorithms and the claim.
        verifier: Box<Verifier>,
    },
}

/// What a request is whose header is there several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeated {
    /// Refused.
    Reject,
    /// By the first of them.
    First,
    /// By the last.
    Last,
    /// By all, as one list (RFC 9110, section 5.3).
    Join,
}

/// Which name in a client's certificate is an identity. A certificate with several of its kind is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The common name of the subject.
    SubjectCn,
    /// The DNS name among the alternative ones.
    SanDns,
    /// The URI among the alternative ones.
    SanUri,
}

impl CertificateName {
    /// All names of its kind.
    pub fn of(self, certificate: &Certificate) -> &[Box<str>] {
        match self {
            Self::SubjectCn => &certificate.subject_cn,
            Self::SanDns => &certificate.san_dns,
            Self::SanUri => &certificate.san_uri,
        }
    }
}

/// What a request without an identity gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// 401.
    Reject,
    /// One bucket shared by all such requests.
    Anonymous,
    /// A bucket of its client's address.
    Ip,
}

/// What is known of a limit before any request.
#[derive(Clone, Copy, Debug)]
pub struct Foreknown {
    /// It looks at nothing but the path.
    path_only: bool,
    /// Two limits for which this is the same number have the same key for one request.
    pub keyed_as: usize,
    /// It may ask for more than to be charged: it holds, delays or bans, or is not the same for all.
    pub is_unusual: bool,
}

/// A limit that applies to a request.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'p> {
    /// Its place in [`Policy::limits`].
    pub index: usize,
    /// The limit.
    pub limit: &'p Limit,
    /// What is known of it anyway.
    pub foreknown: &'p Foreknown,
    /// The pattern of its `match.path` that matched, as written; empty if it has none.
    pub route: &'p str,
}

impl Policy {
    /// A policy over `limits`, in the order they are written.
    pub fn new(limits: Vec<Limit>, identities: Vec<Identity>, client_ip: ClientIpRules) -> Self {
        let foreknown = (0..limits.len()).map(|index| Foreknown::of(&limits, index)).collect();
        let matchers = [Stage::Arrival, Stage::Identified].map(|stage| Matcher::new(&limits, stage));
        let (free_preflights, paths, access, plans) = (None, path::Rules::default(), None, None);
        Self { limits, foreknown, matchers, identities, client_ip, free_preflights, paths, access, plans }
    }

    /// Sets the rate per client address up to which CORS preflights are free; `None` charges all of them.
    pub fn with_free_preflights(self, free_preflights: Option<Algorithm>) -> Self {
        Self { free_preflights, ..self }
    }

    /// Sets the rules by which paths are read.
    pub fn with_paths(self, paths: path::Rules) -> Self {
        Self { paths, ..self }
    }

    /// Sets the access lists and the source of plans.
    pub fn with_access(self, access: Option<Access>, plans: Option<PlanSource>) -> Self {
        Self { access: access.map(Box::new), plans, ..self }
    }

    /// A policy whose answers list the rates of all limits, or of none.
    pub fn with_listed(mut self, is_listed: bool) -> Self {
        self.limits.iter_mut().for_each(|limit| limit.is_listed = is_listed);
        self
    }

    /// All limits, also those that are off.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The keys of identities that are fetched while this is in force, with the name of the identity.
    pub fn fetched_keys(&self) -> impl Iterator<Item = (&str, &jwt::FetchedKeys)> {
        self.identities.iter().filter_map(|identity| match &identity.source {
            IdentitySource::Jwt { verifier, .. } => Some((&*identity.name, verifier.fetched()?)),
            _ => None,
        })
    }

    /// The limit of this name, as one that applies whatever its path.
    pub fn named(&self, name: &str) -> Option<Applied<'_>> {
        let index = self.limits.iter().position(|limit| *limit.name == *name)?;
        Some(Applied { index, limit: self.limits.get(index)?, foreknown: self.foreknown.get(index)?, route: "" })
    }

    /// Whether any limit is decided at arrival.
    pub fn has_arrival(&self) -> bool {
        !self.matchers[Stage::Arrival as usize].is_empty()
    }

    /// Calls `each` with every limit of `stage` that applies to the request, in no particular order.
    #[inline]
    pub fn for_each_applied<'p>(&'p self, stage: Stage, facts: &Facts<'_>, mut each: impl FnMut(Applied<'p>)) {
        self.matchers[stage as usize].for_each_path_match(facts.path, |index, route| {
            let (limit, foreknown) = (&self.limits[index], &self.foreknown[index]);
            if facts.is_free_preflight && self.frees(limit, facts) {
                return;
            }
            if foreknown.path_only || limit.applies_beyond_path(facts) {
                each(Applied { index, limit, foreknown, route });
            }
        });
    }

    /// Whether `limit` does not apply to a free CORS preflight. Limits of the arrival stage and limits that name OPTIONS
    /// apply. Concurrency limits apply too, unless they would answer 401: a preflight has no credentials.
    #[cold]
    fn frees(&self, limit: &Limit, preflight: &Facts<'_>) -> bool {
        let names_options = || limit.matches.methods.contains(&Method::OPTIONS) || limit.cost.names_options(preflight);
        let is_held = || matches!(limit.allowed.usual, Algorithm::Concurrency(_)) && !self.rejects_anonymous(limit);
        limit.stage == Stage::Identified && !names_options() && !is_held()
    }

    /// Whether `limit` needs an identity without which requests are rejected.
    fn rejects_anonymous(&self, limit: &Limit) -> bool {
        let rejects =
            |index: &usize| self.identities.get(*index).is_some_and(|one| one.on_missing == OnMissing::Reject);
        let by_plan = matches!(&self.plans, Some(PlanSource::Claim(index)) if rejects(index));
        limit.key.iter().any(|part| matches!(part, KeyPart::Identity(index) if rejects(index)))
            || by_plan && !limit.allowed.plans.is_empty()
    }
}

impl Foreknown {
    fn of(limits: &[Limit], index: usize) -> Self {
        let limit = &limits[index];
        let Match { hosts, methods, headers, .. } = &limit.matches;
        let path_only = hosts.is_empty() && methods.is_empty() && headers.is_empty() && limit.except.is_empty();
        // Two limits may match the same request by different patterns.
        let has_own_key = limit.key.contains(&KeyPart::Route);
        let alike = limits[..index].iter().position(|other| !has_own_key && other.key == limit.key);
        let is_unusual = limit.allowed.is_special() || limit.ban.is_some() || limit.on_limit != OnLimit::Reject;
        Self { path_only, keyed_as: alike.unwrap_or(index), is_unusual }
    }
}

impl Limit {
    /// Whether everything but the path of a request matches.
    #[inline(never)]
    fn applies_beyond_path(&self, facts: &Facts<'_>) -> bool {
        self.matches.matches_beyond_path(facts) && !self.except.iter().any(|net| net.contains(&facts.client_ip))
    }
}
