//! The amount that a limit allows: usually, for a plan, or for one key.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::limit::{Algorithm, Scale};

/// The rule of a limit that decides a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// The usual rule of the limit.
    #[default]
    Usual,
    /// The rule of the plan at this index of [`Allowed::plans`].
    Plan(u16),
    /// The rule of the key at this index of [`Allowed::overrides`].
    Override(u16),
}

/// The amount that a limit allows.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// The rule of all other requests.
    pub usual: Algorithm,
    /// The rules of plans, by name. `None` is unlimited.
    pub plans: Vec<(Box<str>, Option<Algorithm>)>,
    /// The rules of single keys, by their text; they take precedence over plans. `None` is unlimited.
    pub overrides: Vec<(Box<str>, Option<Algorithm>)>,
    /// The index in `overrides` from which on overrides were set at run time.
    pub set_from: usize,
    /// The plans that overrides assign: the name of the plan, by the text of the key.
    pub assigned: HashMap<Box<str>, Box<str>>,
    /// The rules as they are written.
    pub written: WrittenRules,
}

/// The rules of a limit as they are written, for operators.
#[derive(Clone, Debug, Default)]
pub struct WrittenRules {
    /// That of [`Allowed::usual`].
    pub usual: WrittenRule,
    /// Those of plans, by name.
    pub plans: HashMap<Box<str>, WrittenRule>,
    /// Those of overrides with numbers of their own, by the text of the key.
    pub overrides: HashMap<Box<str>, WrittenRule>,
}

impl WrittenRules {
    /// The rules times `scale`.
    pub(super) fn scaled(&self, Scale { numerator, denominator }: Scale) -> Self {
        #[expect(clippy::cast_precision_loss)] // six digits for the eye
        let factor = format!("x{:.6}", numerator as f64 / denominator as f64);
        let factor = factor.trim_end_matches('0').trim_end_matches('.');
        let scaled = |rule: &WrittenRule| {
            let rates = rule.rates.iter().map(|rate| format!("{factor} of {rate}").into()).collect();
            WrittenRule { rates, rest: rule.rest.clone() }
        };
        let all = |rules: &HashMap<Box<str>, WrittenRule>| {
            rules.iter().map(|(name, rule)| (name.clone(), scaled(rule))).collect()
        };
        Self { usual: scaled(&self.usual), plans: all(&self.plans), overrides: all(&self.overrides) }
    }
}

/// A rule as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenRule {
    /// The rates, such as `5/15min`. Empty if the rule was not written, but requested by a caller.
    pub rates: Box<[Box<str>]>,
    /// The rest, such as `, burst 20, token bucket`.
    pub rest: Box<str>,
}

impl WrittenRule {
    /// The rule as text, or one of its rates with the rest; `None` if nothing is written.
    pub fn text(&self, rate: Option<usize>) -> Option<String> {
        let rates = match rate.and_then(|rate| self.rates.get(rate..=rate)) {
            Some(rate) => rate.concat(),
            None => self.rates.join(" and "),
        };
        (!rates.is_empty()).then(|| format!("{rates}{}", self.rest))
    }
}

/// The rules of a policy before they are shared and scaled.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// The number of members; `None` if it is not known at run time, or does not matter.
    pub(super) members: Option<u64>,
    /// The rules of each limit that is split or scaled, for the whole fleet and as written, in the order of the limits.
    pub(super) whole: Arc<[Option<Allowed>]>,
}

impl Allowed {
    /// One rule for all requests.
    pub fn to_all(usual: Algorithm) -> Self {
        Self {
            usual,
            plans: Vec::new(),
            overrides: Vec::new(),
            set_from: usize::MAX,
            assigned: HashMap::new(),
            written: WrittenRules::default(),
        }
    }

    /// The rule of a variant; `None` is unlimited. An index that no longer exists selects the usual rule.
    #[inline]
    pub fn rule(&self, variant: Variant) -> Option<&Algorithm> {
        let special = match variant {
            Variant::Usual => return Some(&self.usual),
            Variant::Plan(place) => self.plans.get(usize::from(place)),
            Variant::Override(place) => self.overrides.get(usize::from(place)),
        };
        special.map_or(Some(&self.usual), |(_, rule)| rule.as_ref())
    }

    /// Whether a variant is an override that was set at run time.
    pub fn is_set(&self, variant: Variant) -> bool {
        matches!(variant, Variant::Override(place) if usize::from(place) >= self.set_from)
    }

    /// The plan that the override of a variant assigns to its key, if it does.
    pub fn assigned(&self, variant: Variant) -> Option<&str> {
        let Variant::Override(place) = variant else { return None };
        let (text, _) = self.overrides.get(usize::from(place))?;
        self.assigned.get(text).map(|plan| &**plan)
    }

    /// The rule of a variant as it is written; `None` if it is not.
    pub fn written(&self, variant: Variant) -> Option<&WrittenRule> {
        let WrittenRules { usual, plans, overrides } = &self.written;
        let name = match variant {
            Variant::Usual => return Some(usual),
            Variant::Plan(place) => return plans.get(&self.plans.get(usize::from(place))?.0),
            Variant::Override(place) => &self.overrides.get(usize::from(place))?.0,
        };
        self.assigned.get(name).map_or_else(|| overrides.get(name), |plan| plans.get(plan))
    }

    /// Whether the limit has rules for plans or for single keys.
    pub fn is_special(&self) -> bool {
        !(self.plans.is_empty() && self.overrides.is_empty())
    }

    /// The variant of a plan; the usual variant if the limit has no rule for the plan.
    pub fn plan(&self, name: &str) -> Variant {
        let place = self.plans.iter().position(|(known, _)| **known == *name);
        place.and_then(|place| u16::try_from(place).ok()).map_or(Variant::Usual, Variant::Plan)
    }
}
