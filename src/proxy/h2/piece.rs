//! Data of a response on its way through the library.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};

/// The payload of a DATA frame, or of several.
#[derive(Debug)]
pub(in super::super) struct Piece {
    bytes: Bytes,
    _queued: Option<InQueue>,
}

/// The pieces of one stream that the library holds.
///
/// A reset overtakes everything that the library has queued for the stream: flow control or the socket may hold that
/// back. So the reset waits until the queue is empty.
#[derive(Debug, Default)]
pub(super) struct Queue {
    len: Cell<usize>,
    /// A piece went through it, and the head of the response before that.
    was_used: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

#[derive(Debug)]
struct InQueue(Rc<Queue>);

impl Piece {
    /// One that nobody waits for.
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { bytes, _queued: None }
    }

    /// One that goes through `queue`.
    pub(super) fn through(queue: &Rc<Queue>, bytes: Bytes) -> Self {
        queue.was_used.set(true);
        queue.len.set(queue.len.get() + 1);
        Self { bytes, _queued: Some(InQueue(Rc::clone(queue))) }
    }
}

impl Queue {
    /// Whether a piece ever went through it.
    pub(super) fn was_used(&self) -> bool {
        self.was_used.get()
    }

    /// Ready once all pieces have left the library.
    pub(super) fn poll_empty(&self, cx: &Context<'_>) -> Poll<()> {
        if self.len.get() == 0 {
            return Poll::Ready(());
        }
        self.waiting.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Wakes the task that waits for the end of the queue.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }
}

impl Drop for InQueue {
    fn drop(&mut self) {
        let left = self.0.len.get().saturating_sub(1);
        self.0.len.set(left);
        if left == 0 {
            self.0.wake();
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, len: usize) {
        self.bytes.advance(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_empty_once_the_library_has_dropped_its_pieces() {
        let (queue, cx) = (Rc::new(Queue::default()), Context::from_waker(Waker::noop()));
        assert!(queue.poll_empty(&cx).is_ready() && !queue.was_used());
        let pieces = [Bytes::new(), Bytes::from_static(b"a")].map(|bytes| Piece::through(&queue, bytes));
        for piece in pieces {
            assert!(queue.poll_empty(&cx).is_pending() && queue.was_used());
            drop(piece);
        }
        assert!(queue.poll_empty(&cx).is_ready());
    }
}
