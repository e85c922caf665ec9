//! What the task of a connection shares with the tasks of its streams.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::base::fields::FieldBuf;
use crate::transport::http2::{Block, Connection, ErrorCode, Key};
use crate::transport::net::buffer::{BufferPool, InputBuffer, OutputBuffer, PENDING_MAX};

/// Less capacity than this in what is to be written is not worth a frame.
const CAPACITY_MIN: usize = 4 * 1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Link {
    state: RefCell<LinkState>,
    pub(super) buffers: Rc<BufferPool>,
}

/// The connection as both kinds of tasks see it.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) http2: Connection<Slot>,
    /// What is to be written to the socket.
    pub(super) out: OutputBuffer,
    /// Streams that wait until there is room to write, or a window of the connection; in turn.
    turns: VecDeque<Key>,
    /// The task of the connection.
    driver: Option<Waker>,
    /// Bytes that the socket has taken.
    moved: u64,
    is_closed: bool,
}

/// What is kept of a stream for its task.
#[derive(Debug, Default)]
pub(super) struct Slot {
    task: Option<Waker>,
    /// What came of the body and is not taken.
    pub(super) input: InputBuffer,
    /// The body ends behind that.
    pub(super) has_ended: bool,
    pub(super) trailers: Option<Box<FieldBuf>>,
    waits_for_turn: bool,
    /// It may write a piece although others wait.
    has_turn: bool,
}

impl Slot {
    /// Wakes the task of the stream.
    pub(super) fn wake(&self) {
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }
}

impl Link {
    pub(super) fn new(http2: Connection<Slot>, out: OutputBuffer, buffers: Rc<BufferPool>) -> Rc<Self> {
        let state = LinkState { http2, out, turns: VecDeque::new(), driver: None, moved: 0, is_closed: false };
        Rc::new(Self { state: RefCell::new(state), buffers })
    }

    /// The state, for as long as this poll.
    pub(super) fn state(&self) -> RefMut<'_, LinkState> {
        self.state.borrow_mut()
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.http2.owners_mut().for_each(|slot| slot.wake());
    }
}

impl LinkState {
    /// Writes frames, and has them sent in this turn of the loop.
    pub(super) fn write<T>(
        &mut self,
        buffers: &BufferPool,
        write: impl FnOnce(&mut Connection<Slot>, &mut Vec<u8>) -> T,
    ) -> T {
        let before = self.out.pending();
        self.out.prepare(buffers);
        let written = write(&mut self.http2, self.out.bytes());
        if self.out.pending() > before {
            self.wake_driver();
        } else {
            self.out.release(buffers);
        }
        written
    }

    /// Bytes that may be put into what is to be written.
    pub(super) fn capacity(&self) -> usize {
        let capacity = PENDING_MAX.saturating_sub(self.out.pending());
        if capacity < CAPACITY_MIN { 0 } else { capacity }
    }

    /// Lets the stream that has waited longest for its turn write, if it can.
    pub(super) fn pass_on(&mut self) {
        if self.capacity() == 0 || !self.http2.has_window() {
            return;
        }
        while let Some(key) = self.turns.pop_front() {
            if let Some(slot) = self.http2.get_mut(key) {
                (slot.waits_for_turn, slot.has_turn) = (false, true);
                return slot.wake();
            }
        }
    }

    /// Has the task of the connection woken whenever there is something to write.
    pub(super) fn set_driver(&mut self, cx: &Context<'_>) {
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    /// The task of the stream is woken when there is room for it, unless its own window lets nothing through: then it is
    /// woken when that opens.
    pub(super) fn wait_for_turn(&mut self, key: Key) {
        if self.http2.is_exhausted(key) {
            return;
        }
        if let Some(slot) = self.http2.get_mut(key)
            && !std::mem::replace(&mut slot.waits_for_turn, true)
        {
            self.turns.push_back(key);
        }
    }

    /// Whether a stream may take its next piece. If not, its task is woken when it may.
    pub(super) fn may_go_on(&mut self, key: Key) -> bool {
        let has_turn = self.http2.get_mut(key).is_some_and(|slot| std::mem::take(&mut slot.has_turn));
        if self.capacity() > 0 && (has_turn || self.turns.is_empty() || self.http2.is_exhausted(key)) {
            return true;
        }
        self.wait_for_turn(key);
        false
    }

    /// Bytes that the socket has taken so far.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// The socket has taken bytes.
    pub(super) fn has_moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
    }

    fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }
}

/// A stream in the hands of its task. Dropping it ends the stream, by a reset if it has not ended.
#[derive(Debug)]
pub(super) struct StreamHandle {
    link: Rc<Link>,
    key: Key,
}

/// How far a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Bytes that were taken.
    pub(super) bytes: usize,
    /// The client, or the windows, take no more for now; the task is woken when they do.
    pub(super) is_blocked: bool,
}

impl StreamHandle {
    pub(super) fn new(link: &Rc<Link>, key: Key) -> Self {
        Self { link: Rc::clone(link), key }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn buffers(&self) -> &Rc<BufferPool> {
        &self.link.buffers
    }

    pub(super) fn state(&self) -> RefMut<'_, LinkState> {
        self.link.state()
    }

    /// Ready once the stream is reset or its connection has ended. From the first call on, whatever happens to the stream
    /// wakes the task.
    pub(super) fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_closed || state.http2.is_reset(self.key) {
            return Poll::Ready(());
        }
        if let Some(slot) = state.http2.get_mut(self.key)
            && !slot.task.as_ref().is_some_and(|task| task.will_wake(cx.waker()))
        {
            slot.task = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Writes a head.
    pub(super) fn write_head(&self, status: u16, has_ended: bool, write: impl FnOnce(&mut Block<'_>)) {
        let key = self.key;
        self.state().write(self.buffers(), |http2, out| http2.write_head(key, out, status, has_ended, write));
    }

    /// Writes trailers, which end the stream.
    pub(super) fn write_trailers(&self, write: impl FnOnce(&mut Block<'_>)) {
        let key = self.key;
        self.state().write(self.buffers(), |http2, out| http2.write_trailers(key, out, write));
    }

    /// Writes what can be written of `data`, and the end of the stream behind it if `is_last`.
    pub(super) fn write_data(&self, data: &[u8], is_last: bool) -> Written {
        let (mut state, key) = (self.state(), self.key);
        let capacity = state.capacity();
        let bytes = state.write(self.buffers(), |http2, out| http2.write_data(key, out, data, capacity, is_last));
        let is_blocked = bytes < data.len();
        if is_blocked {
            state.wait_for_turn(key);
        }
        Written { bytes, is_blocked }
    }

    /// Resets the stream.
    pub(super) fn reset(&self, code: ErrorCode) {
        let key = self.key;
        self.state().write(self.buffers(), |http2, out| http2.reset(key, code, out));
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        let (mut state, key) = (self.link.state(), self.key);
        if let Some(mut slot) = state.write(&self.link.buffers, |http2, out| http2.release(key, out)) {
            slot.input.consume(slot.input.unread().len());
            slot.input.release(&self.link.buffers);
        }
        state.pass_on();
        state.wake_driver(); // it may have been the last one
    }
}
