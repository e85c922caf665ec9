//! TLS records that wait to be sent to a client, in a buffer of the worker.

use std::io;

use crate::transport::net::buffer::{BufferPool, Writable};
use rustls::unbuffered::{EncodeError, EncryptError, InsufficientSizeError};

/// Bytes below which records move to memory of their size.
const SMALL: usize = 16 * 1024;

/// TLS records that wait to be sent.
#[derive(Default)]
pub(super) struct Sealed {
    /// Its whole length can be written to.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// An error of rustls that may ask for a larger buffer.
pub(super) trait RequiredSize {
    fn required(&self) -> Option<usize>;
}

impl RequiredSize for EncodeError {
    fn required(&self) -> Option<usize> {
        let Self::InsufficientSize(InsufficientSizeError { required_size }) = self else { return None };
        Some(*required_size)
    }
}

impl RequiredSize for EncryptError {
    fn required(&self) -> Option<usize> {
        let Self::InsufficientSize(InsufficientSizeError { required_size }) = self else { return None };
        Some(*required_size)
    }
}

impl Sealed {
    /// The bytes that wait to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Appends the records of `write`, in a larger buffer if it asks for one. Returns whether it succeeded.
    pub(super) fn put<E: RequiredSize>(
        &mut self,
        buffers: &BufferPool,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> bool {
        if self.bytes.is_empty() {
            self.bytes = buffers.take_sealed();
        }
        let mut written = write(&mut self.bytes[self.end..]);
        if let Some(required) = written.as_ref().err().and_then(RequiredSize::required) {
            self.bytes.resize(self.end + required, 0);
            written = write(&mut self.bytes[self.end..]);
        }
        self.end += written.as_ref().copied().unwrap_or(0);
        written.is_ok()
    }

    /// Moves a few bytes to little memory while the client does not read.
    fn shrink(&mut self, buffers: &BufferPool) {
        let len = self.end - self.start;
        if len < SMALL && self.bytes.len() > 2 * SMALL {
            let rest = self.unsent().to_vec();
            (self.start, self.end) = (0, len);
            buffers.put_sealed(std::mem::replace(&mut self.bytes, rest));
        }
    }

    /// Sends until the socket accepts no more. Returns whether all is sent.
    pub(super) fn try_send(&mut self, socket: &impl Writable, buffers: &BufferPool) -> io::Result<bool> {
        while self.start < self.end {
            match socket.try_write(self.unsent()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => self.start += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.shrink(buffers);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        if !self.bytes.is_empty() {
            (self.start, self.end) = (0, 0);
            buffers.put_sealed(std::mem::take(&mut self.bytes));
        }
        Ok(true)
    }
}
