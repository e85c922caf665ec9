//! The amount that a limit allows: usually, for a plan, or for one key.

use std::collections::HashMap;
use std::sync::Arc;

use super::plan_rates::{PlanRate, PlanRates};
use super::written_rule::WrittenRule;
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
    /// The rule of a plan that is a rate, at this index of [`Allowed::plan_rates`].
    PlanRate(u16),
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
    /// The rules of plans that are rates, if the limit has such rules.
    pub plan_rates: Option<PlanRates>,
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
    pub(super) fn scaled(&self, scale: Scale) -> Self {
        let scaled = |rule: &WrittenRule| rule.scaled(scale);
        let all = |rules: &HashMap<Box<str>, WrittenRule>| {
            rules.iter().map(|(name, rule)| (name.clone(), scaled(rule))).collect()
        };
        Self { usual: scaled(&self.usual), plans: all(&self.plans), overrides: all(&self.overrides) }
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
            plan_rates: None,
        }
    }

    /// The rule of a variant; `None` is unlimited. An index that no longer exists selects the usual rule.
    #[inline]
    pub fn rule(&self, variant: Variant) -> Option<&Algorithm> {
        let special = match variant {
            Variant::Usual => return Some(&self.usual),
            Variant::Plan(place) => self.plans.get(usize::from(place)),
            Variant::Override(place) => self.overrides.get(usize::from(place)),
            Variant::PlanRate(place) => return Some(self.plan_rate(place).map_or(&self.usual, |rate| &rate.rule)),
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
            Variant::PlanRate(place) => return self.plan_rate(place).map(|rate| &rate.written),
        };
        self.assigned.get(name).map_or_else(|| overrides.get(name), |plan| plans.get(plan))
    }

    fn plan_rate(&self, place: u16) -> Option<&PlanRate> {
        self.plan_rates.as_ref()?.get(place)
    }

    /// Whether the limit has rules for plans.
    pub fn has_plans(&self) -> bool {
        !self.plans.is_empty() || self.plan_rates.is_some()
    }

    /// Whether the limit has rules for plans or for single keys.
    pub fn is_special(&self) -> bool {
        self.has_plans() || !self.overrides.is_empty()
    }

    /// The variant of a plan; the usual variant if the limit has no rule for the plan.
    pub fn plan(&self, name: &str) -> Variant {
        let place = self.plans.iter().position(|(known, _)| **known == *name);
        let known = place.and_then(|place| u16::try_from(place).ok()).map(Variant::Plan);
        let usual = (&self.usual, &self.written.usual);
        let rate = || self.plan_rates.as_ref()?.index_of(name, usual).map(Variant::PlanRate);
        known.or_else(rate).unwrap_or_default()
    }

    /// The plan that a variant is the rule of; none if it is that of a limit or a key.
    pub fn plan_of(&self, variant: Variant) -> Option<&str> {
        match variant {
            Variant::Plan(place) => self.plans.get(usize::from(place)).map(|(name, _)| &**name),
            Variant::PlanRate(place) => self.plan_rate(place).map(|rate| &*rate.plan),
            Variant::Usual | Variant::Override(_) => None,
        }
    }
}
