//! Header blocks from the peer: heads and trailers.

use super::super::error::{ErrorCode, Fatal};
use super::super::flow::{ReceiveWindow, SendWindow, WINDOW_INITIAL};
use super::super::frame::{self, FrameHeader, flag};
use super::super::head::{Collector, HeadFault};
use super::super::stream::{Key, Side, Stream};
use super::state::{
    BROKEN_BLOCK, BlockHead, Connection, Event, FRAME_SIZE, Handled, HeaderBlock, Reading, WRONG_STREAM,
};

/// Bytes of a header block that a connection takes at least; it takes more if heads may have more. Beyond, it ends.
pub const BLOCK_BYTES_MIN: usize = 64 * 1024;

/// CONTINUATION frames of a header block. Beyond, the connection ends (CVE-2024-27316).
pub const CONTINUATIONS_MAX: u32 = 32;

impl<S: Default> Connection<S> {
    /// RFC 9113, section 6.2.
    pub(super) fn headers(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Handled {
        if header.stream.is_multiple_of(2) {
            return Err(WRONG_STREAM);
        }
        let mut fragment = payload;
        if header.has(flag::PADDED) {
            let (&padding, rest) = fragment.split_first().ok_or(FRAME_SIZE)?;
            let len = rest.len().checked_sub(padding.into()).ok_or(Fatal::protocol("padding that is too long"))?;
            fragment = &rest[..len];
        }
        let mut is_circular = false;
        if header.has(flag::PRIORITY) {
            is_circular = frame::number(fragment) == header.stream;
            fragment = fragment.get(5..).ok_or(FRAME_SIZE)?;
        }
        let head = BlockHead { stream: header.stream, ends: header.has(flag::END_STREAM), is_circular };
        if header.has(flag::END_HEADERS) {
            return self.block(head, fragment, out);
        }
        self.reading = Reading::Block(Box::new(HeaderBlock { head, bytes: fragment.to_vec(), frames: 0 }));
        Ok(None)
    }

    /// RFC 9113, section 6.10.
    pub(super) fn continuation(&mut self, header: FrameHeader, fragment: &[u8], out: &mut Vec<u8>) -> Handled {
        let bytes_max = BLOCK_BYTES_MIN.max(self.config.max_head_bytes.saturating_mul(2));
        let Reading::Block(block) = &mut self.reading else { return Err(BROKEN_BLOCK) };
        if block.head.stream != header.stream {
            return Err(BROKEN_BLOCK);
        }
        block.frames += 1;
        if block.frames > CONTINUATIONS_MAX || block.bytes.len() + fragment.len() > bytes_max {
            return Err(Fatal::ENDLESS_HEAD);
        }
        block.bytes.extend_from_slice(fragment);
        if !header.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let (head, bytes) = (block.head, std::mem::take(&mut block.bytes));
        self.reading = Reading::Frame;
        self.block(head, &bytes, out)
    }

    /// A whole header block. It is decoded in any case: the table is for all streams.
    fn block(&mut self, head: BlockHead, bytes: &[u8], out: &mut Vec<u8>) -> Handled {
        let id = head.stream;
        let key = self.streams.find(id);
        let is_new = id > self.last_id;
        if key.is_none() && !is_new {
            match self.streams.end_of(id) {
                Some(true) => {}
                Some(false) => return Err(Fatal::new(ErrorCode::StreamClosed, "a head on a stream that has ended")),
                None => return Err(WRONG_STREAM),
            }
        }
        let mut collector = Collector::new(self.config, !is_new, self.head_bytes, self.head_fields);
        let decoded = self.decoder.decode(bytes, |name, value| collector.field(name, value));
        decoded.map_err(|_| Fatal::new(ErrorCode::Compression, "a header block that cannot be decoded"))?;
        self.idle_frames = 0;
        match key {
            Some(key) => self.trailers(key, head, collector, out),
            None if is_new => self.head(head, collector, out),
            None => Ok(None),
        }
    }

    fn head(&mut self, block: BlockHead, collector: Collector, out: &mut Vec<u8>) -> Handled {
        self.last_id = block.stream;
        if block.stream > self.last_served_id {
            return Ok(None);
        }
        let max = self.config.max_streams as usize;
        // Streams that were reset and not released yet count beyond twice as many.
        if self.streams.len() >= max && (self.streams.len() >= 2 * max || self.streams.open() >= max) {
            return self.stream_error(block.stream, ErrorCode::RefusedStream, out);
        }
        let mut head = collector.into_head(block.ends);
        if block.is_circular {
            head.fault = Some(HeadFault::Malformed("a stream that depends on itself"));
        }
        (self.head_bytes, self.head_fields) = head.sizes();
        let key = self.streams.insert(Stream {
            id: block.stream,
            is_receiving: !block.ends,
            is_sending: true,
            reset_by: None,
            is_answered: false,
            send: SendWindow::new(self.initial_window),
            receive: ReceiveWindow::new(WINDOW_INITIAL),
            body_remaining: head.content_length,
            owner: S::default(),
        });
        Ok(Some(Event::Head { key, head, has_ended: block.ends }))
    }

    fn trailers(&mut self, key: Key, block: BlockHead, collector: Collector, out: &mut Vec<u8>) -> Handled {
        let Some(stream) = self.streams.get_mut(key) else { return Ok(None) };
        if stream.reset_by == Some(Side::Here) {
            return Ok(None);
        }
        if stream.reset_by.is_some() || !stream.is_receiving {
            return self.stream_error(block.stream, ErrorCode::StreamClosed, out);
        }
        let is_whole = block.ends && stream.body_remaining.is_none_or(|remaining| remaining == 0);
        match collector.into_trailers() {
            Ok(trailers) if is_whole => {
                stream.is_receiving = false;
                Ok(Some(Event::Trailers { key, trailers }))
            }
            _ => self.stream_error(block.stream, ErrorCode::Protocol, out),
        }
    }
}
