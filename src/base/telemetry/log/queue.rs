//! The lines that wait for the log thread, and the thread.
//!
//! Workers append whole lines to one buffer. The thread takes all of them together, so a line costs no system call of its
//! own. A line that finds the buffer full is dropped and counted; nothing waits for the log.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The bytes that wait at most.
const BYTES_MAX: usize = 4 << 20;

/// The bytes that are written at once; fewer wait for [`DELAY`].
const BYTES_SOON: usize = 256 << 10;

/// The time in which lines are collected.
const DELAY: Duration = Duration::from_millis(5);

/// The longest wait for the last lines at the end of the process.
const END: Duration = Duration::from_secs(1);

/// Where lines go.
pub(super) trait LineSink: Write {
    /// Opens a file again that was renamed. Called before each write of lines, and when an operator asks for it.
    fn reopen(&mut self) {}
}

impl LineSink for io::Stderr {}

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(super) struct LineQueue {
    pending: Mutex<Pending>,
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent messages between two threads")]
struct Pending {
    bytes: Vec<u8>,
    /// The thread waits for a line.
    is_awaited: bool,
    /// The thread shall open its file again.
    reopens: bool,
    /// The process ends: lines are not collected any more.
    is_closed: bool,
    /// The thread has written everything and ended.
    is_done: bool,
}

impl LineQueue {
    /// A queue whose lines a new thread writes to `to`.
    pub(super) fn start(to: impl LineSink + Send + 'static) -> io::Result<Arc<Self>> {
        let queue = Arc::<Self>::default();
        let writer = LineWriter { to, is_cut: false };
        let of_thread = Arc::clone(&queue);
        thread::Builder::new().name("weir-log".into()).spawn(move || of_thread.run(writer))?;
        Ok(queue)
    }

    /// Adds a line, which ends with a line feed. Never waits for the thread.
    pub(super) fn push(&self, line: &[u8]) {
        let mut pending = self.lock();
        let before = pending.bytes.len();
        let after = before + line.len();
        if after > BYTES_MAX {
            drop(pending);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        pending.bytes.extend_from_slice(line);
        let wakes = pending.is_awaited || (before < BYTES_SOON && after >= BYTES_SOON);
        pending.is_awaited = false;
        drop(pending);
        if wakes {
            self.changed.notify_all();
        }
    }

    /// Has the thread open its file again.
    pub(super) fn reopen(&self) {
        self.lock().reopens = true;
        self.changed.notify_all();
    }

    /// Lines that were dropped or could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Has the thread write the last lines and end. Waits for it, but not for a reader that takes nothing.
    pub(super) fn close(&self) {
        let mut pending = self.lock();
        pending.is_closed = true;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(pending, END, |pending| !pending.is_done));
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut writer: LineWriter<impl LineSink>) {
        let mut lines = Vec::new();
        while self.take(&mut lines) {
            writer.to.reopen();
            let lost = writer.write_lines(&lines);
            self.dropped.fetch_add(lost, Ordering::Relaxed);
            lines.clear();
        }
        self.lock().is_done = true;
        self.changed.notify_all();
    }

    /// Waits for lines or a wish to open the file again, and swaps the lines for `empty`. Returns `false` if there is
    /// neither and the process ends.
    fn take(&self, empty: &mut Vec<u8>) -> bool {
        let mut pending = self.lock();
        pending.is_awaited = pending.bytes.is_empty();
        let is_empty = |pending: &mut Pending| pending.bytes.is_empty() && !pending.reopens && !pending.is_closed;
        let pending = self.changed.wait_while(pending, is_empty).unwrap_or_else(PoisonError::into_inner);
        let are_few =
            |pending: &mut Pending| pending.bytes.len() < BYTES_SOON && !pending.reopens && !pending.is_closed;
        let (mut pending, _) =
            self.changed.wait_timeout_while(pending, DELAY, are_few).unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut pending.bytes, empty);
        mem::take(&mut pending.reopens) || !empty.is_empty()
    }
}

/// Writes lines, and counts those that cannot be written, for example on a full disk.
struct LineWriter<W> {
    to: W,
    /// Whether the last line was written only in part.
    is_cut: bool,
}

impl<W: LineSink> LineWriter<W> {
    /// Writes `lines`. Returns the number of those that could not be written as a whole.
    fn write_lines(&mut self, lines: &[u8]) -> u64 {
        let mut rest = lines;
        if self.is_cut && self.write(b"\n") == 1 {
            self.is_cut = false;
        }
        if !self.is_cut {
            let written = self.write(rest);
            let (done, left) = rest.split_at(written);
            self.is_cut = done.last().is_some_and(|byte| *byte != b'\n');
            rest = left;
        }
        memchr::memchr_iter(b'\n', rest).count() as u64
    }

    /// Returns the number of bytes that were written.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.to.write(rest) {
                Ok(0) => break,
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        written.min(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that fails when its capacity is used up.
    struct BoundedWriter {
        written: Vec<u8>,
        capacity: usize,
    }

    impl LineSink for BoundedWriter {}

    impl Write for BoundedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.capacity == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(self.capacity);
            self.capacity -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let to = BoundedWriter { written: Vec::new(), capacity: 9 };
        let mut lines = LineWriter { to, is_cut: false };
        let lost = ["first\n", "second\nthird\n", "fourth\n"].map(|text| lines.write_lines(text.as_bytes()));
        assert_eq!(lost, [0, 2, 1]);
        lines.to.capacity = 100;
        let lost = ["fifth\nsixth\n", "seventh\n"].map(|text| lines.write_lines(text.as_bytes()));
        assert_eq!(lost, [0, 0]);
        assert_eq!(String::from_utf8_lossy(&lines.to.written), "first\nsec\nfifth\nsixth\nseventh\n");
    }

    /// A writer that other threads read, and that can be stopped.
    #[derive(Clone, Default)]
    struct SharedWriter(Arc<Mutex<Vec<u8>>>);

    impl LineSink for SharedWriter {}

    impl Write for SharedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_all_threads_are_written_whole_and_in_order() {
        let written = SharedWriter::default();
        let queue = LineQueue::start(written.clone()).unwrap();
        thread::scope(|scope| {
            for thread in 0..4 {
                let queue = &queue;
                scope.spawn(move || (0..1000).for_each(|line| queue.push(format!("{thread} {line}\n").as_bytes())));
            }
        });
        queue.close();
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        for thread in 0..4 {
            let start = format!("{thread} ");
            let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&start)).collect();
            assert_eq!(lines, (0..1000).map(|line| line.to_string()).collect::<Vec<_>>());
        }
        assert_eq!((text.lines().count(), queue.dropped()), (4000, 0));
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_counted() {
        let written = SharedWriter::default();
        let is_stopped = written.0.lock().unwrap();
        let queue = LineQueue::start(written.clone()).unwrap();
        let line = [&[b'a'; 1023][..], b"\n"].concat();
        // The thread may have taken the lines of one buffer before the writer stopped it.
        let pushed = 2 * BYTES_MAX / line.len() + 1000;
        (0..pushed).for_each(|_| queue.push(&line));
        assert!(queue.dropped() >= 1000, "{}", queue.dropped());
        drop(is_stopped);
        queue.close();
        let kept = written.0.lock().unwrap().len() / line.len();
        assert_eq!(kept as u64 + queue.dropped(), pushed as u64);
    }
}
