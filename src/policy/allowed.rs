//! What a limit allows whom: its usual rule, that of a plan, or that of one key.

use crate::limit::Algorithm;

/// Which of a limit's rules a request goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// The limit's own.
    #[default]
    Usual,
    /// That of the plan at this place of [`Allowed::plans`].
    Plan(u16),
    /// That of the key at this place of [`Allowed::overrides`].
    Override(u16),
}

/// How much a limit allows.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// To everyone else.
    pub usual: Algorithm,
    /// To those who have a plan, by its name. `None` is no limit at all.
    pub plans: Vec<(Box<str>, Option<Algorithm>)>,
    /// To single keys, by their text; before any plan.
    pub overrides: Vec<(Box<str>, Option<Algorithm>)>,
    /// From this place of `overrides` on they were set at run time.
    pub set_from: usize,
}

impl Allowed {
    /// The same to everyone.
    pub fn to_all(usual: Algorithm) -> Self {
        Self { usual, plans: Vec::new(), overrides: Vec::new(), set_from: usize::MAX }
    }

    /// The rule of a variant; `None` is no limit at all. A variant that is gone has become the usual one.
    #[inline]
    pub fn rule(&self, variant: Variant) -> Option<&Algorithm> {
        let special = match variant {
            Variant::Usual => return Some(&self.usual),
            Variant::Plan(place) => self.plans.get(usize::from(place)),
            Variant::Override(place) => self.overrides.get(usize::from(place)),
        };
        special.map_or(Some(&self.usual), |(_, rule)| rule.as_ref())
    }

    /// Whether a variant is that of a key for which it was set at run time.
    pub fn is_set(&self, variant: Variant) -> bool {
        matches!(variant, Variant::Override(place) if usize::from(place) >= self.set_from)
    }

    /// Whether it is not the same for everyone.
    pub fn is_special(&self) -> bool {
        !(self.plans.is_empty() && self.overrides.is_empty())
    }

    /// The variant of a plan; the usual one if the limit does not know it.
    pub fn plan(&self, name: &str) -> Variant {
        let place = self.plans.iter().position(|(known, _)| **known == *name);
        place.and_then(|place| u16::try_from(place).ok()).map_or(Variant::Usual, Variant::Plan)
    }
}
