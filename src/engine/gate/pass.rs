//! A request that its limits admit, and its charges until they are committed or given back.

use http::StatusCode;
use smallvec::SmallVec;

use super::account::Account;
use super::adaptation::ServiceOutcome;
use super::budget::{Budget, Budgets};
use super::check::{Check, Checked, Checks};
use super::delta::units;
use super::settle::{Bill, BillItem, Terms};
use super::shadow::{self, shadowed};
use super::standing::Standing;
use super::state::LimitState;
use crate::base::fields::Fields;
use crate::base::telemetry::{LimitDecision, RequestRecord};
use crate::base::time::Timestamp;
use crate::engine::limit::tightness::Tightness;
use crate::engine::limit::{Algorithm, Decision, Key};
use crate::engine::policy::Mode;
use crate::engine::store::{Batch, Charge, Receipt};

/// A request that may be forwarded.
#[derive(Debug, Default)]
pub struct Pass<'l> {
    /// The client's standing with the tightest limit, if any applies.
    pub standing: Option<Standing<'l>>,
    /// The request's charges; given back on drop unless they are committed.
    pub charged: Charged<'l>,
    /// What is known of a request that has waited. Boxed, so that few instructions drop a pass without it.
    waited: Option<Box<Waited<'l>>>,
}

/// What cannot be found in the charges of a request that has waited.
#[derive(Debug)]
struct Waited<'l> {
    /// The limits in shadow mode that would deny it, with commas.
    shadow_limits: Option<Box<str>>,
    /// The budgets that the answer lists.
    budgets: Budgets<'l>,
}

/// The charges of a request. They are given back on drop unless they are committed.
#[derive(Debug, Default)]
pub struct Charged<'l> {
    /// The decided limits, and most charges.
    pub(super) checks: Checks<'l>,
    /// Charges that are settled later, and those of a request that waited. Boxed, because few requests have any.
    open: Option<Box<OpenCharges>>,
    is_committed: bool,
    /// Whether the charges were reported. Charges of a request that was not decided yet were not.
    is_reported: bool,
}

/// Charges that leave less of the capacity are kept to explain refusals, and those that are settled later.
const LOGGED_PERCENT: u64 = 50;

type OpenCharges = SmallVec<[OpenCharge; 2]>;

/// A charge that is independent of its batch.
#[derive(Debug)]
struct OpenCharge {
    account: Account,
    receipt: Receipt,
    /// How the charge is settled, if it is.
    terms: Option<Box<Terms>>,
    /// The cost of a charge whose standing clients see.
    shown: Option<u64>,
}

impl<'l> Pass<'l> {
    /// The budgets that the answer lists.
    pub fn budgets(&self) -> Budgets<'l> {
        self.waited.as_ref().map_or_else(|| listed(&self.charged.checks), |waited| waited.budgets.clone())
    }

    /// Completes the pass of a request whose checks have been admitted at `now`.
    #[inline]
    pub(super) fn complete(&mut self, now: Timestamp) {
        self.standing = record(&self.charged.checks, now);
        self.charged.is_reported = true;
        let is_settled = |check: &Check<'_>| check.check.applied.limit.after.is_some();
        let checks = self.charged.checks.charges();
        if checks.iter().any(|check| !check.is_plain() || is_settled(check)) {
            // The answer shows the standing with all limits after a settlement.
            let all = checks.len() > 1 && checks.iter().any(is_settled);
            self.charged.open = open(&mut self.charged.checks, all, now);
        }
    }

    /// The pass of a request that waited. It outlives the rules of `batch`, which was admitted at `now`.
    pub(super) fn after_wait<C: Checked<'l>>(mut batch: Batch<'_, C>, now: Timestamp) -> Self {
        let (standing, budgets) = (record(&batch, now), listed(&batch));
        let open = open(&mut batch, true, now);
        let charged = Charged { checks: Checks::default(), open, is_committed: false, is_reported: true };
        let waited = Waited { shadow_limits: shadow::denying(&batch), budgets };
        Self { standing, charged, waited: Some(Box::new(waited)) }
    }

    /// Notes that the service failed to answer the request, which gets this status from Weir. Charges that stay are settled by
    /// it, as by that of an answer. Sets the costs in `record`.
    pub fn failed(&mut self, status: StatusCode, record: Option<&mut RequestRecord>) {
        let Some(mut bill) = self.charged.bill() else { return self.charged.failed() };
        if let Some(settled) = bill.answered((status.as_u16(), Fields::NONE), None) {
            let budgets = self.budgets();
            let mut names = self.standing.iter().map(|own| own.limit).chain(budgets.iter().map(Budget::limit));
            if let Some(limit) = names.find(|name| *name == settled.limit) {
                self.standing = Some(settled.of_limit(limit));
            }
        }
        bill.end_unanswered(record);
    }

    /// Adds the limits in shadow mode that would deny the request at its turn to its record, if it has waited.
    pub fn describe_turn(&self, record: &mut RequestRecord) {
        if let Some(names) = self.waited.as_ref().and_then(|waited| waited.shadow_limits.as_ref()) {
            shadow::add_names(record, names);
        }
    }
}

/// The budgets of a batch that answers list.
pub(super) fn listed<'l, C: Checked<'l>>(batch: &Batch<'_, C>) -> Budgets<'l> {
    batch.charges().iter().filter_map(Budget::of).collect()
}

/// Counts the decisions of an admitted batch, and reports its charges. Returns the standing with the tightest limit.
#[inline]
pub(super) fn record<'l, C: Checked<'l>>(batch: &Batch<'_, C>, now: Timestamp) -> Option<Standing<'l>> {
    let charges = batch.charges();
    if charges.first().is_some_and(|charge| charge.check.state().listeners.is_on()) {
        report(charges, now);
    }
    let mut tightest: Option<&Charge<'_, C>> = None;
    for charge in charges {
        let state = charge.check.state();
        let Decision { remaining, .. } = charge.decision();
        let percent = charge.rule.percent(remaining);
        if !charge.is_slowed() {
            let decided = if charge.is_charged() { LimitDecision::Admitted } else { shadow_decision(charge) };
            state.metrics.cells.decided(decided, percent);
        }
        if charge.is_charged() && (percent < LOGGED_PERCENT || charge.check.limit().after.is_some()) {
            state.refusal_log.charged(&state.name, charge.key, units(charge.cost), now);
        }
        if charge.is_charged()
            && (charge.enforced || charge.check.mode() == Mode::Enforce)
            && tightest.is_none_or(|other| is_tighter(charge, other, now))
        {
            tightest = Some(charge);
        }
    }
    tightest.map(|charge| standing(charge, now))
}

/// Reports the charges to a successor and to other replicas. Delayed ones were reported when they were made.
#[inline(never)]
fn report<'l, C: Checked<'l>>(charges: &[Charge<'_, C>], now: Timestamp) {
    for charge in charges.iter().filter(|charge| charge.is_charged() && !charge.is_slowed()) {
        charge.check.state().report(charge.key, charge.rule, units(charge.cost), now);
    }
}

/// What a limit in shadow mode, which does not admit the request, would have done to it.
#[cold]
fn shadow_decision<'l, C: Checked<'l>>(charge: &Charge<'_, C>) -> LimitDecision {
    shadowed(charge.check.limit(), charge.rule, &charge.decision()).unwrap_or(LimitDecision::ShadowRefused)
}

#[inline]
fn is_tighter<'l, C: Checked<'l>>(one: &Charge<'_, C>, other: &Charge<'_, C>, now: Timestamp) -> bool {
    let is_plain = |charge: &Charge<'_, C>| {
        charge.decision().remaining >= charge.cost.max(1) && !matches!(charge.rule, Algorithm::Several(_))
    };
    if is_plain(one) && is_plain(other) {
        let tightness = |charge: &Charge<'_, C>| Tightness {
            denied: None,
            remaining: charge.decision().remaining,
            capacity: charge.rule.capacity(),
        };
        return tightness(one).is_tighter(tightness(other));
    }
    standing(one, now).is_tighter(&standing(other, now))
}

/// The client's standing with a limit that is charged.
#[inline]
fn standing<'l, C: Checked<'l>>(charge: &Charge<'_, C>, now: Timestamp) -> Standing<'l> {
    let limit = &charge.check.state().name;
    if charge.is_slowed() {
        // A refund would lower a debt, which the client does not see as units.
        let free = Charge::new(charge.table(), charge.key, charge.rule, 0, true, ());
        return Standing::new(limit, &free, &charge.decision(), now);
    }
    Standing::new(limit, charge, &charge.decision(), now)
}

/// Takes the charges that are settled later out of `batch`; with `all`, every charge.
#[cold]
fn open<'l, C: Checked<'l>>(batch: &mut Batch<'_, C>, all: bool, now: Timestamp) -> Option<Box<OpenCharges>> {
    let mut open: Option<Box<OpenCharges>> = None;
    let is_delayed = batch.charges().iter().any(Charge::is_slowed);
    for index in 0..batch.charges().len() {
        let Some(charge) = batch.charges().get(index).filter(|charge| charge.is_charged()) else { continue };
        let mut terms = Terms::of(charge, now);
        let shown = (charge.check.mode() == Mode::Enforce).then_some(charge.cost);
        if all || terms.is_some() {
            let account = Account::of(charge, now);
            if let Some(terms) = terms.as_mut().filter(|_| !is_delayed) {
                terms.begin(&account, now);
            }
            if let Some(receipt) = batch.take_receipt(index) {
                open.get_or_insert_default().push(OpenCharge { account, receipt, terms, shown });
            }
        }
    }
    open
}

/// Wakes the front of each queue whose key was charged for a moment: it may have seen that charge, and overslept.
pub(super) fn wake_undone<'l, C: Checked<'l>>(batch: &Batch<'_, C>) {
    for charge in batch.charges().iter().filter(|charge| charge.is_undone()) {
        charge.check.state().wake_front(charge.key, charge.rule);
    }
}

impl Charged<'_> {
    /// Sets whether the charges stay. They do as soon as bytes of the request may have reached the upstream.
    pub fn commit(&mut self, is_committed: bool) {
        self.is_committed = is_committed;
    }

    /// Whether the charges stay.
    pub fn is_committed(&self) -> bool {
        self.is_committed
    }

    /// Notes that the delay of the request has ended.
    pub(super) fn begin(&mut self, now: Timestamp) {
        for OpenCharge { account, terms, .. } in self.open.iter_mut().flat_map(|open| open.iter_mut()) {
            if let Some(terms) = terms {
                terms.begin(account, now);
            }
        }
    }

    /// Notes that the service failed to answer the request, whose charges are given back.
    fn failed(&self) {
        for OpenCharge { account, terms, .. } in self.open.iter().flat_map(|open| open.iter()) {
            if let Some(terms) = terms {
                terms.adapt(account, ServiceOutcome::Failed, None);
            }
        }
    }

    /// Makes the charges final for a request whose answer Weir does not see: they stay as they were made. Requests in
    /// flight are released at once, because their end would not be seen.
    pub fn close(&mut self) {
        self.is_committed = true;
        if let Some(mut bill) = self.bill() {
            bill.close();
        }
    }

    /// Whether a charge is settled by numbers of the answer's body.
    #[inline]
    pub fn reads_body(&self) -> bool {
        let reads = |open: &OpenCharge| open.terms.as_ref().is_some_and(|terms| terms.body_units().is_some());
        self.open.as_ref().is_some_and(|open| open.iter().any(reads))
    }

    /// The bill of the charges that are settled by the answer or at its end. `None` if there are none, or the charges
    /// are not committed.
    #[inline]
    pub fn bill(&mut self) -> Option<Bill> {
        if !self.is_committed {
            return None;
        }
        self.open.as_ref()?.iter().find(|open| open.terms.is_some())?;
        let mut others = Vec::new();
        let item = |OpenCharge { account, receipt, terms, shown }: OpenCharge| {
            let Some(terms) = terms else {
                others.extend(shown.map(|cost| (account, cost)));
                return None;
            };
            Some(BillItem::new(account, receipt, *terms))
        };
        let items = self.open.take()?.into_iter().filter_map(item).collect();
        Bill::of(items, others)
    }

    /// Ends the charges of a request that the service did not answer: they are settled if they stay, else given back. Sets
    /// the costs in `record`.
    #[inline]
    pub fn end(&mut self, record: Option<&mut RequestRecord>) {
        if self.is_committed {
            if let Some(mut bill) = self.bill() {
                bill.end_unanswered(record);
            }
        } else if !(self.checks.is_empty() && self.open.is_none()) {
            self.undo(record);
        }
    }

    /// Gives all charges back, and wakes the requests that wait for them.
    #[cold]
    fn undo(&mut self, mut record: Option<&mut RequestRecord>) {
        let mut is_free = |state: &LimitState, key: Key| {
            if let Some(record) = &mut record {
                record.settled(&state.name, [key.first, key.second], 0);
            }
        };
        let mut checks = std::mem::take(&mut self.checks);
        if let Some(check) = checks.charges().first() {
            let (now, is_reported) = (check.check.state.clock.now(), self.is_reported);
            checks.undo_each(now, |check, returned| {
                is_free(check.check.state, check.key);
                if is_reported {
                    check.check.state.report_returned(check.key, check.rule, &returned, now);
                }
            });
            wake_undone(&checks);
        }
        for OpenCharge { account, receipt, terms, .. } in self.open.take().into_iter().flat_map(|open| *open) {
            is_free(&account.state, account.key);
            account.give_back(&receipt, terms.map_or(0, |mut terms| terms.stop()));
        }
    }
}

impl Drop for Charged<'_> {
    #[inline]
    fn drop(&mut self) {
        self.end(None);
    }
}
