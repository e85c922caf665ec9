//! HTTP/2 frames as bytes (RFC 9113, section 4).

use super::error::ErrorCode;

/// What the client sends first (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's header (RFC 9113, section 4.1).
pub(super) const HEADER_LEN: usize = 9;

/// Bytes of the longest payload, both ways: the least that `SETTINGS_MAX_FRAME_SIZE` can say, and its initial value
/// (RFC 9113, section 6.5.2).
pub(super) const PAYLOAD_MAX: usize = 16 * 1024;

/// `PAYLOAD_MAX` as it stands in settings.
pub(super) const PAYLOAD_MAX_SETTING: u32 = 16 * 1024;

/// Flags; some bits mean different things in different frames.
pub(super) mod flag {
    pub(in crate::transport::http2) const END_STREAM: u8 = 0x1;
    pub(in crate::transport::http2) const ACK: u8 = 0x1;
    pub(in crate::transport::http2) const END_HEADERS: u8 = 0x4;
    pub(in crate::transport::http2) const PADDED: u8 = 0x8;
    pub(in crate::transport::http2) const PRIORITY: u8 = 0x20;
}

/// The type of a frame (RFC 9113, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// An extension; ignored (RFC 9113, section 5.5).
    Unknown,
}

impl Kind {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::RstStream,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            _ => Self::Unknown,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Bytes of the payload.
    pub(super) len: usize,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    /// 0 for the connection.
    pub(super) stream: u32,
}

impl FrameHeader {
    /// Reads a header; none if fewer bytes have come.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let [a, b, c, kind, flags, stream @ ..] = *header;
        Some(Self {
            len: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind: Kind::of(kind),
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_MASK,
        })
    }

    /// Whether the flag is set.
    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The reserved bit of a stream identifier or an increment has no meaning (RFC 9113, section 4.1).
const STREAM_MASK: u32 = 0x7fff_ffff;

/// A big-endian number of 31 bits at the front of `payload`; 0 if there are fewer bytes.
pub(super) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes) & STREAM_MASK)
}

/// A header as bytes.
pub(super) fn header(kind: Kind, flags: u8, stream: u32, len: usize) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..3].copy_from_slice(&(len as u64).to_be_bytes()[5..]);
    (header[3], header[4]) = (kind as u8, flags);
    header[5..].copy_from_slice(&stream.to_be_bytes());
    header
}

/// Writes a frame with a short payload.
fn write(out: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&header(kind, flags, stream, payload.len()));
    out.extend_from_slice(payload);
}

/// Writes `RST_STREAM`.
pub(super) fn rst_stream(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write(out, Kind::RstStream, 0, stream, &(code as u32).to_be_bytes());
}

/// Writes a `WINDOW_UPDATE`; stream 0 is the connection.
pub(super) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, Kind::WindowUpdate, 0, stream, &increment.to_be_bytes());
}

/// Writes a PING, or the answer to one.
pub(super) fn ping(out: &mut Vec<u8>, payload: [u8; 8], is_ack: bool) {
    write(out, Kind::Ping, if is_ack { flag::ACK } else { 0 }, 0, &payload);
}

/// Writes a GOAWAY.
pub(super) fn goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode) {
    out.extend_from_slice(&header(Kind::GoAway, 0, 0, 8));
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Writes SETTINGS.
pub(super) fn settings(out: &mut Vec<u8>, settings: impl Iterator<Item = (u16, u32)>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
    let len = out.len() - start - HEADER_LEN;
    out[start..start + HEADER_LEN].copy_from_slice(&header(Kind::Settings, 0, 0, len));
}

/// Writes the acknowledgement of SETTINGS.
pub(super) fn settings_ack(out: &mut Vec<u8>) {
    write(out, Kind::Settings, flag::ACK, 0, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        for (kind, flags, stream, len) in [
            (Kind::Data, 0, 1, 0),
            (Kind::Headers, 0x25, 0x7fff_ffff, PAYLOAD_MAX),
            (Kind::Continuation, 0xff, 3, (1 << 24) - 1),
        ] {
            let bytes = header(kind, flags, stream, len);
            assert_eq!(FrameHeader::parse(&bytes), Some(FrameHeader { len, kind, flags, stream }));
            assert_eq!(FrameHeader::parse(&bytes[..8]), None);
        }
        // The reserved bit is ignored.
        let bytes = [0, 0, 0, 0xaa, 0, 0x80, 0, 0, 1];
        assert_eq!(FrameHeader::parse(&bytes), Some(FrameHeader { len: 0, kind: Kind::Unknown, flags: 0, stream: 1 }));
    }

    #[test]
    fn frames_are_written_as_the_rfc_draws_them() {
        let mut out = Vec::new();
        rst_stream(&mut out, 5, ErrorCode::Cancel);
        window_update(&mut out, 0, 0x0102_0304);
        ping(&mut out, *b"12345678", true);
        goaway(&mut out, 7, ErrorCode::Protocol);
        settings(&mut out, [(3, 100), (6, 1)].into_iter());
        settings_ack(&mut out);
        let expected: &[&[u8]] = &[
            &[0, 0, 4, 3, 0, 0, 0, 0, 5, 0, 0, 0, 8],
            &[0, 0, 4, 8, 0, 0, 0, 0, 0, 1, 2, 3, 4],
            &[0, 0, 8, 6, 1, 0, 0, 0, 0],
            b"12345678",
            &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1],
            &[0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100, 0, 6, 0, 0, 0, 1],
            &[0, 0, 0, 4, 1, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }
}
