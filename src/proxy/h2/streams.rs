//! What the streams of one connection come to.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;

use tokio::sync::Notify;

use super::super::untaken::{End, Place, Untaken};

/// Requests that a client may abandon on one connection beside as many as it lets be answered. Whoever abandons more
/// makes Weir and the service work for nothing, faster than any bound on open streams can tell (rapid reset).
const ABANDONED_MAX: u32 = 100;

/// The streams of a connection.
#[derive(Debug)]
pub(in super::super) struct Streams {
    /// Those whose answer has not ended.
    open: Cell<u32>,
    /// Requests that may still come.
    left: Cell<u32>,
    answered: Cell<u32>,
    abandoned: Cell<u32>,
    /// Told when the last request has come.
    all: Notify,
    /// Told when too many were abandoned.
    flood: Notify,
    /// The worker's answers whose clients are waited for, and whether this client's have to end.
    untaken: Rc<Untaken>,
    end: Rc<End>,
}

impl Streams {
    /// Those of a connection on which so many requests may come.
    pub(in super::super) fn new(max_requests: u32, untaken: &Rc<Untaken>) -> Rc<Self> {
        let [open, answered, abandoned] = [const { Cell::new(0) }; 3];
        let (left, all, flood) = (Cell::new(max_requests), Notify::new(), Notify::new());
        let (untaken, end) = (Rc::clone(untaken), Rc::default());
        Rc::new(Self { open, left, answered, abandoned, all, flood, untaken, end })
    }

    /// A request has come.
    pub(in super::super) fn request(self: &Rc<Self>) -> InFlight {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        if left == 1 {
            self.all.notify_one();
        }
        InFlight::new(self)
    }

    /// Whether nothing is asked for.
    pub(super) fn are_idle(&self) -> bool {
        self.open.get() == 0
    }

    /// Waits until the last request has come.
    pub(in super::super) async fn all_come(&self) {
        self.all.notified().await;
    }

    /// Waits until the memory that its answers hold is wanted.
    pub(in super::super) async fn ended(&self) {
        poll_fn(|cx| self.end.poll(cx)).await;
    }

    /// Waits until too many have been abandoned.
    pub(in super::super) async fn flooded(&self) {
        self.flood.notified().await;
    }
}

/// A request whose answer has not ended.
#[derive(Debug)]
pub(in super::super) struct InFlight {
    streams: Rc<Streams>,
    is_answered: bool,
}

impl InFlight {
    fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        Self { streams: Rc::clone(streams), is_answered: false }
    }

    /// Its answer has begun.
    pub(in super::super) fn answered(mut self) -> Self {
        self.is_answered = true;
        self.streams.answered.set(self.streams.answered.get().saturating_add(1));
        self
    }

    /// So many bytes of its answer wait for its client from now on.
    pub(super) fn hold(&self, bytes: usize) -> Place {
        self.streams.untaken.hold(&self.streams.end, bytes)
    }

    /// What is left of a request after its answer.
    pub(in super::super) fn another(&self) -> Self {
        let mut another = Self::new(&self.streams);
        another.is_answered = true;
        another
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Streams { open, answered, abandoned, flood, .. } = &*self.streams;
        open.set(open.get().saturating_sub(1));
        if !self.is_answered {
            abandoned.set(abandoned.get().saturating_add(1));
            if abandoned.get() > answered.get().saturating_add(ABANDONED_MAX) {
                flood.notify_one();
            }
        }
    }
}
