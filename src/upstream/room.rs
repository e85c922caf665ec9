//! Where a request can go at once, and waiting until there is such a place.

use std::rc::Rc;

use tokio::time::timeout_at;

use super::ceiling::{Beside, InHand};
use super::connection::ConnectError;
use super::endpoints::Endpoints;
use super::lease::{Lease, Wanted};
use super::pool::Pool;
use super::queue::Slot;
use super::settings::Cap;
use super::trunks::Opening;
use crate::net::clients::Entered;
use crate::time;

/// Where a request can go.
#[derive(Debug)]
pub(super) enum Room {
    /// On a connection that is open.
    Idle(Lease),
    /// On a new one to the endpoint at this place, which is counted already.
    New(usize, Slot),
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
        let at_most = self.cap().most();
        let (state, queue) = (&self.pool(index).state, self.queue());
        let mut slot = Slot::new(state, queue, at_most);
        if slot.is_none() && wanted.is_alone {
            // Idle ones will not do, but may be what there is no room for.
            drop(self.pool(index).take());
            slot = Slot::new(state, queue, at_most);
        }
        slot.map(|slot| Room::New(index, slot))
    }

    /// Whether a request without room has to wait for the ceiling, or had to: another upstream may have freed a
    /// connection since it looked, and woke nobody.
    fn is_short(&self, wanted: &Wanted, tried: &[usize]) -> bool {
        self.queue().ceiling.is_full() || self.choose_among(wanted.affinity, tried).is_some()
    }

    /// Waits for its turn and for room, up to the bounds of the queue.
    pub(super) async fn wait(&self, wanted: &Wanted, tried: &[usize]) -> Result<Room, ConnectError> {
        let (cap, queue) = (self.cap(), self.queue());
        let Some(place) = queue.join(self.worker(), cap.max_queued) else {
            queue.metrics.queue_full.inc();
            return Err(ConnectError::Busy);
        };
        let until = time::instant_now() + cap.queue_timeout;
        let (mut has_asked, mut short) = (false, None);
        loop {
            if place.is_front() {
                if let Some(room) = self.room(wanted, tried) {
                    return Ok(room);
                }
                if short.is_none() && self.is_short(wanted, tried) {
                    short = Some(place.ask_all());
                    continue;
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

impl Endpoints {
    /// Counts a request as in hand; none if it has to wait for others of its client to end.
    pub(super) fn begin(&self, wanted: &Wanted) -> Option<InHand> {
        let client = wanted.client.as_ref();
        if client.is_some_and(|client| client.has_waiters()) { None } else { self.begin_next(client) }
    }

    fn begin_next(&self, client: Option<&Rc<Entered>>) -> Option<InHand> {
        InHand::new(client, self.hands(), self.is_shared())
    }

    /// Counts a request, after a wait for room if there is none. Returns the count and whether it waited.
    pub(super) async fn turn(&self, wanted: &Wanted) -> Result<(InHand, bool), ConnectError> {
        if let Some(in_hand) = self.begin(wanted) {
            return Ok((in_hand, false));
        }
        let client = wanted.client.as_ref();
        let Some(place) = client.and_then(|client| client.wait()) else { return Err(ConnectError::TooMany) };
        // Requests of other clients make room too.
        let _beside = (!self.is_shared()).then(|| Beside::new(&self.queue().ceiling, place.bell()));
        let until = time::instant_now() + self.cap().queue_timeout;
        loop {
            if let Some(in_hand) = self.begin_next(client) {
                return Ok((in_hand, true)); // leaving wakes the next one: there may be room for several
            }
            if timeout_at(until, place.woken()).await.is_err() {
                self.queue().metrics.queue_timeout.inc();
                return Err(ConnectError::Busy);
            }
        }
    }
}

/// Whether a request can go to the endpoint of `pool` at once, as far as its own bound goes.
pub(super) fn has_room(pool: &Pool, cap: &Cap) -> bool {
    pool.has_idle() || pool.state.has_room(cap.most())
}
