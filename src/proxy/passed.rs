//! A request that its limits let pass, stage by stage.

use crate::gate::{Budgets, Pass, Refusal, Standing};
use crate::respond::Profiles;

/// A request that may be forwarded.
#[derive(Default)]
pub(super) struct Passed<'l> {
    arrival: Option<Standing<'l>>,
    /// What the answer lists of the arrival stage.
    arrival_budgets: Budgets<'l>,
    /// The stage in hand. It is the arrival stage first, so that a request that waits is smaller.
    pub(super) identified: Pass<'l>,
    pub(super) was_held: bool,
}

impl<'l> Passed<'l> {
    /// Makes room for the identified stage. The request has arrived, so its charges stay whatever becomes of it.
    pub(super) fn arrived(&mut self, profiles: Profiles) {
        self.identified.charged.commit(true);
        self.arrival_budgets = if profiles.ietf { self.identified.budgets() } else { Vec::new() };
        self.arrival = std::mem::take(&mut self.identified).standing;
    }

    /// The refusal of the stage in hand, with what the arrival stage charged.
    pub(super) fn refused(&mut self, refusal: Refusal<'l>) -> Refusal<'l> {
        refusal.charged_before(self.arrival, std::mem::take(&mut self.arrival_budgets))
    }

    /// The tightest limit of both stages, as it is after a refund if there will be one.
    pub(super) fn standing(&self) -> Option<Standing<'l>> {
        let is_kept = self.identified.charged.is_committed();
        let identified = self.identified.standing.map(|standing| if is_kept { standing } else { standing.refunded() });
        Standing::tightest(self.arrival, identified)
    }

    /// The budgets of both stages, if answers list them.
    pub(super) fn budgets(&self, profiles: Profiles) -> Budgets<'l> {
        if !profiles.ietf {
            return Vec::new();
        }
        let mut budgets = self.arrival_budgets.clone();
        budgets.append(&mut self.identified.budgets());
        budgets
    }
}
