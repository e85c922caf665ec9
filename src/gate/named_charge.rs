//! Charges to limits that a caller names, without a request: their keys.
//!
//! Not here: the decision about them (`named_verdict`), and charges that are never refused (`spend`).

use super::lookup::{KeyError, normal, texts};
use super::state::{Gate, Live};
use crate::limit::Key;

/// A charge to a key of a limit. It belongs to the [`Live`] that it was made for.
#[derive(Clone, Debug)]
pub struct NamedCharge {
    /// The index of the limit.
    pub(super) limit: usize,
    pub(super) key: Key,
    /// The texts of the key's parts.
    pub(super) texts: Vec<String>,
    /// The caller's plan, if it has one.
    pub(super) plan: Option<String>,
    /// Units; 0 looks.
    pub(super) units: u64,
}

/// Why a limit cannot be charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargeError {
    /// No request can have the key.
    Key(KeyError),
    /// The limit counts requests in flight, so the units would never come back.
    InFlight,
}

impl std::fmt::Display for ChargeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(error) => error.fmt(f),
            Self::InFlight => f.write_str("this limit counts requests in flight, and cannot be charged"),
        }
    }
}

impl std::error::Error for ChargeError {}

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
        let text = |(part, text): (_, String)| {
            normal(live, index, part, &text).ok_or_else(|| KeyError::BadPart(live.policy.part_name(part).into_owned()))
        };
        let texts = limit.key.iter().zip(parts).map(text).collect::<Result<_, _>>()?;
        self.charge_of_texts(live, index, texts, plan, units)
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
        let key = self.secret.key_of_texts(&limit.key, &parts, live.policy.client_ip.ipv6_prefix);
        let key = key.ok_or_else(|| KeyError::BadPart("ip".to_owned()))?;
        Ok(NamedCharge { limit: index, key, texts, plan: plan.filter(|plan| !plan.is_empty()), units })
    }
}
