//! Memory for what is read and written, shared by the connections of a worker: an idle one holds none.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

/// Most messages fit.
const SIZE: usize = 4 * 1024;
/// What a buffer grows to while a body goes through it.
const SIZE_MAX: usize = 64 * 1024;
/// Less room than this is not worth a read.
const ROOM_MIN: usize = 512;
/// Buffers that are kept for reuse; beyond, they are freed.
const KEPT_MAX: usize = 512;
/// What is sealed at once fits, with what TLS adds to it.
const SEALED_SIZE: usize = SIZE_MAX + 1024;
/// The same for buffers of that size. A socket that takes what it is given needs one, and only for a moment.
const SEALED_KEPT_MAX: usize = 4;

/// Buffers that nobody uses at the moment.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    kept: RefCell<Vec<Vec<u8>>>,
    sealed: RefCell<Vec<Vec<u8>>>,
}

impl Buffers {
    /// An empty one.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.kept.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(SIZE))
    }

    /// One for TLS records, full of whatever was last in it, so that it need not be cleared each time.
    pub(crate) fn take_sealed(&self) -> Vec<u8> {
        self.sealed.borrow_mut().pop().unwrap_or_else(|| vec![0; SEALED_SIZE])
    }

    /// Takes one for TLS records back.
    pub(crate) fn put_sealed(&self, bytes: Vec<u8>) {
        let mut kept = self.sealed.borrow_mut();
        if bytes.len() == SEALED_SIZE && kept.len() < SEALED_KEPT_MAX {
            kept.push(bytes);
        }
    }

    /// Takes one back. One that has grown, or has no memory of its own, is dropped.
    pub(crate) fn put(&self, mut bytes: Vec<u8>) {
        let mut kept = self.kept.borrow_mut();
        if (SIZE..=2 * SIZE).contains(&bytes.capacity()) && kept.len() < KEPT_MAX {
            bytes.clear();
            kept.push(bytes);
        }
    }
}

/// What was read from a socket and is not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// What is not taken yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The same, to be changed in place.
    pub(crate) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// Adds what did not come from a socket.
    pub(crate) fn extend(&mut self, bytes: &[u8], buffers: &Buffers) {
        if !self.has_memory() {
            self.bytes = buffers.take();
        }
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether all of it is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Takes `len` bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.bytes.len());
    }

    /// Whether it has memory of its own.
    pub(crate) fn has_memory(&self) -> bool {
        self.bytes.capacity() > 0
    }

    /// Takes the next `len` bytes with the memory they are in. Gives that, and where they begin. What follows them
    /// moves to another buffer.
    pub(crate) fn split(&mut self, len: usize, buffers: &Buffers) -> (Vec<u8>, usize) {
        let (start, end) = (self.start, (self.start + len).min(self.bytes.len()));
        let mut rest = Vec::new();
        if end < self.bytes.len() {
            rest = buffers.take();
            rest.extend_from_slice(&self.bytes[end..]);
        }
        self.start = 0;
        (std::mem::replace(&mut self.bytes, rest), start)
    }

    /// Gives the memory back if nothing is in it.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        if self.is_empty() && self.has_memory() {
            self.start = 0;
            buffers.put(std::mem::take(&mut self.bytes));
        }
    }

    /// Reads once; 0 at the end of the stream. Grows when the last read filled it.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        if !self.has_memory() {
            self.bytes = buffers.take();
        }
        let was_filled = self.bytes.len() == self.bytes.capacity();
        if self.start > 0 && (self.is_empty() || was_filled) {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if self.bytes.capacity() - self.bytes.len() < ROOM_MIN || (was_filled && self.bytes.capacity() < SIZE_MAX) {
            self.bytes.reserve(self.bytes.capacity() + ROOM_MIN);
        }
        // Stateless: it can be made anew for each poll.
        pin!(stream.read_buf(&mut self.bytes)).poll(cx)
    }
}

/// What is to be written to a socket.
#[derive(Debug, Default)]
pub(crate) struct Out {
    bytes: Vec<u8>,
    sent: usize,
}

/// Beyond this much, nothing more is read to be written.
pub(crate) const PENDING_MAX: usize = SIZE_MAX;

impl Out {
    /// Where to append.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes that wait to be written.
    pub(crate) fn pending(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The same, themselves.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The next `len` bytes have been taken to be written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.sent = (self.sent + len).min(self.bytes.len());
    }

    /// Whether none of it was written.
    pub(crate) fn is_untouched(&self) -> bool {
        self.sent == 0
    }

    /// Begins anew with the same bytes.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Forgets everything, and keeps the memory if it is not much.
    pub(crate) fn clear(&mut self) {
        self.sent = 0;
        if self.bytes.capacity() > PENDING_MAX { self.bytes = Vec::new() } else { self.bytes.clear() }
    }

    /// Makes room, from `buffers` if it has no memory.
    pub(crate) fn prepare(&mut self, buffers: &Buffers) {
        if self.bytes.capacity() == 0 {
            self.bytes = buffers.take();
        }
    }

    /// Gives the memory back if nothing is in it.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        if self.pending() == 0 && self.bytes.capacity() > 0 {
            self.sent = 0;
            buffers.put(std::mem::take(&mut self.bytes));
        }
    }

    /// Writes what the socket takes; ready when nothing is left. What was written stays until [`Out::clear`].
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, stream: &impl Writable) -> Poll<io::Result<()>> {
        while self.sent < self.bytes.len() {
            match stream.try_write(&self.bytes[self.sent..]) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::task::ready!(stream.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// What bytes are written to: a socket.
pub(crate) trait Writable {
    /// Writes what it takes now.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Ready when it may take more.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Writable for TcpStream {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_write_ready(self, cx)
    }
}
