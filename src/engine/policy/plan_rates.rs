//! Plans that are rates, such as `250/min`: the numbers of a limit that a token states.
//!
//! The texts of rates are read by `config`. Here each rate gets a rule when a request first has it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::written_rule::WrittenRule;
use crate::base::split_mix::mix;
use crate::engine::limit::{Algorithm, Scale};

/// The most rates for which a limit makes rules. A request with another one has the usual rule.
const RATES_MAX: usize = 1024;
/// The longest text of a rate, in bytes.
const TEXT_BYTES_MAX: usize = 32;

/// Reads a plan as a part of the usual rate. `None` if the plan is not a rate.
pub type ReadRate = dyn Fn(&str) -> Option<Scale> + Send + Sync;

/// The rules of plans that are rates.
pub struct PlanRates {
    read: Arc<ReadRate>,
    /// The rules, each at the first free index from the hash of its scale. A rule stays until the policy is replaced.
    rules: OnceLock<Box<[OnceLock<PlanRate>]>>,
}

/// The rule of a plan that is a rate.
#[derive(Debug)]
pub(super) struct PlanRate {
    scale: Scale,
    /// The plan that had the rate first.
    pub(super) plan: Box<str>,
    pub(super) rule: Algorithm,
    pub(super) written: WrittenRule,
}

impl PlanRates {
    /// No rules, for plans that `read` reads.
    pub fn new(read: Arc<ReadRate>) -> Self {
        Self { read, rules: OnceLock::new() }
    }

    /// The index of the rule of `plan`, made from the usual rule. `None` if the plan is no rate, if the limit cannot count
    /// so much, or if it has too many rules.
    pub(super) fn index_of(&self, plan: &str, usual: (&Algorithm, &WrittenRule)) -> Option<u16> {
        let is_like_one = plan.len() <= TEXT_BYTES_MAX && plan.starts_with(|first: char| first.is_ascii_digit());
        let scale = if is_like_one { (self.read)(plan)? } else { return None };
        let rule = usual.0.scaled(scale).ok()?;
        let rules = self.rules.get_or_init(|| (0..RATES_MAX).map(|_| OnceLock::new()).collect());
        let hash = mix(mix(scale.numerator) ^ scale.denominator);
        let first = usize::try_from(hash % RATES_MAX as u64).unwrap_or_default();
        let make = || PlanRate { scale, plan: plan.into(), rule: rule.clone(), written: usual.1.scaled(scale) };
        let mut indexes = (first..RATES_MAX).chain(0..first);
        let index = indexes.find(|index| rules[*index].get_or_init(make).scale == scale)?;
        u16::try_from(index).ok()
    }

    /// The rule at an index.
    #[inline]
    pub(super) fn get(&self, index: u16) -> Option<&PlanRate> {
        self.rules.get()?.get(usize::from(index))?.get()
    }
}

/// Without rules, because the usual rule of the copy may be another one.
impl Clone for PlanRates {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.read))
    }
}

impl fmt::Debug for PlanRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanRates").field("rules", &self.rules).finish_non_exhaustive()
    }
}
