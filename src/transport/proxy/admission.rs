//! The admission of a request by both stages of the gate.

use tokio::time::Instant;

use super::access_record::AccessRecord;
use super::answer::ResponseForm;
use crate::base::fields::Fields;
use crate::engine::gate::{Bill, Budgets, Pass, Refusal, Standing};
use crate::engine::policy::Policy;
use crate::transport::respond::Profiles;

/// A request until its response begins. Its charges end before its record, which gets their costs.
pub(super) struct RequestState<'m, 'l> {
    pub(super) form: ResponseForm,
    pub(super) record: AccessRecord<'m>,
    pub(super) admission: Admission<'l>,
}

impl<'m> RequestState<'m, '_> {
    /// A request whose head was not read yet.
    pub(super) fn new(record: AccessRecord<'m>) -> Self {
        Self { form: ResponseForm::unreadable(), record, admission: Admission::default() }
    }

    /// Ends the charges of a request that the service does not answer, and returns its record.
    pub(super) fn end(mut self) -> AccessRecord<'m> {
        self.end_charges();
        self.record.take()
    }

    fn end_charges(&mut self) {
        self.admission.identified.charged.end(self.record.for_gate());
    }
}

impl Drop for RequestState<'_, '_> {
    fn drop(&mut self) {
        self.end_charges();
    }
}

/// The admission of a request, stage by stage.
#[derive(Default)]
pub(super) struct Admission<'l> {
    arrival: Option<Standing<'l>>,
    /// The budgets of the arrival stage, for the response.
    arrival_budgets: Budgets<'l>,
    /// The current stage: first arrival, then identified. One field for both keeps waiting requests small.
    pub(super) identified: Pass<'l>,
    pub(super) was_held: bool,
    /// Bytes that were added to the body, or taken from it.
    pub(super) added_bytes: i64,
}

impl<'l> Admission<'l> {
    /// Ends the arrival stage. Its charges stay, whatever happens later.
    pub(super) fn finish_arrival(&mut self, profiles: Profiles) {
        self.identified.charged.commit(true);
        self.arrival_budgets = if profiles.ietf { self.identified.budgets() } else { Vec::new() };
        self.arrival = std::mem::take(&mut self.identified).standing;
    }

    /// The refusal of the current stage, with the charges of the arrival stage.
    pub(super) fn complete_refusal(&mut self, refusal: Refusal<'l>, policy: &Policy) -> Refusal<'l> {
        let jitter_percent = |limit: &str| policy.by_name(limit).map_or(0, |found| found.limit.jitter_percent);
        refusal.charged_before(self.arrival, std::mem::take(&mut self.arrival_budgets), jitter_percent)
    }

    /// The tightest limit of both stages, after the refund if there will be one.
    pub(super) fn standing(&self) -> Option<Standing<'l>> {
        let is_kept = self.identified.charged.is_committed();
        let identified = self.identified.standing.map(|standing| if is_kept { standing } else { standing.refunded() });
        Standing::tightest(self.arrival, identified)
    }

    /// The tightest limit of both stages, after `bill` is settled by the head of the answer to a request that got a connection
    /// at `sent`.
    pub(super) fn answered<'s>(
        &self,
        bill: Option<&'s mut Bill>,
        (status, fields): (u16, Fields<'_>),
        sent: Instant,
    ) -> Option<Standing<'s>>
    where
        'l: 's,
    {
        let settled = bill.and_then(|bill| bill.answered((status, fields), sent));
        settled.map_or_else(|| self.standing(), |settled| Standing::tightest(self.arrival, Some(settled)))
    }

    /// The budgets of both stages, if responses list them.
    pub(super) fn budgets(&self, profiles: Profiles) -> Budgets<'l> {
        if !(profiles.ietf || profiles.retirements) {
            return Vec::new();
        }
        let mut budgets = self.arrival_budgets.clone();
        budgets.append(&mut self.identified.budgets());
        budgets
    }
}
