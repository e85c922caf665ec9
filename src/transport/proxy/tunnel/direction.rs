//! One direction of a tunnel: reads, writes, and forwards the end.

use std::task::{Context, Poll, ready};

use crate::transport::net::buffer::{BufferPool, InputBuffer, OutputBuffer, PENDING_MAX};
use crate::transport::net::duplex::Duplex;

/// The side of a direction that broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokenSide {
    Source,
    Sink,
}

/// One direction of a tunnel.
#[derive(Debug, Default)]
pub(super) struct Direction {
    input: InputBuffer,
    out: OutputBuffer,
    state: DirectionState,
    /// Bytes read and written, and one for the end; changes on any progress.
    pub(super) progress: u64,
    /// Bytes read from the source.
    pub(super) bytes_read: u64,
    /// The sink takes nothing more now.
    is_blocked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DirectionState {
    #[default]
    Open,
    /// The source has ended, and the sink does not know yet.
    Ending,
    Over(Option<BrokenSide>),
}

impl Direction {
    /// A direction with input that was read before, and output that waits.
    pub(super) fn new(input: InputBuffer, out: OutputBuffer) -> Self {
        Self { input, out, ..Self::default() }
    }

    /// Moves all bytes that can move now. Ready when the direction is over. `before_end` gets the bytes read from the
    /// source, before the sink hears of their end.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl Duplex,
        to: &mut impl Duplex,
        buffers: &BufferPool,
        before_end: &mut impl FnMut(u64),
    ) -> Poll<Result<(), BrokenSide>> {
        loop {
            if let DirectionState::Over(broke) = self.state {
                return Poll::Ready(broke.map_or(Ok(()), Err));
            }
            let before = self.out.pending();
            let written = to.poll_write(cx, &mut self.out, buffers);
            self.progress += (before - self.out.pending()) as u64;
            self.is_blocked = written.is_pending();
            if ready!(written).is_err() {
                self.state = DirectionState::Over(Some(BrokenSide::Sink));
                continue;
            }
            self.out.clear();
            self.out.release(buffers);
            if self.state == DirectionState::Ending {
                before_end(self.bytes_read);
                let finished = ready!(to.poll_finish(cx, buffers));
                self.state = DirectionState::Over(finished.is_err().then_some(BrokenSide::Sink));
                continue;
            }
            ready!(self.poll_read(cx, from, buffers));
        }
    }

    /// Reads available bytes, up to [`PENDING_MAX`] of output.
    fn poll_read(&mut self, cx: &mut Context<'_>, from: &mut impl Duplex, buffers: &BufferPool) -> Poll<()> {
        self.copy_input(buffers);
        while self.state == DirectionState::Open && self.out.pending() < PENDING_MAX {
            match from.poll_read(cx, &mut self.input, buffers) {
                Poll::Ready(Ok(0)) => (self.state, self.progress) = (DirectionState::Ending, self.progress + 1),
                Poll::Ready(Ok(len)) => self.progress += len as u64,
                Poll::Ready(Err(_)) => self.state = DirectionState::Over(Some(BrokenSide::Source)),
                Poll::Pending if self.out.pending() == 0 => return Poll::Pending,
                Poll::Pending => return Poll::Ready(()),
            }
            self.copy_input(buffers);
        }
        Poll::Ready(())
    }

    /// Bytes that wait for the sink, and those of the memory in which they wait.
    pub(super) fn untaken(&self) -> (usize, usize) {
        let bytes = if self.is_blocked { self.out.pending().max(1) } else { 0 }; // records of TLS may wait elsewhere
        (bytes, self.input.memory() + self.out.memory())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, DirectionState::Over(_))
    }

    fn copy_input(&mut self, buffers: &BufferPool) {
        let len = self.input.unread().len();
        if len > 0 {
            self.out.prepare(buffers);
            self.out.bytes().extend_from_slice(self.input.unread());
            self.input.consume(len);
            self.bytes_read += len as u64;
        }
    }
}
