//! Charges that a service makes itself, for work that no request of the client's shows.
//!
//! A charge is made whether there is room or not, down to the limit's largest debt; nobody is refused by it. Several
//! are not one: each stands for itself.

use std::net::IpAddr;

use super::{Gate, Live};
use crate::limit::Decision;
use crate::policy::key::KeyPart;
use crate::policy::{host, path};
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
    /// There is no limit of this name.
    UnknownLimit,
    /// The units are out of range.
    Units,
    /// The key lacks this part.
    MissingPart(String),
    /// The limit's key has no such part.
    UnknownPart(String),
    /// This part occurs twice.
    DoublePart(String),
    /// This part can have no such value.
    BadPart(String),
    /// The limit counts requests in flight: what is charged to it would never come back.
    InFlight,
}

impl std::fmt::Display for SpendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownLimit => f.write_str("there is no such limit"),
            Self::Units => write!(f, "units: a whole number from 1 to {UNITS_MAX}"),
            Self::MissingPart(part) => write!(f, "key: `{part}` is missing"),
            Self::UnknownPart(part) => write!(f, "key: this limit's key has no `{part}`"),
            Self::DoublePart(part) => write!(f, "key: `{part}` occurs twice"),
            Self::BadPart(part) => write!(f, "key: `{part}` cannot have this value"),
            Self::InFlight => f.write_str("this limit counts requests in flight, and cannot be charged"),
        }
    }
}

impl std::error::Error for SpendError {}

impl Gate {
    /// Charges a key without a request. A limit in shadow mode is charged like any other, and one that is off too.
    ///
    /// # Errors
    /// What is wrong with `spend`; nothing is charged then.
    pub fn spend(&self, live: &Live, spend: Spend<'_>, now: Timestamp) -> Result<Balance, SpendError> {
        let policy = &live.policy;
        let applied = policy.named(spend.limit).ok_or(SpendError::UnknownLimit)?;
        let (index, limit) = (applied.index, applied.limit);
        let state = &live.states[index];
        let extra = i64::try_from(spend.units).ok().filter(|_| (1..=UNITS_MAX).contains(&spend.units));
        let extra = extra.ok_or(SpendError::Units)?;
        let texts = texts(live, index, spend.key)?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let key = self.secret.key_of_texts(&limit.key, &texts, policy.client_ip.ipv6_prefix);
        let key = key.ok_or_else(|| SpendError::BadPart("ip".to_owned()))?;
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

/// The text of each part of the limit's key, in the key's order, as it is when a request has it.
fn texts(live: &Live, index: usize, named: &[(String, String)]) -> Result<Vec<String>, SpendError> {
    let limit = &live.policy.limits()[index];
    let mut used = vec![false; named.len()];
    let mut texts = Vec::with_capacity(limit.key.len());
    for part in &limit.key {
        let name = live.policy.part_name(part);
        let is_it = |given: &str| match part {
            KeyPart::Header(_) => given.eq_ignore_ascii_case(&name),
            _ => *given == *name,
        };
        let mut given = named.iter().enumerate().filter(|(_, (given, _))| is_it(given));
        let Some((place, (_, value))) = given.next() else { return Err(SpendError::MissingPart(name.into_owned())) };
        if given.next().is_some() {
            return Err(SpendError::DoublePart(name.into_owned()));
        }
        used[place] = true;
        let text = match part {
            KeyPart::Ip => value.parse::<IpAddr>().ok().map(|_| value.clone()),
            KeyPart::Path => path::normalise_as(value, live.policy.slashes).ok().map(std::borrow::Cow::into_owned),
            KeyPart::Route => is_route(live, index, value).then(|| value.clone()),
            KeyPart::Host => (value.is_empty() || host::is_authority(value)).then(|| host::host(value).into_owned()),
            _ => Some(value.clone()),
        };
        texts.push(text.ok_or_else(|| SpendError::BadPart(name.into_owned()))?);
    }
    match used.iter().zip(named).find(|(used, _)| !**used) {
        Some((_, (name, _))) => Err(SpendError::UnknownPart(name.clone())),
        None => Ok(texts),
    }
}

/// Whether a request can have been matched by this: a pattern of the limit, or nothing if it has none.
fn is_route(live: &Live, index: usize, text: &str) -> bool {
    let paths = &live.policy.limits()[index].matches.paths;
    if paths.is_empty() { text.is_empty() } else { paths.iter().any(|path| path.as_str() == text) }
}
