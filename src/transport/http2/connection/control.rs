//! Frames from the peer that carry neither heads nor bodies.

use super::super::error::{ErrorCode, Fatal};
use super::super::frame::{self, FrameHeader, flag};
use super::super::settings;
use super::super::stream::Side;
use super::state::{Connection, Event, FRAME_SIZE, Handled, WRONG_STREAM};

impl<S> Connection<S> {
    /// Checks and counts a frame that must be on the connection itself, and whose length may be right.
    fn connection_frame(&mut self, header: FrameHeader, has_length: bool) -> Result<(), Fatal> {
        match (header.stream, has_length) {
            (0, true) => self.idle_frame(),
            (0, false) => Err(FRAME_SIZE),
            _ => Err(WRONG_STREAM),
        }
    }

    /// RFC 9113, section 6.3: no more than a check.
    pub(super) fn priority(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Handled {
        if header.stream == 0 {
            return Err(WRONG_STREAM);
        }
        self.idle_frame()?;
        if header.len != 5 {
            // A reset of an idle stream would be a mistake of this side.
            if self.is_idle(header.stream) {
                return Err(FRAME_SIZE);
            }
            return self.stream_error(header.stream, ErrorCode::FrameSize, out);
        }
        if frame::number(payload) == header.stream {
            return Err(Fatal::protocol("a stream that depends on itself"));
        }
        Ok(None)
    }

    /// RFC 9113, section 6.4.
    pub(super) fn rst_stream(&mut self, header: FrameHeader) -> Handled {
        if header.stream == 0 || self.is_idle(header.stream) {
            return Err(WRONG_STREAM);
        }
        if header.len != 4 {
            return Err(FRAME_SIZE);
        }
        self.idle_frame()?;
        match self.streams.find(header.stream) {
            Some(key) => self.abandon(key, Side::Peer),
            None => Ok(None),
        }
    }

    /// RFC 9113, section 6.5.
    pub(super) fn settings(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Handled {
        let is_ack = header.has(flag::ACK);
        self.connection_frame(header, if is_ack { header.len == 0 } else { header.len.is_multiple_of(6) })?;
        if is_ack {
            return Ok(None);
        }
        let before = self.initial_window;
        self.initial_window = settings::initial_window(before, payload)?;
        self.has_settings = true;
        frame::settings_ack(out);
        let change = i64::from(self.initial_window) - i64::from(before);
        if change == 0 {
            return Ok(None);
        }
        for stream in self.streams.iter_mut() {
            if stream.send.change(change).is_err() {
                return Err(Fatal::new(ErrorCode::FlowControl, "a window that is too large"));
            }
        }
        Ok(Some(Event::WindowsChanged))
    }

    /// RFC 9113, section 6.7.
    pub(super) fn pinged(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Handled {
        self.connection_frame(header, header.len == 8)?;
        if header.has(flag::ACK) {
            return Ok(Some(Event::Pong));
        }
        frame::ping(out, *payload.first_chunk().ok_or(FRAME_SIZE)?, true);
        Ok(None)
    }

    /// RFC 9113, section 6.8.
    pub(super) fn goaway(&mut self, header: FrameHeader) -> Handled {
        self.connection_frame(header, header.len >= 8)?;
        Ok(Some(Event::GoAway))
    }

    /// RFC 9113, section 6.9.
    pub(super) fn window_update(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Handled {
        if header.len != 4 {
            return Err(FRAME_SIZE);
        }
        self.idle_frame()?;
        let increment = frame::number(payload);
        if header.stream == 0 {
            if increment == 0 {
                return Err(Fatal::protocol("a window that grows by nothing"));
            }
            let overflow = Fatal::new(ErrorCode::FlowControl, "a window that is too large");
            self.send.change(increment.into()).map_err(|_| overflow)?;
            return Ok(Some(Event::WindowOpened { key: None }));
        }
        if self.is_idle(header.stream) {
            return Err(WRONG_STREAM);
        }
        let Some(key) = self.streams.find(header.stream) else { return Ok(None) };
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.reset_by.is_none()) else {
            return Ok(None);
        };
        if increment == 0 {
            return self.stream_error(header.stream, ErrorCode::Protocol, out);
        }
        if stream.send.change(increment.into()).is_err() {
            return self.stream_error(header.stream, ErrorCode::FlowControl, out);
        }
        Ok(Some(Event::WindowOpened { key: Some(key) }))
    }
}
