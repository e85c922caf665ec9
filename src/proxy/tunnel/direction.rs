//! One direction of a tunnel: reads, writes, and tells the other side of the end.

use std::task::{Context, Poll, ready};

use crate::net::buffer::{Buffer, Buffers, Out, PENDING_MAX};
use crate::net::end::End;

/// Which side of a way broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broke {
    Source,
    Sink,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Way {
    input: Buffer,
    out: Out,
    stage: Stage,
    /// Bytes read and written so far, and the end; tells whether anything moves.
    pub(super) moved: u64,
    /// Bytes that came from the source.
    pub(super) taken: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The source has ended, which the sink has to be told.
    Ending,
    Over(Option<Broke>),
}

impl Way {
    /// One that begins with what was read already, after what waits to be written.
    pub(super) fn new(input: Buffer, out: Out) -> Self {
        Self { input, out, ..Self::default() }
    }

    /// Moves on as far as it goes now. Ready once nothing more goes this way.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl End,
        to: &mut impl End,
        buffers: &Buffers,
    ) -> Poll<Result<(), Broke>> {
        loop {
            if let Stage::Over(broke) = self.stage {
                return Poll::Ready(broke.map_or(Ok(()), Err));
            }
            let before = self.out.pending();
            let written = to.poll_write(cx, &mut self.out, buffers);
            self.moved += (before - self.out.pending()) as u64;
            if ready!(written).is_err() {
                self.stage = Stage::Over(Some(Broke::Sink));
                continue;
            }
            self.out.clear();
            self.out.release(buffers);
            if self.stage == Stage::Ending {
                let finished = ready!(to.poll_finish(cx, buffers));
                self.stage = Stage::Over(finished.is_err().then_some(Broke::Sink));
                continue;
            }
            ready!(self.poll_take(cx, from, buffers));
        }
    }

    /// Reads what there is, up to a bound.
    fn poll_take(&mut self, cx: &mut Context<'_>, from: &mut impl End, buffers: &Buffers) -> Poll<()> {
        self.hand_on(buffers);
        while self.stage == Stage::Open && self.out.pending() < PENDING_MAX {
            match from.poll_read(cx, &mut self.input, buffers) {
                Poll::Ready(Ok(0)) => (self.stage, self.moved) = (Stage::Ending, self.moved + 1),
                Poll::Ready(Ok(len)) => self.moved += len as u64,
                Poll::Ready(Err(_)) => self.stage = Stage::Over(Some(Broke::Source)),
                Poll::Pending if self.out.pending() == 0 => return Poll::Pending,
                Poll::Pending => return Poll::Ready(()),
            }
            self.hand_on(buffers);
        }
        Poll::Ready(())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    fn hand_on(&mut self, buffers: &Buffers) {
        let len = self.input.unread().len();
        if len > 0 {
            self.out.prepare(buffers);
            self.out.bytes().extend_from_slice(self.input.unread());
            self.input.consume(len);
            self.taken += len as u64;
        }
    }
}
