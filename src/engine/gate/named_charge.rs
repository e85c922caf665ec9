//! Charges to limits that a caller names, without a request: their keys.
//!
//! Not here: the decision about them (`named_verdict`), and charges that are never refused (`spend`).

use super::lookup::{KeyError, normal, texts};
use super::state::{Gate, LimitState, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Allowance, Key, QuotaError, Rate, fixed_window};
use crate::engine::policy::{KeyPart, Limit};

/// Units of one charge at most: the largest whole number that every reader of JSON understands (RFC 8259, section 6).
pub const UNITS_MAX: u64 = (1 << 53) - 1;

/// The charge of a reset. It gives back more than any key owes: other processes may know of a debt that this one has not heard of.
pub(super) const RESET_UNITS: i64 = -UNITS_MAX.cast_signed();

/// A charge to a key of a limit. It belongs to the [`Live`] that it was made for.
#[derive(Clone, Debug)]
pub struct NamedCharge {
    /// The index of the limit.
    pub(super) limit: usize,
    pub(super) key: Key,
    /// As in `LimitCheck`.
    pub(super) percentile: u8,
    /// The texts of the key's parts.
    pub(super) texts: Vec<String>,
    /// The caller's plan, if it has one.
    pub(super) plan: Option<String>,
    /// Units; 0 looks.
    pub(super) units: u64,
    /// The rate that the caller requests.
    pub(super) requested: Option<RequestedRate>,
}

/// A rate that a caller requests in place of those that the limit has.
#[derive(Clone, Debug)]
pub(super) struct RequestedRate {
    /// The key of its budget, so that the budget under the configured rate is not refilled.
    pub(super) key: Key,
    /// The rule: a window. If the rate has no units, the rule has one.
    pub(super) rule: Algorithm,
    /// Whether the rate has no units.
    pub(super) is_zero: bool,
}

impl NamedCharge {
    /// Whether the caller requests a rate without units.
    pub(super) fn requests_zero(&self) -> bool {
        self.requested.as_ref().is_some_and(|requested| requested.is_zero)
    }

    /// Whether both request rates of one budget, and the rates differ.
    pub fn contradicts(&self, other: &Self) -> bool {
        let (Some(own), Some(other_rate)) = (&self.requested, &other.requested) else { return false };
        let is_same_budget = self.limit == other.limit && own.key == other_rate.key;
        is_same_budget && (&own.rule, own.is_zero) != (&other_rate.rule, other_rate.is_zero)
    }

    /// Nanoseconds until the ban of the key ends; `None` if it is not banned. Refusals of requested rates ban the key of
    /// their budget, operators the key itself.
    pub(super) fn banned_ns(&self, state: &LimitState, limit: &Limit, now: Timestamp) -> Option<u64> {
        let banned_ns = |key| state.banned_ns(limit, limit.mode_of(self.percentile), key, now);
        let requested = self.requested.as_ref().and_then(|requested| banned_ns(requested.key));
        requested.max(banned_ns(self.key))
    }
}

/// Why a limit cannot be charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChargeError {
    /// No request can have the key.
    #[error("{0}")]
    Key(KeyError),
    /// The limit counts requests in flight, so the units would never come back.
    #[error("this limit counts requests in flight, and cannot be charged")]
    InFlight,
    /// The units are out of range.
    #[error("units: a whole number from -{UNITS_MAX} to {UNITS_MAX}")]
    Units,
}

impl From<KeyError> for ChargeError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl Gate {
    /// A charge to the limit of this name. `key` are the parts of its key with their names, in any order.
    ///
    /// # Errors
    /// Why the key cannot be charged.
    pub fn named_charge(
        &self,
        live: &Live,
        limit: &str,
        key: &[(String, String)],
        plan: Option<String>,
        units: u64,
    ) -> Result<NamedCharge, ChargeError> {
        let index = live.policy.by_name(limit).ok_or(KeyError::UnknownLimit)?.index;
        self.charge_of_texts(live, index, texts(live, index, key)?, plan, units)
    }

    /// A charge to the limit at `index`. `parts` are the texts of the parts of its key, in its order.
    ///
    /// # Errors
    /// Why the key cannot be charged.
    pub fn charge_of_parts(
        &self,
        live: &Live,
        index: usize,
        parts: impl Iterator<Item = String>,
        plan: Option<String>,
        units: u64,
    ) -> Result<NamedCharge, ChargeError> {
        let limit = live.policy.limits().get(index).ok_or(KeyError::UnknownLimit)?;
        let text = |(part, text): (&KeyPart, String)| {
            // Callers pass on what their clients send. An error would let a client choose that nothing is charged, so texts
            // that no request has are one text.
            let is_of_client = !matches!(part, KeyPart::Ip | KeyPart::Network { .. } | KeyPart::Route);
            let path = if *part == KeyPart::Path { text.split('?').next() } else { None };
            let known = normal(live, index, part, path.unwrap_or(&text));
            known
                .or_else(|| is_of_client.then(String::new))
                .ok_or_else(|| KeyError::BadPart(live.policy.part_name(part).into_owned()))
        };
        let texts = limit.key.iter().zip(parts).map(text).collect::<Result<_, _>>()?;
        self.charge_of_texts(live, index, texts, plan, units)
    }

    /// `charge` by the rate that its caller requests, in place of the rate, the plan and the override that its key has.
    /// `rate` may have no units: it refuses all. The rule is a sliding window if the limit has one, and otherwise a fixed
    /// window that begins with the first request.
    ///
    /// # Errors
    /// If the limit cannot have the rate.
    pub fn with_rate(&self, live: &Live, charge: NamedCharge, rate: Rate) -> Result<NamedCharge, QuotaError> {
        let Some(limit) = live.policy.limits().get(charge.limit) else { return Ok(charge) };
        let counted = Rate { count: rate.count.max(1), ..rate };
        let rule = match &limit.allowed.usual {
            Algorithm::SlidingWindow(_) => Algorithm::SlidingWindow(Allowance::new(counted)?),
            _ => Algorithm::FixedWindow(fixed_window::Rule::from_first(counted)?),
        };
        let key = self.secret.of_period(charge.key, rate.period_ns);
        Ok(NamedCharge { requested: Some(RequestedRate { key, rule, is_zero: rate.count == 0 }), ..charge })
    }

    fn charge_of_texts(
        &self,
        live: &Live,
        index: usize,
        texts: Vec<String>,
        plan: Option<String>,
        units: u64,
    ) -> Result<NamedCharge, ChargeError> {
        let limit = live.policy.limits().get(index).ok_or(KeyError::UnknownLimit)?;
        if limit.allowed.usual.is_released() {
            return Err(ChargeError::InFlight);
        }
        let parts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (prefixes, identities) = (live.policy.client_ip.prefixes, &live.policy.identities);
        let key = self.secret.key_of_texts(&limit.key, &parts, prefixes, identities);
        let key = key.ok_or_else(|| KeyError::BadPart("ip".to_owned()))?;
        let percentile = limit.percentile(&parts, prefixes, identities);
        let plan = plan.filter(|plan| !plan.is_empty());
        Ok(NamedCharge { limit: index, key, percentile, texts, plan, units, requested: None })
    }
}
