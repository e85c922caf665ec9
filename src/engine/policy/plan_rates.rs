//! Plans that are rates, such as `250/min`: the numbers of a limit that a token states.
//!
//! The texts of rates are read by `config`. Here each such plan gets a rule when a request first has it.

use std::sync::{Arc, OnceLock};

use super::written_rule::WrittenRule;
use crate::base::opaque::opaque_debug;
use crate::base::split_mix::mix;
use crate::engine::limit::{Algorithm, Scale};

/// The most plans for which a limit makes rules. A request with another one has the usual rule.
const PLANS_MAX: usize = 1024;
/// The longest plan that is a rate, in bytes.
const PLAN_BYTES_MAX: usize = 32;

/// Reads a plan as a part of the usual rate. `None` if the plan is not a rate.
pub type ReadRate = dyn Fn(&str) -> Option<Scale> + Send + Sync;

/// The rules of plans that are rates.
pub struct PlanRates {
    read: Arc<ReadRate>,
    /// The rules, each at the first free index from the hash of its plan. A rule stays until the policy is replaced.
    rules: OnceLock<Box<[OnceLock<PlanRate>]>>,
}

/// The rule of a plan that is a rate.
#[derive(Debug)]
pub(super) struct PlanRate {
    pub(super) plan: Box<str>,
    pub(super) rule: Algorithm,
    pub(super) written: WrittenRule,
}

impl PlanRates {
    /// No rules, for plans that `read` reads.
    pub fn new(read: Arc<ReadRate>) -> Self {
        Self { read, rules: OnceLock::new() }
    }

    /// The index of the rule of `plan`. A plan that is new is read, and gets a rule from the usual one. `None` if the plan is
    /// no rate, if the limit cannot count so much, or if it has too many rules.
    pub(super) fn index_of(&self, plan: &str, usual: (&Algorithm, &WrittenRule)) -> Option<u16> {
        if plan.len() > PLAN_BYTES_MAX || !plan.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let rules = self.rules.get_or_init(|| (0..PLANS_MAX).map(|_| OnceLock::new()).collect());
        let first = plan.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte))) % PLANS_MAX as u64;
        let first = usize::try_from(first).unwrap_or_default();
        for index in (first..PLANS_MAX).chain(0..first) {
            let known = if let Some(known) = rules[index].get() {
                known
            } else {
                let scale = (self.read)(plan)?;
                let (rule, written) = (usual.0.scaled(scale).ok()?, usual.1.scaled(scale));
                // Another thread may have been faster, with another plan.
                rules[index].get_or_init(|| PlanRate { plan: plan.into(), rule, written })
            };
            if *known.plan == *plan {
                return u16::try_from(index).ok();
            }
        }
        None
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

opaque_debug!(PlanRates);
