//! Charges that a service makes itself, for work that no request of the client's shows.
//!
//! A charge is made whether there is room or not, down to the limit's largest debt; nobody is refused by it. Several
//! are not one: each stands for itself.

use super::named::{KeyError, texts};
use super::{Gate, Live};
use crate::limit::Decision;
use crate::time::Timestamp;

/// Units of one charge at most: the largest whole number that every reader of JSON understands (RFC 8259, section 6).
pub const UNITS_MAX: u64 = (1 << 53) - 1;

/// What is to be charged to whom.
#[derive(Clone, Copy, Debug)]
pub struct Spend<'a> {
    /// The limit's name.
    pub limit: &'a str,
    /// The parts of the limit's key by their names, as the configuration writes them, in any order.
    pub key: &'a [(String, String)],
    /// The plan by whose numbers the limit goes, if the client has one.
    pub plan: Option<&'a str>,
    /// How much: from 1 to [`UNITS_MAX`].
    pub units: u64,
}

/// What a key has after a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Whole units left; `None` if the key has no limit, so that nothing was charged.
    pub remaining: Option<u64>,
    /// Units charged beyond the limit and not yet paid; nothing remains while there are any.
    pub debt: u64,
    /// Nanoseconds until the key has everything again; `None` if nobody knows.
    pub reset_after_ns: Option<u64>,
}

/// Why nothing is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpendError {
    /// Nobody has such a key.
    Key(KeyError),
    /// The units are out of range.
    Units,
    /// The limit counts requests in flight: what is charged to it would never come back.
    InFlight,
}

impl std::fmt::Display for SpendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(error) => error.fmt(f),
            Self::Units => write!(f, "units: a whole number from 1 to {UNITS_MAX}"),
            Self::InFlight => f.write_str("this limit counts requests in flight, and cannot be charged"),
        }
    }
}

impl std::error::Error for SpendError {}

impl From<KeyError> for SpendError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl Gate {
    /// Charges a key without a request. A limit in shadow mode is charged like any other, and one that is off too.
    ///
    /// # Errors
    /// What is wrong with `spend`; nothing is charged then.
    pub fn spend(&self, live: &Live, spend: Spend<'_>, now: Timestamp) -> Result<Balance, SpendError> {
        let policy = &live.policy;
        let applied = policy.named(spend.limit).ok_or(KeyError::UnknownLimit)?;
        let (index, limit) = (applied.index, applied.limit);
        let state = &live.states[index];
        let extra = i64::try_from(spend.units).ok().filter(|_| (1..=UNITS_MAX).contains(&spend.units));
        let extra = extra.ok_or(SpendError::Units)?;
        let texts = texts(live, index, spend.key)?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let key = self.secret.key_of_texts(&limit.key, &texts, policy.client_ip.ipv6_prefix);
        let key = key.ok_or_else(|| KeyError::BadPart("ip".to_owned()))?;
        let Some(rule) = limit.allowed.rule(live.variant(&applied, key, spend.plan)) else {
            return Ok(Balance { remaining: None, debt: 0, reset_after_ns: Some(0) });
        };
        if rule.is_released() {
            return Err(SpendError::InFlight);
        }
        let settle = limit.after.as_ref().and_then(|after| after.settle.as_ref());
        let max_debt = settle.map_or(0, |settle| settle.max_debt);
        state.table.settle(key, rule, extra, max_debt, now);
        state.tell(key, rule, extra);
        let Decision { remaining, reset_after_ns, .. } = state.table.peek(key, rule, 0, now);
        let debt = state.table.over(key, rule, now);
        let reset_after_ns = Some(reset_after_ns).filter(|ns| *ns != Decision::UNKNOWN_NS);
        Ok(Balance { remaining: Some(remaining), debt, reset_after_ns })
    }
}
