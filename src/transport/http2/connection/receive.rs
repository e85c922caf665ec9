//! Frames from the peer: bytes in, events out. Here DATA; the others in files of their own.

use super::super::error::{ErrorCode, Fatal};
use super::super::frame::{FrameHeader, HEADER_LEN, Kind, PAYLOAD_MAX, PREFACE, flag};
use super::super::stream::{Key, Side};
use super::state::{BROKEN_BLOCK, Connection, Event, FRAME_SIZE, Reading, Step, WRONG_STREAM};

impl<S: Default> Connection<S> {
    /// Reads on, by one frame or a part of one. `input` begins where the last step ended.
    ///
    /// # Errors
    /// The connection ends: see [`Connection::fail`].
    pub fn receive<'i>(&mut self, input: &'i [u8], out: &mut Vec<u8>) -> Result<Step<'i>, Fatal> {
        match &mut self.reading {
            Reading::Preface => {
                let len = input.len().min(PREFACE.len());
                if input[..len] != PREFACE[..len] {
                    return Err(Fatal::protocol("no preface"));
                }
                if len < PREFACE.len() {
                    return Ok(Step { consumed: 0, event: None });
                }
                self.reading = Reading::Frame;
                Ok(Step { consumed: len, event: None })
            }
            Reading::Data { .. } if !input.is_empty() => Ok(self.data_piece(input, out)),
            Reading::Skip(remaining) => {
                let len = input.len().min(*remaining);
                *remaining -= len;
                if *remaining == 0 {
                    self.reading = Reading::Frame;
                }
                Ok(Step { consumed: len, event: None })
            }
            _ => self.frame(input, out),
        }
    }

    fn frame<'i>(&mut self, input: &'i [u8], out: &mut Vec<u8>) -> Result<Step<'i>, Fatal> {
        let Some(header) = FrameHeader::parse(input) else { return Ok(Step { consumed: 0, event: None }) };
        if header.len > PAYLOAD_MAX {
            return Err(FRAME_SIZE);
        }
        if !self.has_settings && (header.kind != Kind::Settings || header.has(flag::ACK)) {
            return Err(Fatal::protocol("no settings"));
        }
        if matches!(self.reading, Reading::Block(_)) && header.kind != Kind::Continuation {
            return Err(BROKEN_BLOCK);
        }
        match header.kind {
            Kind::Data => return self.data(header, input, out),
            Kind::Unknown => {
                self.idle_frame()?;
                if header.len > 0 {
                    self.reading = Reading::Skip(header.len);
                }
                return Ok(Step { consumed: HEADER_LEN, event: None });
            }
            _ => {}
        }
        let Some(payload) = input.get(HEADER_LEN..HEADER_LEN + header.len) else {
            return Ok(Step { consumed: 0, event: None });
        };
        let event = match header.kind {
            Kind::Headers => self.headers(header, payload, out)?,
            Kind::Continuation => self.continuation(header, payload, out)?,
            Kind::Priority => self.priority(header, payload, out)?,
            Kind::RstStream => self.rst_stream(header)?,
            Kind::Settings => self.settings(header, payload, out)?,
            Kind::Ping => self.pinged(header, payload, out)?,
            Kind::GoAway => self.goaway(header)?,
            Kind::WindowUpdate => self.window_update(header, payload, out)?,
            Kind::PushPromise | Kind::Data | Kind::Unknown => return Err(Fatal::protocol("a promise of a client")),
        };
        Ok(Step { consumed: HEADER_LEN + header.len, event })
    }

    /// RFC 9113, section 6.1.
    fn data<'i>(&mut self, header: FrameHeader, input: &'i [u8], out: &mut Vec<u8>) -> Result<Step<'i>, Fatal> {
        if header.stream == 0 || self.is_idle(header.stream) {
            return Err(WRONG_STREAM);
        }
        let (mut consumed, mut padding) = (HEADER_LEN, 0);
        if header.has(flag::PADDED) {
            if header.len == 0 {
                return Err(FRAME_SIZE);
            }
            let Some(len) = input.get(HEADER_LEN) else { return Ok(Step { consumed: 0, event: None }) };
            (consumed, padding) = (HEADER_LEN + 1, usize::from(*len));
            if padding >= header.len {
                return Err(Fatal::protocol("padding that is too long"));
            }
        }
        if self.receive.receive(header.len).is_err() {
            return Err(Fatal::new(ErrorCode::FlowControl, "more data than the connection's window"));
        }
        let overhead = consumed - HEADER_LEN + padding;
        let (len, ends) = (header.len - overhead, header.has(flag::END_STREAM));
        if len > 0 || ends {
            self.idle_frames = 0;
        } else {
            self.idle_frame()?;
        }
        let admitted = self.admit_data(header, len, ends);
        let (key, event) = match admitted {
            Ok(key) => (key, None),
            Err(code) => (None, self.stream_error(header.stream, code, out)?),
        };
        match key {
            // Only what is read of a body enlarges its window.
            Some(key) => self.consume_within(key, overhead, 0, out),
            None => self.consume_connection(overhead, out),
        }
        self.reading = Reading::Data { key, remaining: len, padding, ends };
        if len == 0 {
            let step = self.data_piece(&[], out);
            return Ok(Step { consumed, event: event.or(step.event) });
        }
        Ok(Step { consumed, event })
    }

    /// The stream that takes DATA of `len` bytes; none if it is late.
    fn admit_data(&mut self, header: FrameHeader, len: usize, ends: bool) -> Result<Option<Key>, ErrorCode> {
        let Some(key) = self.streams.find(header.stream) else {
            return if self.streams.end_of(header.stream) == Some(true) {
                Ok(None)
            } else {
                Err(ErrorCode::StreamClosed)
            };
        };
        let Some(stream) = self.streams.get_mut(key) else { return Ok(None) };
        if stream.reset_by == Some(Side::Here) {
            return Ok(None);
        }
        if stream.reset_by.is_some() || !stream.is_receiving {
            return Err(ErrorCode::StreamClosed);
        }
        stream.receive.receive(header.len).map_err(|_| ErrorCode::FlowControl)?;
        if let Some(remaining) = &mut stream.body_remaining {
            let after = remaining.checked_sub(len as u64).filter(|after| !ends || *after == 0);
            let Some(after) = after else {
                stream.receive.consume(header.len, 0); // it is dropped
                return Err(ErrorCode::Protocol);
            };
            *remaining = after;
        }
        Ok(Some(key))
    }

    fn data_piece<'i>(&mut self, input: &'i [u8], out: &mut Vec<u8>) -> Step<'i> {
        let Reading::Data { key, remaining, padding, ends } = &mut self.reading else {
            return Step { consumed: 0, event: None };
        };
        let data = &input[..input.len().min(*remaining)];
        *remaining -= data.len();
        let (key, ends) = (*key, *ends && *remaining == 0);
        if *remaining == 0 {
            self.reading = if *padding > 0 { Reading::Skip(*padding) } else { Reading::Frame };
        }
        let Some(key) = key else {
            self.consume_connection(data.len(), out);
            return Step { consumed: data.len(), event: None };
        };
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.reset_by.is_none()) else {
            self.consume(key, data.len(), out);
            return Step { consumed: data.len(), event: None };
        };
        stream.is_receiving &= !ends;
        let event = (!data.is_empty() || ends).then_some(Event::Data { key, data, has_ended: ends });
        Step { consumed: data.len(), event }
    }
}
