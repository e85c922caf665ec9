//! Buffers for input and output, shared by the connections of a worker. An idle connection holds none.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::base::telemetry::ByteCells;

/// Capacity of a new buffer, in bytes. Most messages fit.
const SIZE: usize = 4 * 1024;
/// Capacity that a buffer grows to while a body passes through it, in bytes.
const SIZE_MAX: usize = 64 * 1024;
/// Free bytes below which a buffer grows before the next read.
const READ_MIN: usize = 512;
/// Buffers in the pool; further ones are freed.
const POOLED_MAX: usize = 512;
/// Bytes of a buffer for TLS records: one full write with the overhead of TLS.
const SEALED_SIZE: usize = SIZE_MAX + 1024;
/// Buffers for TLS records in the pool. A socket that accepts all of a write needs one for a moment.
const SEALED_POOLED_MAX: usize = 4;

/// The pool of unused buffers of one worker.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    pool: RefCell<Vec<Vec<u8>>>,
    sealed: RefCell<Vec<Vec<u8>>>,
    /// The bytes from and to the worker's clients.
    pub(crate) client_bytes: ByteCells,
}

impl BufferPool {
    /// An empty pool of a worker that counts the bytes of its clients in `client_bytes`.
    pub(crate) fn new(client_bytes: ByteCells) -> Self {
        Self { client_bytes, ..Self::default() }
    }

    /// Returns an empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.pool.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(SIZE))
    }

    /// Returns a buffer for TLS records. It is full of old bytes, so that it need not be cleared each time.
    pub(crate) fn take_sealed(&self) -> Vec<u8> {
        self.sealed.borrow_mut().pop().unwrap_or_else(|| vec![0; SEALED_SIZE])
    }

    /// Takes a buffer for TLS records back.
    pub(crate) fn put_sealed(&self, bytes: Vec<u8>) {
        let mut pool = self.sealed.borrow_mut();
        if bytes.len() == SEALED_SIZE && pool.len() < SEALED_POOLED_MAX {
            pool.push(bytes);
        }
    }

    /// Takes a buffer back. A buffer that has grown, or has no memory, is freed.
    pub(crate) fn put(&self, mut bytes: Vec<u8>) {
        let mut pool = self.pool.borrow_mut();
        if (SIZE..=2 * SIZE).contains(&bytes.capacity()) && pool.len() < POOLED_MAX {
            bytes.clear();
            pool.push(bytes);
        }
    }
}

/// Bytes that were read from a socket and are not consumed yet.
#[derive(Debug, Default)]
pub(crate) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl InputBuffer {
    /// The bytes that are not consumed yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The bytes that are not consumed yet, for changes in place.
    pub(crate) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// Appends bytes that did not come from the socket.
    pub(crate) fn extend(&mut self, bytes: &[u8], buffers: &BufferPool) {
        if !self.has_memory() {
            self.bytes = buffers.take();
        }
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether all bytes are consumed.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Consumes `len` bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.bytes.len());
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it holds memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.memory() > 0
    }

    /// Consumes the next `len` bytes together with their memory. Returns the memory and the offset of the bytes in it.
    /// The bytes after them move to another buffer.
    pub(crate) fn split(&mut self, len: usize, buffers: &BufferPool) -> (Vec<u8>, usize) {
        let (start, end) = (self.start, (self.start + len).min(self.bytes.len()));
        let mut rest = Vec::new();
        if end < self.bytes.len() {
            rest = buffers.take();
            rest.extend_from_slice(&self.bytes[end..]);
        }
        self.start = 0;
        (std::mem::replace(&mut self.bytes, rest), start)
    }

    /// Gives the memory back to the pool if all bytes are consumed. If few are left in a buffer that has grown, they
    /// move to a small one.
    pub(crate) fn release(&mut self, buffers: &BufferPool) {
        let left = self.unread().len();
        if left == 0 && self.has_memory() {
            self.start = 0;
            buffers.put(std::mem::take(&mut self.bytes));
        } else if left <= SIZE && self.bytes.capacity() > 2 * SIZE {
            let mut small = buffers.take();
            small.extend_from_slice(self.unread());
            (self.bytes, self.start) = (small, 0);
        }
    }

    /// Reads once; 0 at the end of the stream. The buffer grows if the last read filled it.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        if !self.has_memory() {
            self.bytes = buffers.take();
        }
        let was_filled = self.bytes.len() == self.bytes.capacity();
        if self.start > 0 && (self.is_empty() || was_filled) {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if self.bytes.capacity() - self.bytes.len() < READ_MIN || (was_filled && self.bytes.capacity() < SIZE_MAX) {
            self.bytes.reserve(self.bytes.capacity() + READ_MIN);
        }
        // The future has no state, so each poll may create a new one.
        pin!(stream.read_buf(&mut self.bytes)).poll(cx)
    }
}

/// Bytes that wait to be written to a socket.
#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

/// Pending bytes at which no more input is read.
pub(crate) const PENDING_MAX: usize = SIZE_MAX;

impl OutputBuffer {
    /// The buffer to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Number of bytes that wait to be written.
    pub(crate) fn pending(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes that wait to be written.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Marks the next `len` bytes as written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.sent = (self.sent + len).min(self.bytes.len());
    }

    /// Whether no byte was written.
    pub(crate) fn is_untouched(&self) -> bool {
        self.sent == 0
    }

    /// Removes all bytes, and keeps the memory if it is at most [`PENDING_MAX`].
    pub(crate) fn clear(&mut self) {
        self.sent = 0;
        if self.bytes.capacity() > PENDING_MAX { self.bytes = Vec::new() } else { self.bytes.clear() }
    }

    /// Drops the bytes that were written, if they are many.
    pub(crate) fn compact(&mut self) {
        if self.sent >= PENDING_MAX / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes memory from `buffers` if it holds none.
    pub(crate) fn prepare(&mut self, buffers: &BufferPool) {
        if self.bytes.capacity() == 0 {
            self.bytes = buffers.take();
        }
    }

    /// Gives the memory back to the pool if no byte waits.
    pub(crate) fn release(&mut self, buffers: &BufferPool) {
        if self.pending() == 0 && self.bytes.capacity() > 0 {
            self.sent = 0;
            buffers.put(std::mem::take(&mut self.bytes));
        }
    }

    /// Writes until the socket accepts no more; ready when all bytes are written. They stay in memory until
    /// [`OutputBuffer::clear`].
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

/// A socket with non-blocking writes.
pub(crate) trait Writable {
    /// Writes as many bytes as the socket accepts now, and returns their number.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Ready when the socket may accept more.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_buffer_does_not_stay_for_few_bytes() {
        let pool = BufferPool::default();
        for (left, capacity_max) in [(0, 0), (1, 2 * SIZE), (SIZE, 2 * SIZE), (SIZE + 1, SIZE_MAX)] {
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(SIZE_MAX).collect();
            let mut input = InputBuffer { bytes, start: 0 };
            input.consume(SIZE_MAX - left);
            let unread = input.unread().to_vec();
            input.release(&pool);
            assert_eq!(input.unread(), unread);
            assert!(input.bytes.capacity() <= capacity_max, "{left}: {}", input.bytes.capacity());
        }
    }
}
