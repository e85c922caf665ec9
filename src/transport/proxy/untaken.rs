//! Bounds the memory of responses that wait for their clients, over all clients of a worker.
//!
//! Once a second each worker looks at its own responses. Beyond the bound it ends responses whose oldest byte has waited for
//! a second, first the response whose oldest byte has waited longest: a connection over HTTP/1, a stream over HTTP/2. So a
//! client that reads a little now and then gains nothing by it. Not here: how slow a client may be while there is enough
//! memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Bytes of the task of a stream, about.
const TASK: usize = 4 * 1024;

/// All responses of a worker that wait for their clients.
#[derive(Debug, Default)]
pub(super) struct Untaken {
    /// By the order in which their oldest bytes began to wait.
    waiting: RefCell<BTreeMap<u64, Rc<End>>>,
    next: Cell<u64>,
    /// Those before this one have waited since the last sweep, or longer.
    aged: Cell<u64>,
    bytes: Cell<usize>,
}

/// The bytes of a response, and whether it has to end.
#[derive(Debug, Default)]
pub(super) struct End {
    bytes: Cell<usize>,
    is_ended: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Bytes that wait for their client, until this is dropped.
#[derive(Debug)]
pub(super) struct UntakenBytes {
    untaken: Rc<Untaken>,
    end: Rc<End>,
    key: u64,
    bytes: usize,
}

/// The bytes of a response that wait now.
#[derive(Debug)]
pub(super) struct Hold<'w> {
    untaken: &'w Rc<Untaken>,
    held: Option<UntakenBytes>,
    /// Bytes of memory that stay for as long as the response waits.
    kept: usize,
    /// When the client has taken so many bytes in all, it has taken all bytes that waited when `held` began.
    renewed_at: u64,
}

impl Untaken {
    /// Counts `bytes` of the response of `end` as waiting.
    pub(super) fn hold(self: &Rc<Self>, end: &Rc<End>, bytes: usize) -> UntakenBytes {
        let key = self.next.get();
        self.next.set(key + 1);
        self.waiting.borrow_mut().insert(key, Rc::clone(end));
        self.bytes.set(self.bytes.get() + bytes);
        end.bytes.set(end.bytes.get() + bytes);
        UntakenBytes { untaken: Rc::clone(self), end: Rc::clone(end), key, bytes }
    }

    /// Bytes that are held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Ends what is beyond `most`; to be called once a second. Returns how many responses those are.
    pub(super) fn sweep(&self, most: usize) -> u64 {
        let aged = self.aged.replace(self.next.get());
        let (mut bytes, mut ended) = (self.bytes.get(), 0);
        for end in self.waiting.borrow().range(..aged).map(|(_, end)| end) {
            if bytes <= most {
                break;
            }
            if !end.is_ended.replace(true) {
                bytes = bytes.saturating_sub(end.bytes.get());
                ended += 1;
                end.waker.take().into_iter().for_each(Waker::wake);
            }
        }
        ended
    }
}

impl End {
    /// Ready once the response has to end.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_ended.get() {
            return Poll::Ready(());
        }
        self.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl UntakenBytes {
    /// Sets the number of bytes. They keep their order.
    fn resize(&mut self, bytes: usize) {
        let Self { untaken, end, bytes: before, .. } = self;
        for count in [&untaken.bytes, &end.bytes] {
            count.set(count.get().saturating_sub(*before) + bytes);
        }
        *before = bytes;
    }
}

impl Drop for UntakenBytes {
    fn drop(&mut self) {
        self.resize(0);
        self.untaken.waiting.borrow_mut().remove(&self.key);
    }
}

impl<'w> Hold<'w> {
    /// The response of a connection.
    pub(super) fn new(untaken: &'w Rc<Untaken>) -> Self {
        Self { untaken, held: None, kept: 0, renewed_at: 0 }
    }

    /// The response of a stream, whose task keeps so many bytes of its request.
    pub(super) fn of_stream(untaken: &'w Rc<Untaken>, request: usize) -> Self {
        Self { kept: TASK + request, ..Self::new(untaken) }
    }

    /// So many bytes wait for the client now, in so much memory. It has taken `taken` bytes. Ready once the response has to
    /// end.
    pub(super) fn poll(&mut self, cx: &Context<'_>, taken: u64, bytes: usize, memory: usize) -> Poll<()> {
        if bytes == 0 {
            self.held = None;
            return Poll::Pending;
        }
        let memory = self.kept + memory;
        if let Some(held) = self.held.as_mut().filter(|_| taken < self.renewed_at) {
            held.resize(memory);
            return held.end.poll(cx);
        }
        self.renewed_at = taken + bytes as u64;
        self.held.insert(self.untaken.hold(&Rc::default(), memory)).end.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ended(end: &End) -> bool {
        end.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn those_who_have_waited_longest_end_first_and_none_that_moved() {
        let untaken = Rc::<Untaken>::default();
        let ends: Vec<_> = (0..4).map(|_| Rc::<End>::default()).collect();
        let mut helds: Vec<_> = ends.iter().map(|end| untaken.hold(end, 100)).collect();
        assert_eq!(untaken.sweep(0), 0, "none has waited for a whole second");
        helds[0] = untaken.hold(&ends[0], 100); // something was taken
        assert_eq!((untaken.bytes(), untaken.sweep(300)), (400, 1));
        let ended: Vec<_> = ends.iter().map(|end| is_ended(end)).collect();
        assert_eq!(ended, [false, true, false, false]);
        helds.remove(1);
        assert_eq!((untaken.bytes(), untaken.sweep(300), untaken.sweep(0)), (300, 0, 3));
        drop(helds);
        assert_eq!(untaken.bytes(), 0);
        assert!(untaken.waiting.borrow().is_empty());
    }

    #[test]
    fn a_connection_counts_with_all_of_its_answers() {
        let untaken = Rc::<Untaken>::default();
        let [many, one] = [(); 2].map(|()| Rc::<End>::default());
        let held: Vec<_> = [&many, &one, &many].map(|end| untaken.hold(end, 100)).into();
        untaken.sweep(0);
        assert_eq!(untaken.sweep(150), 1, "its two are enough");
        assert!(is_ended(&many) && !is_ended(&one));
        drop(held);
    }

    #[test]
    fn an_answer_keeps_its_order_until_all_that_waited_is_taken() {
        let untaken = Rc::<Untaken>::default();
        let cx = Context::from_waker(Waker::noop());
        // Bytes that the client takes in each second, and those that wait then.
        let clients = [(0, 100), (1, 100), (60, 200), (100, 100), (1000, 100)];
        let mut holds = clients.map(|_| Hold::new(&untaken));
        for second in 0..3 {
            for (hold, (rate, bytes)) in holds.iter_mut().zip(clients) {
                assert!(hold.poll(&cx, second * rate, bytes, bytes).is_pending());
            }
            assert_eq!((untaken.bytes(), untaken.sweep(usize::MAX)), (600, 0));
        }
        // 100 bytes wait longer than a second at the first three, and only until now at the others.
        for (hold, (rate, bytes)) in holds.iter_mut().zip(clients) {
            assert!(hold.poll(&cx, 3 * rate, bytes, bytes).is_pending());
        }
        assert_eq!(untaken.sweep(0), 3);
        let ended = holds.each_mut().map(|hold| hold.poll(&cx, 0, 10, 10).is_ready());
        assert_eq!((ended, untaken.bytes()), ([true, true, true, false, false], 50));
        assert!(holds[4].poll(&cx, 0, 0, 10).is_pending());
        drop(holds);
        assert_eq!(untaken.bytes(), 0);
    }
}
