//! Where a request can go at once, and waiting until there is such a place.

use std::rc::Rc;

use tokio::time::timeout_at;

use super::super::settings::Cap;
use super::connection::ConnectError;
use super::endpoints::Endpoints;
use super::lease::{Lease, Wanted};
use super::pool::Pool;
use super::queue::Slot;
use super::trunks::Opening;
use crate::time;

/// Where a request can go.
#[derive(Debug)]
pub(super) enum Room {
    /// On a connection that is open.
    Idle(Lease),
    /// On a new one to the endpoint at this place, which is counted already.
    New(usize, Option<Slot>),
    /// On one to the endpoint at this place that is being opened.
    Soon(usize, Rc<Opening>),
}

impl Endpoints {
    /// Where a request can go now, but to those that were tried; none if all of them have as many connections as they
    /// may have.
    pub(super) fn room(&self, wanted: &Wanted, tried: &[usize]) -> Option<Room> {
        // Another worker may take what is seen here; it is looked for again as often as there are endpoints.
        for _ in 0..self.len() {
            let index = self.choose_among(wanted.affinity, tried)?;
            let room = self.idle(index, wanted).map(Room::Idle).or_else(|| self.open(index, wanted));
            if room.is_some() {
                return room;
            }
        }
        None
    }

    /// The same at the endpoint at `index`. An idle connection that nobody shares was looked for before.
    pub(super) fn open_at(&self, index: usize, wanted: &Wanted) -> Option<Room> {
        let shared = if self.pool(index).is_shared() { self.idle(index, wanted) } else { None };
        shared.map(Room::Idle).or_else(|| self.open(index, wanted))
    }

    /// A new connection to the endpoint at `index`, if it has fewer than it may have, or one that is being opened.
    pub(super) fn open(&self, index: usize, wanted: &Wanted) -> Option<Room> {
        if let Some(opening) = self.pool(index).opening() {
            return Some(Room::Soon(index, opening));
        }
        let at_most = self.cap().map_or(usize::MAX, |cap| cap.max_connections);
        let Some((state, queue)) = self.pool(index).state.as_ref().zip(self.queue()) else {
            return Some(Room::New(index, None));
        };
        let mut slot = Slot::new(state, queue, at_most);
        if slot.is_none() && wanted.is_alone {
            // Idle ones will not do, but may be what there is no room for.
            drop(self.pool(index).take());
            slot = Slot::new(state, queue, at_most);
        }
        slot.map(|slot| Room::New(index, Some(slot)))
    }

    /// Waits for its turn and for room, up to the bounds of `cap`.
    pub(super) async fn wait(&self, cap: &Cap, wanted: &Wanted, tried: &[usize]) -> Result<Room, ConnectError> {
        let Some(queue) = self.queue() else { return Err(ConnectError::Busy) };
        let Some(place) = queue.join(self.worker(), cap.max_queued) else {
            queue.metrics.queue_full.inc();
            return Err(ConnectError::Busy);
        };
        let until = time::instant_now() + cap.queue_timeout;
        let mut has_asked = false;
        loop {
            if place.is_front() {
                if let Some(room) = self.room(wanted, tried) {
                    return Ok(room);
                }
                if !std::mem::replace(&mut has_asked, true) {
                    place.ask_others();
                }
            }
            if timeout_at(until, place.woken()).await.is_err() {
                queue.metrics.queue_timeout.inc();
                return Err(ConnectError::Busy);
            }
        }
    }
}

/// Whether a request can go to the endpoint of `pool` at once.
pub(super) fn has_room(pool: &Pool, cap: &Cap) -> bool {
    pool.has_idle() || pool.state.as_ref().is_none_or(|state| state.has_room(cap.max_connections))
}
