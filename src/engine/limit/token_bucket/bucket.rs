//! A token bucket with the lost time of its refunds, for maps that have room for it; and the leaky bucket.
//!
//! A leaky bucket that polices is such a bucket too: a request that would make it overflow is refused. One that shapes
//! decides by [`shape`].

use super::{Receipt, State};
use crate::base::time::Timestamp;
use crate::engine::limit::late::units::LateUnits;
use crate::engine::limit::lost_time::LostTime;
use crate::engine::limit::packed::{Packed, Unpacker};
use crate::engine::limit::portable::{Charged, Numbers, Portable};
use crate::engine::limit::state;
use crate::engine::limit::{Decision, Quota, Retry};

/// The state of one key: 48 bytes. It decides as its [`State`] alone, and refunds lose less. Under a quota that
/// [shapes](Quota::shapes) requests pass one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    state: State,
    lost: LostTime,
    /// Changes of the interval; wraps.
    changes: u32,
}

/// A bucket of which no more than this part of its capacity is left is at its limit.
const AT_LIMIT_PARTS: u64 = 8;

impl From<State> for Bucket {
    fn from(state: State) -> Self {
        Self { state, lost: LostTime::default(), changes: 0 }
    }
}

impl Receipt {
    /// The units of the charge.
    pub fn cost(&self) -> u64 {
        self.cost
    }
}

impl state::Receipt for Receipt {
    /// Units that were charged since leave the bucket full later by their time at least, so it proves them too.
    fn part(&self, units: u64, grown: u64) -> (Self, u64) {
        let (cost, grown_ns) = (self.cost.saturating_add(grown), self.interval.interval_ns().saturating_mul(grown));
        (Self { cost: units.min(cost), full_at: self.full_at.saturating_add_ns(grown_ns), ..*self }, 0)
    }
}

impl State {
    /// Gives `units` back that another replica gave back of its charges. `lose` returns the nanoseconds that are lost of the
    /// at most `risk_ns` that may be.
    pub fn take_back(
        &mut self,
        quota: &Quota,
        units: u64,
        (risk_ns, lose): (u64, impl FnOnce(u64) -> u64),
        now: Timestamp,
    ) {
        self.adopt(quota, now);
        if self.tat <= now {
            return;
        }
        let charged_ns = quota.interval_ns().saturating_mul(units);
        let lost_ns = match risk_ns.min(charged_ns) {
            0 => 0,
            most_ns => lose(most_ns).min(most_ns),
        };
        let given_ns = charged_ns - lost_ns;
        // A receipt must not give these units back again.
        self.count_refunded(given_ns.div_ceil(quota.interval_ns().max(1)));
        self.tat = self.tat.saturating_sub_ns(given_ns).max(now);
    }

    /// Charges units late. Time has given back what comes back in the age of a charge, unless others have taken it: the
    /// bucket is at its limit.
    pub(super) fn settle_late(&mut self, quota: &Quota, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        let capacity_ns = quota.capacity_ns();
        let is_at_limit = self.deficit_ns(quota, now) >= capacity_ns - capacity_ns / AT_LIMIT_PARTS;
        for LateUnits { units, age_ns } in late {
            if *units <= 0 {
                state::State::settle(self, quota, *units, max_debt, now);
                continue;
            }
            self.adopt(quota, now);
            let (deficit_ns, interval_ns) = (self.deficit_ns(quota, now), quota.interval_ns());
            let most_ns = capacity_ns.saturating_add(max_debt.saturating_mul(interval_ns)).max(deficit_ns);
            let back_ns = if is_at_limit { 0 } else { *age_ns };
            let charged_ns = units.unsigned_abs().saturating_mul(interval_ns).saturating_sub(back_ns);
            self.fill_until(now.saturating_add_ns(deficit_ns.saturating_add(charged_ns).min(most_ns)), now);
        }
    }
}

impl Bucket {
    /// Gives `units` back that another replica gave back of its charges. It has lost their time already.
    pub(in crate::engine::limit) fn take_back(&mut self, quota: &Quota, units: u64, now: Timestamp) {
        self.state_to_charge(quota, now).take_back(quota, units, (0, |_| 0), now);
    }

    /// The state without the lost time.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The state under `quota`, to be charged. No receipt of an idle bucket gives anything back.
    pub(in crate::engine::limit) fn state_to_charge(&mut self, quota: &Quota, now: Timestamp) -> &mut State {
        state::State::adopt(self, quota, now);
        if self.state.idle_at() <= now {
            self.lost = LostTime::default();
        }
        &mut self.state
    }
}

impl state::State for Bucket {
    type Rule = Quota;
    type Receipt = Receipt;

    fn fresh(quota: &Quota) -> Self {
        State::fresh(quota).into()
    }

    fn is_of(&self, quota: &Quota) -> bool {
        self.state.is_under(quota)
    }

    /// No receipt from before a change is valid, so nothing of it is needed.
    fn adopt(&mut self, quota: &Quota, now: Timestamp) {
        if !self.state.is_under(quota) {
            self.state.adopt(quota, now);
            self.state.refunded = 0;
            self.lost = LostTime::default();
            self.changes = self.changes.wrapping_add(1);
        }
    }

    fn admit(&mut self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        if quota.shapes() {
            let state = self.state_to_charge(quota, now);
            let decision = shape(quota, state.deficit_ns(quota, now), cost);
            if decision.is_admitted() && cost > 0 {
                state.fill_until(decision.full_at(now), now);
            }
            return decision;
        }
        match cost {
            0 => self.peek(quota, 0, now),
            _ => self.state_to_charge(quota, now).admit(quota, cost, now),
        }
    }

    fn peek(&self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        if quota.shapes() {
            return shape(quota, self.state.deficit_ns(quota, now), cost);
        }
        self.state.peek(quota, cost, now)
    }

    /// Exact for all costs.
    fn wait(&self, quota: &Quota, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        if quota.shapes() && cost <= quota.burst() {
            let ahead_ns = ahead.saturating_mul(quota.interval_ns());
            return Retry::AfterNs(self.state.deficit_ns(quota, now).saturating_add(ahead_ns));
        }
        self.state.wait(quota, ahead, cost, now)
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> Receipt {
        Receipt { changes: self.changes, ..self.state.receipt(cost, now) }
    }

    fn refund(&mut self, quota: &Quota, receipt: &Receipt, now: Timestamp) -> u64 {
        let Self { state, lost, changes } = self;
        if receipt.changes != *changes {
            return 0;
        }
        state.give_back(receipt, quota.interval_ns(), |at, most_ns| lost.lose(at, most_ns, now), now)
    }

    fn settle(&mut self, quota: &Quota, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        let charged = self.state_to_charge(quota, now).settle(quota, extra, max_debt, now);
        if extra < 0 {
            self.lost.settled(now);
        }
        charged
    }

    fn settle_late(&mut self, quota: &Quota, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        self.state_to_charge(quota, now).settle_late(quota, late, max_debt, now);
        if late.iter().any(|late| late.units < 0) {
            self.lost.settled(now);
        }
    }

    fn over(&self, quota: &Quota, now: Timestamp) -> u64 {
        self.state.over(quota, now)
    }

    fn idle_at(&self) -> Timestamp {
        self.state.idle_at()
    }
}

/// Without the lost time: receipts do not outlive their process.
impl Packed for Bucket {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.state.pack(bytes);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        State::unpack(from).map(Self::from)
    }
}

/// Nanoseconds until full, and the units given back: the lower 32 bits. A store has a count for its receipts above them.
/// Without the lost time, which only a refund needs.
impl Portable for Bucket {
    fn export(&self, quota: &Quota, now: Timestamp, numbers: &mut Numbers) {
        numbers.extend([self.state.deficit_ns(quota, now), self.state.refunded.into()]);
    }

    fn import(quota: &Quota, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        let (deficit_ns, mark) = (numbers.next()?, numbers.next()?);
        let refunded = u32::try_from(mark & u64::from(u32::MAX)).ok()?;
        Some(State { refunded, ..State::filling(now.saturating_add_ns(deficit_ns), quota) }.into())
    }

    fn proof(quota: &Quota, numbers: &[u64], Charged { at_us, .. }: Charged) -> Option<(usize, [u64; 5])> {
        let [deficit_ns, mark, ..] = numbers else { return None };
        Some((2, [at_us, *deficit_ns, *mark, quota.interval_tag().interval_ns(), quota.interval_ns()]))
    }
}

/// Decides about one request at a time: a key has all units or none.
///
/// Requests pass one after another, each when the request before has run out. `burst` is the number of units that may queue.
/// Not here: the queue itself (gate). Bound: after a request of `c` units the next passes no sooner than `c * interval`
/// later. So in any span of length `w` all requests but the last take at most `w / interval` units. A request may pass up to
/// [`BACKDATE_NS_MAX`](crate::engine::limit::BACKDATE_NS_MAX) after its slot, which delays no request behind it.
fn shape(quota: &Quota, deficit_ns: u64, cost: u64) -> Decision {
    let taken_ns = cost.saturating_mul(quota.interval_ns());
    let (denied, deficit_ns) = match cost {
        0 => (None, deficit_ns),
        cost if cost > quota.burst() => (Some(Retry::Never), deficit_ns),
        _ if deficit_ns > 0 => (Some(Retry::AfterNs(deficit_ns)), deficit_ns),
        _ => (None, taken_ns),
    };
    Decision { denied, remaining: if deficit_ns == 0 { quota.burst() } else { 0 }, reset_after_ns: deficit_ns }
}
