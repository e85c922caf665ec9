//! State that outlives the process, and the charges that a successor hears of.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};

use super::delta::Delta;
use super::state::{Gate, LimitState, Live};
use crate::engine::policy::Limit;
use crate::engine::store::snapshot::{RestoredLimit, Snapshot};

impl Gate {
    /// Restores the state of limits. To be called before a policy is installed: the first policy then meets the state as
    /// a reload does. State that no policy names is forgotten once it is idle.
    pub fn restore(&self, limits: Vec<RestoredLimit>) {
        let mut known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        for RestoredLimit { name, table, bans } in limits {
            let state = self.state(&name, table, Arc::new(bans));
            state.persists.store(true, Ordering::Relaxed);
            known.insert(name, Arc::new(state));
            // The last charges of the process before may be in no batch that peers have.
            self.listeners.leave_gap();
        }
    }

    /// Writes the state of all limits that persist. For a thread that serves no requests.
    pub fn save<W: Write>(&self, snapshot: &mut Snapshot<W>) -> io::Result<()> {
        self.save_selected(snapshot, |state| state.persists.load(Ordering::Relaxed))
    }

    /// Writes the state of all limits but those that count requests in flight: these stay with this process. For a
    /// thread that serves no requests.
    pub fn save_all<W: Write>(&self, snapshot: &mut Snapshot<W>) -> io::Result<()> {
        let is_lasting = |limit: &Limit| !limit.allowed.usual.is_released();
        self.save_selected(snapshot, |state| {
            state.newest.load().as_ref().map_or(state.persists.load(Ordering::Relaxed), |limit| is_lasting(limit))
        })
    }

    fn save_selected<W: Write>(
        &self,
        snapshot: &mut Snapshot<W>,
        is_selected: impl Fn(&LimitState) -> bool,
    ) -> io::Result<()> {
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let selected: Vec<Arc<LimitState>> =
            known.values().filter(|state| is_selected(state)).map(Arc::clone).collect();
        drop(known);
        selected.iter().try_for_each(|state| {
            let newest = state.newest.load_full();
            snapshot.limit(&state.name, &state.table, &state.bans, |key| newest.as_ref()?.usual_rule(key))
        })
    }

    /// Reports all charges from now on.
    pub fn subscribe_deltas(&self) -> Receiver<Delta> {
        self.listeners.subscribe()
    }

    /// Ends the reports. Returns the number of deltas that were dropped because the queue was full.
    pub fn unsubscribe_deltas(&self) -> u64 {
        self.listeners.unsubscribe()
    }

    /// Charges the units that another process charged, whether they fit or not. The debt of a limit with `settle` is at most
    /// its largest debt or its capacity, whichever is more. Nothing is charged if the limit does not exist, or has no rule
    /// for the key.
    pub fn apply_delta(&self, live: &Live, delta: &Delta) {
        let Some(applied) = live.policy.by_name(&delta.limit) else { return };
        let state = &live.states[applied.index];
        let Some(rule) = applied.limit.allowed.rule(live.variant(&applied, delta.key, delta.plan.as_deref())) else {
            return;
        };
        if rule.is_released() {
            return;
        }
        // Admitted units are within the capacity; a settlement may go deeper, and a report without one as deep as it is.
        let settle = applied.limit.after.as_ref().and_then(|after| after.settle.as_ref());
        let max_debt = settle.map_or(u64::MAX, |settle| settle.max_debt.max(rule.capacity()));
        // A caller may have requested the rate. Then `rule` would end its window too soon.
        let own = state.table.own_window(delta.key, rule.capacity()).filter(|own| own != rule);
        let (rule, max_debt) = own.as_ref().map_or((rule, max_debt), |own| (own, u64::MAX));
        let now = self.clock.now();
        let charged = state.table.settle(delta.key, rule, delta.units, max_debt, now);
        // The other process no longer tells peers.
        state.report(delta.key, rule, charged, now);
    }
}
