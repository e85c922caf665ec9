//! Records on their way to a client's socket, in a buffer of the worker.

use std::io;

use rustls::unbuffered::{EncodeError, EncryptError, InsufficientSizeError};

use super::super::buffer::{Buffers, Writable};

/// Less than this is moved to memory of its size.
const SMALL: usize = 16 * 1024;

/// Records that are to be sent.
#[derive(Default)]
pub(super) struct Sealed {
    /// All of it can be written to.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// What a writer of records says when the room was too small for them.
pub(super) trait TooSmall {
    fn required(&self) -> Option<usize>;
}

impl TooSmall for EncodeError {
    fn required(&self) -> Option<usize> {
        let Self::InsufficientSize(InsufficientSizeError { required_size }) = self else { return None };
        Some(*required_size)
    }
}

impl TooSmall for EncryptError {
    fn required(&self) -> Option<usize> {
        let Self::InsufficientSize(InsufficientSizeError { required_size }) = self else { return None };
        Some(*required_size)
    }
}

impl Sealed {
    /// What has not been sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Appends what `write` writes, in more room if it says so. Says whether it did.
    pub(super) fn put<E: TooSmall>(
        &mut self,
        buffers: &Buffers,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> bool {
        if self.bytes.is_empty() {
            self.bytes = buffers.take_sealed();
        }
        let mut written = write(&mut self.bytes[self.end..]);
        if let Some(required) = written.as_ref().err().and_then(TooSmall::required) {
            self.bytes.resize(self.end + required, 0);
            written = write(&mut self.bytes[self.end..]);
        }
        self.end += written.as_ref().copied().unwrap_or(0);
        written.is_ok()
    }

    /// While it waits for the client, a little takes little memory.
    fn shrink(&mut self, buffers: &Buffers) {
        let len = self.end - self.start;
        if len < SMALL && self.bytes.len() > 2 * SMALL {
            let rest = self.unsent().to_vec();
            (self.start, self.end) = (0, len);
            buffers.put_sealed(std::mem::replace(&mut self.bytes, rest));
        }
    }

    /// Sends what the socket takes, and says whether that was all.
    pub(super) fn try_send(&mut self, socket: &impl Writable, buffers: &Buffers) -> io::Result<bool> {
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
