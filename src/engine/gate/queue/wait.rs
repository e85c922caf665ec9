//! A request that waits for its turn.
//!
//! It stands in the queue of one key: of the limit with the longest wait. It sleeps until its slot, the instant at which
//! it could pass. At the front of the queue it tests all of its limits then, and is charged by all or by none.
//!
//! A request is charged as of its slot, not of its wake-up, which is always later. So late timers cost no capacity, and
//! waiters whose slots have passed are released one after another without a timer. If another limit stops the request
//! then, it moves to the queue of that limit and keeps its rank.
//!
//! If a store decides, only the front asks it, at the instant that the last answer named, and every ten seconds, because
//! another replica may have given units back. So waiters cost about one call for each admission, however many wait. A random
//! delay keeps the fronts of several replicas apart (`jitter.rs`). A store charges as of its own time, so what a late timer
//! costs is lost. What holds while the store says nothing (`on_failure`) decides about a request at its slot, and not before.
//!
//! A request that moves from the front of a queue to one that is no slower keeps its turn in the first queue too.
//! Otherwise two busy limits that come free in turn could starve it. It never keeps a turn while it waits in a slower
//! queue, so it delays others by no more than the refill time of their own budget. Turns are kept in order of rank, so
//! no two requests wait for each other. Dropping the request, at any time, leaves all queues.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::capacity::Reservation;
use super::delay::Delayed;
use super::jitter::spread_ns;
use super::locked::Turn;
use super::wait_queue::{Backlog, Rank, priority_of};
use crate::base::time::{Clock, Timestamp};
use crate::engine::gate::ask::{self, Decider};
use crate::engine::gate::bans;
use crate::engine::gate::check::{Checked, is_delayed, is_enforced};
use crate::engine::gate::pass::{Pass, wake_undone};
use crate::engine::gate::refusal::{Cause, Refusal};
use crate::engine::gate::state::{Gate, LimitState, Newest};
use crate::engine::limit::{BACKDATE_NS_MAX, Key, Retry};
use crate::engine::policy::{Limit, Mode, Stage, Variant};
use crate::engine::store::{Batch, Charge, LocalDecision};

/// A budget that a waiting request needs.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::gate) struct WaitItem<'l> {
    pub(in crate::engine::gate) state: &'l Arc<LimitState>,
    pub(in crate::engine::gate) key: Key,
    pub(in crate::engine::gate) cost: u64,
    /// As in `LimitCheck`.
    pub(in crate::engine::gate) percentile: u8,
}

/// A request in a queue.
#[derive(Debug)]
pub struct Waiting<'l> {
    pub(super) gate: &'l Gate,
    pub(super) items: SmallVec<[WaitItem<'l>; 4]>,
    /// The plan of the request, if a limit needs it.
    pub(super) plan: Option<Box<str>>,
    /// The index of the item in whose queue the request stands.
    pub(super) index: usize,
    /// Indices of items in whose queues the request keeps its turn meanwhile.
    pub(super) reserved_turns: SmallVec<[usize; 2]>,
    /// Indices of items whose queues it attends, for its shares of them.
    pub(super) attended: SmallVec<[usize; 2]>,
    pub(super) rank: Rank,
    pub(super) wake: Arc<Notify>,
    pub(super) reservation: RefCell<Option<Reservation<'l>>>,
    pub(super) since: Timestamp,
    pub(super) max_wait_ns: Option<u64>,
    /// The limit that made it wait first.
    pub(super) held_by: &'l Arc<LimitState>,
}

/// A limit of the newest policy, as a waiting request meets it.
#[derive(Clone, Copy)]
struct WaitCheck<'l, 'n> {
    /// The index of its item.
    index: usize,
    state: &'l Arc<LimitState>,
    limit: &'n Newest,
    variant: Variant,
    percentile: u8,
}

impl<'l> Checked<'l> for WaitCheck<'l, '_> {
    fn state(&self) -> &'l Arc<LimitState> {
        self.state
    }

    fn limit(&self) -> &Limit {
        self.limit
    }

    fn mode(&self) -> Mode {
        self.limit.mode_of(self.percentile)
    }

    fn variant(&self) -> Variant {
        self.variant
    }
}

/// Limits of the newest policy with the index of their items.
pub(super) type NewestLimits = SmallVec<[(usize, Arc<Newest>); 4]>;

/// The result of a test of all limits.
enum Test<'l> {
    // Boxed, because a waiting request has space for this.
    Admitted(Box<Pass<'l>>),
    Delayed(Box<Delayed<'l>>),
    Refused(Box<Refusal<'l>>),
    /// Blocked by the limit at `index`, until `until` or until requests before it have left its queue.
    /// The request may ask by so many nanoseconds later, because other replicas want the same units.
    Blocked {
        index: usize,
        until: Option<Timestamp>,
        spread_ns: u64,
        /// When the store that said so is asked again, because units may come back to it of which this process does not hear.
        asks_at: Option<Timestamp>,
    },
}

impl<'l> Waiting<'l> {
    /// The name of the limit that made the request wait.
    pub fn held_by(&self) -> &'l str {
        &self.held_by.name
    }

    /// Waits until the request passes or is refused. `decider` asks the stores of its limits.
    pub async fn wait<D: Decider>(mut self: Box<Self>, decider: &D) -> Result<Box<Pass<'l>>, Box<Refusal<'l>>> {
        let (mut now, mut has_slept) = (self.since, false);
        loop {
            if self.gate.is_closed() {
                return Err(Box::new(self.refuse(Cause::ShuttingDown, now)));
            }
            self.items.iter_mut().for_each(|item| item.state = item.state.current());
            let here = self.items[self.index];
            if let Turn::Later(timer) = here.state.queues.turn(here.key, self.rank, now) {
                let patience = self.patience();
                if patience.is_some_and(|patience| patience <= now) {
                    return Err(Box::new(self.refuse(Cause::WaitTooLong, now)));
                }
                if self.may_be_overtaken() {
                    self.leave_reserved_turns(now);
                }
                if self.attended.is_empty() {
                    self.attend(); // a reload may have given it shares
                }
                now = self.sleep(timer.into_iter().chain(patience).min()).await;
                continue;
            }
            let test = match self.test(now) {
                Some(test) => test,
                None => Box::pin(self.ask(decider, has_slept)).await, // large
            };
            match test {
                Test::Admitted(pass) => {
                    self.note_pass();
                    return Ok(pass);
                }
                Test::Delayed(delayed) => {
                    self.note_pass();
                    drop(self); // other requests get its turns now
                    return Box::pin(delayed.wait()).await; // rare
                }
                Test::Refused(refusal) => return Err(refusal),
                Test::Blocked { index, .. } if index != self.index => self.move_to(index),
                Test::Blocked { until, spread_ns, asks_at, .. } => {
                    let until = until.unwrap_or(now);
                    let deadline = self.deadline_before(until);
                    if deadline.is_some_and(|deadline| deadline <= now) {
                        return Err(Box::new(self.refuse(Cause::WaitTooLong, now)));
                    }
                    let last = self.max_wait_ns.map(|max_ns| self.since.saturating_add_ns(max_ns));
                    let until = deadline.unwrap_or_else(|| self.gate.jitter.later(until, spread_ns, last));
                    let wakes_at = asks_at.map_or(until, |asks_at| asks_at.min(until));
                    has_slept = wakes_at == until;
                    now = self.sleep(Some(wakes_at)).await;
                }
            }
        }
    }

    /// Sleeps until `timer` or until another request wakes it. Returns the instant at which it is awake.
    async fn sleep(&mut self, timer: Option<Timestamp>) -> Timestamp {
        match timer {
            Some(timer) => tokio::select! {
                () = sleep_until(self.gate.clock.instant(timer)) => {}
                () = self.wake.notified() => {}
            },
            None => self.wake.notified().await,
        }
        self.gate.clock.now()
    }

    /// Tests all limits as they are now and, if they admit, charges them. `None` if all admit as far as this process
    /// knows, and stores have to decide.
    fn test(&self, now: Timestamp) -> Option<Test<'l>> {
        let mut limits = self.newest_limits();
        let banned = limits.iter().filter_map(|(index, limit)| {
            let WaitItem { state, key, percentile, .. } = self.items[*index];
            Some((state, key, limit.refusals.banned, state.banned_ns(limit, limit.mode_of(percentile), key, now)?))
        });
        if let Some(refusal) = bans::refusal(banned, now) {
            return Some(Test::Refused(Box::new(refusal)));
        }
        self.retain_limited(&mut limits);
        if let Some(index) = self.before_in_queue(&limits) {
            return Some(Test::Blocked { index, until: None, spread_ns: 0, asks_at: None });
        }
        let mut batch = self.batch(&limits);
        // Peeks first: a charge that is undone at once may block other requests for a moment.
        if batch.peek(now) {
            if batch.has_remote() {
                return None;
            }
            let earliest = now.saturating_sub_ns(BACKDATE_NS_MAX).max(self.since);
            let as_of = batch.slot(earliest, now);
            if batch.admit(as_of) || as_of < now && batch.admit(now) {
                return Some(self.admitted(batch, as_of, now));
            }
            wake_undone(&batch);
        }
        Some(self.blocked(&batch, now))
    }

    /// Charges the limits of this process, and asks the stores of the others. A request that `has_slept` until its units were
    /// due finds them taken only by another replica.
    async fn ask<D: Decider>(&mut self, decider: &D, has_slept: bool) -> Test<'l> {
        let mut limits = self.newest_limits();
        self.retain_limited(&mut limits);
        let clock = self.gate.clock;
        let mut asked = Undone { batch: self.batch(&limits), clock };
        let is_admitted = match asked.batch.admit_local(clock.now()) {
            LocalDecision::Denied => false,
            LocalDecision::Admitted => true,
            LocalDecision::Open => ask::ask(&mut asked.batch, decider, true, clock).await,
        };
        let (batch, now) = (std::mem::take(&mut asked.batch), clock.now());
        if is_admitted {
            return self.admitted(batch, now, now);
        }
        wake_undone(&batch);
        if has_slept {
            self.items[self.index].state.queues.contend(self.items[self.index].key);
        }
        self.blocked(&batch, now)
    }

    /// The result for a batch that was admitted at `now` as of `as_of`.
    fn admitted(&self, mut batch: Batch<'_, WaitCheck<'l, '_>>, as_of: Timestamp, now: Timestamp) -> Test<'l> {
        if batch.charges().iter().any(is_delayed) {
            let is_arrival = batch.charges().iter().any(|charge| charge.check.limit.stage == Stage::Arrival);
            return match self.gate.slow_down(&mut batch, || self.reservation.borrow_mut().take(), now) {
                Ok(delay) => Test::Delayed(Box::new(delay.of(Pass::after_wait(batch, now), is_arrival))),
                Err(refusal) => Test::Refused(refusal),
            };
        }
        let mut pass = Box::new(Pass::after_wait(batch, now));
        pass.standing.iter_mut().for_each(|standing| standing.at = as_of);
        Test::Admitted(pass)
    }

    /// The result for a batch that was denied.
    fn blocked(&self, batch: &Batch<'_, WaitCheck<'l, '_>>, now: Timestamp) -> Test<'l> {
        let denials = || batch.charges().iter().filter(|charge| charge.enforced && !charge.is_admitted());
        let holds = |charge: &Charge<'_, WaitCheck<'l, '_>>| {
            let may_pass = charge.decision().denied != Some(Retry::Never) && !charge.is_rejected();
            charge.check.limit.on_limit.is_hold() && may_pass
        };
        if !denials().all(holds) {
            return Test::Refused(Box::new(Refusal::of(denials(), now, Cause::Limit, None)));
        }
        let longest = denials().max_by_key(|charge| (charge.decision().denied, charge.check.index));
        let until = longest.and_then(|charge| {
            let wait_ns = match charge.decision().denied? {
                Retry::ON_RELEASE if charge.remote().is_some() => REMOTE_RELEASE_NS,
                Retry::AfterNs(ns) => ns,
                Retry::Never => 0,
            };
            let jitter_ns = if charge.remote().is_some() { self.gate.jitter.next_ns(wait_ns) } else { 0 };
            Some(now.saturating_add_ns(wait_ns.saturating_add(jitter_ns)))
        });
        let index = longest.map_or(self.index, |charge| charge.check.index);
        let contended = longest.filter(|charge| charge.check.state.queues.is_contended(charge.key));
        let replicas = contended.and_then(|charge| Some((charge, charge.remote()?.replicas)));
        let spread_ns = replicas.map_or(0, |(charge, replicas)| spread_ns(charge.rule, charge.cost, replicas));
        let remote = longest.filter(|charge| charge.remote().is_some());
        let asks_at = remote.map(|charge| charge.table().asks_again_at(charge.key, now));
        Test::Blocked { index, until, spread_ns, asks_at }
    }

    /// The limits of the newest policy, with the index of their items.
    fn newest_limits(&self) -> NewestLimits {
        self.items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| Some((index, item.state.newest.load_full()?)))
            .collect()
    }

    /// Retains the limits that apply a rule to the request.
    fn retain_limited(&self, limits: &mut NewestLimits) {
        limits.retain(|(index, limit)| {
            limit.mode != Mode::Off && limit.allowed.rule(self.variant(self.items[*index], limit)).is_some()
        });
    }

    /// The rule of the newest limit that the request goes by.
    pub(super) fn variant(&self, item: WaitItem<'_>, limit: &Newest) -> Variant {
        limit.variant(item.key, self.plan.as_deref())
    }

    /// The charges that the newest limits would make.
    fn batch<'n>(&self, limits: &'n NewestLimits) -> Batch<'n, WaitCheck<'l, 'n>>
    where
        'l: 'n,
    {
        limits.iter().map(|(index, limit)| self.charge(*index, limit)).collect()
    }

    /// The charge that the newest limit of an item would make.
    fn charge<'n>(&self, index: usize, limit: &'n Newest) -> Charge<'n, WaitCheck<'l, 'n>>
    where
        'l: 'n,
    {
        let item @ WaitItem { state, key, cost, percentile } = self.items[index];
        // Items without a rule are sorted out before.
        let variant = self.variant(item, limit);
        let rule = limit.allowed.rule(variant).unwrap_or(&limit.allowed.usual);
        let check = WaitCheck { index, state, limit, variant, percentile };
        let mut charge = Charge::new(&state.table, key, rule, cost, is_enforced(limit, check.mode(), rule), check);
        charge.set_remote(limit.remote.as_ref());
        charge
    }

    /// The refusal by the limit in whose queue the request stands. Its retry is the remaining wait.
    fn refuse(&self, cause: Cause, now: Timestamp) -> Refusal<'l> {
        let here = self.items[self.index];
        let Some(limit) = here.state.newest.load_full() else {
            let none: [&Charge<'_, WaitCheck<'l, '_>>; 0] = [];
            return Refusal::of(none.into_iter(), now, cause, Some(0));
        };
        let mut batch: Batch<'_, _> = [self.charge(self.index, &limit)].into_iter().collect();
        batch.peek(now);
        // The backlog includes the request itself.
        let backlog = here.state.queues.backlog_of(here.key, priority_of(self.rank), 0);
        let ahead = backlog.without(here.cost);
        let expected = batch.charges().iter().map(|charge| expected_ns(charge, ahead, now)).max();
        Refusal { is_estimate: self.may_be_overtaken(), ..Refusal::of(batch.charges().iter(), now, cause, expected) }
    }
}

/// The charges of a request that asks stores; given back on drop.
struct Undone<'n, 'l: 'n> {
    batch: Batch<'n, WaitCheck<'l, 'n>>,
    clock: Clock,
}

impl Drop for Undone<'_, '_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.batch.undo(self.clock.now());
            wake_undone(&self.batch);
        }
    }
}

/// How often the front looks for requests in flight on other replicas that have ended, in nanoseconds.
const REMOTE_RELEASE_NS: u64 = 50_000_000;

/// The length of a wait that ends when another request does.
pub(in crate::engine::gate) const UNKNOWN_NS: u64 = u64::MAX;

/// The length of a wait that never ends.
pub(super) const NEVER_NS: u64 = UNKNOWN_NS - 1;

/// The expected wait of `charge` behind `ahead` in nanoseconds, or [`UNKNOWN_NS`].
pub(super) fn expected_ns<C>(charge: &Charge<'_, C>, ahead: Backlog, now: Timestamp) -> u64 {
    match charge.wait(ahead.units_before(charge.rule, charge.cost), now) {
        Retry::AfterNs(ns) => ns,
        Retry::Never => NEVER_NS,
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.gate.clock.now();
        for index in self.reserved_turns.iter().copied().chain([self.index]) {
            self.leave(index, now);
        }
        self.unattend();
        self.held_by.metrics.held_now.dec();
        let waited_ns = now.ns_since(self.since);
        self.held_by.metrics.hold_duration.observe(Duration::from_nanos(waited_ns).as_secs_f64());
    }
}
