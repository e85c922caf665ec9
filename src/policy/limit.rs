//! A limit as the configuration declares it.

use std::sync::Arc;

use ipnet::IpNet;

use super::allowed::Allowed;
use super::cost::Cost;
use super::facts::Facts;
use super::keys::part::KeyPart;
use super::matching::conditions::Match;
use super::settle::AfterResponse;
use crate::limit::slow_down::SlowDown;
use crate::limit::{OnFull, Retry, ban};

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
    pub after: Option<Arc<AfterResponse>>,
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

impl Limit {
    /// Whether everything but the path of a request matches.
    #[inline(never)]
    pub(super) fn applies_beyond_path(&self, facts: &Facts<'_>) -> bool {
        self.matches.matches_beyond_path(facts) && !self.except.iter().any(|net| net.contains(&facts.client_ip))
    }
}
