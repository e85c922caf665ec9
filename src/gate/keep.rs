//! What of the state of limits outlives the process, and how the next one takes it over.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::{Gate, LimitState};
use crate::policy::Limit;
use crate::store::snapshot::{RestoredLimit, Snapshot};

impl Gate {
    /// Takes over the state of limits, to be called before there is a policy: the first one then meets them as a
    /// reload meets those that it finds. What no policy names is forgotten once it is idle.
    pub fn restore(&self, limits: Vec<RestoredLimit>) {
        let mut known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        for RestoredLimit { name, table, bans } in limits {
            let state = self.state(&name, table, Arc::new(bans));
            state.persists.store(true, Ordering::Relaxed);
            known.insert(name, Arc::new(state));
        }
    }

    /// Writes the state of all limits that are to be kept. For a thread without requests.
    pub fn save<W: Write>(&self, snapshot: &mut Snapshot<W>) -> io::Result<()> {
        self.save_those(snapshot, |state| state.persists.load(Ordering::Relaxed))
    }

    /// Writes the state of all limits, but of those that count what is in flight: that stays with this process. For a
    /// thread without requests.
    pub fn save_all<W: Write>(&self, snapshot: &mut Snapshot<W>) -> io::Result<()> {
        let is_lasting = |limit: &Limit| !limit.allowed.usual.is_released();
        self.save_those(snapshot, |state| {
            state.rule.load().as_ref().map_or(state.persists.load(Ordering::Relaxed), |limit| is_lasting(limit))
        })
    }

    fn save_those<W: Write>(
        &self,
        snapshot: &mut Snapshot<W>,
        is_kept: impl Fn(&LimitState) -> bool,
    ) -> io::Result<()> {
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<Arc<LimitState>> = known.values().filter(|state| is_kept(state)).map(Arc::clone).collect();
        drop(known);
        kept.iter().try_for_each(|state| snapshot.limit(&state.name, &state.table, &state.bans))
    }
}
