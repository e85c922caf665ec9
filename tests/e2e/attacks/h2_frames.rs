//! HTTP/2 by hand: frames as bytes, so that they can be wrong.

use std::io::Read;
use std::net::SocketAddr;

use crate::support::Client;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// One HTTP/2 connection to Weir.
pub struct H2 {
    pub client: Client,
}

/// A frame as it came.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// What became of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Status(u16),
    Reset,
    /// The connection ended, with or without a GOAWAY.
    Gone,
}

/// The fields of a clean request but its path.
pub const CLEAN: [(&[u8], &[u8]); 3] = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"weir.test")];

impl H2 {
    pub fn connect(address: SocketAddr) -> Self {
        let mut h2 = Self { client: Client::connect(address) };
        h2.client.send(opening());
        h2
    }

    /// Sends bytes; that the other side has closed shows in what is read.
    pub fn send(&mut self, bytes: &[u8]) -> &mut Self {
        let _ = std::io::Write::write_all(self.client.stream(), bytes);
        self
    }

    /// Sends a request without a body.
    pub fn get(&mut self, stream: u32, fields: &[(&[u8], &[u8])]) -> &mut Self {
        self.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(fields)))
    }

    /// Sends the head of a request that has a body.
    pub fn head(&mut self, stream: u32, fields: &[(&[u8], &[u8])]) -> &mut Self {
        self.send(&frame(HEADERS, END_HEADERS, stream, &block(fields)))
    }

    pub fn data(&mut self, stream: u32, bytes: &[u8], flags: u8) -> &mut Self {
        self.send(&frame(DATA, flags, stream, bytes))
    }

    /// The next frame; none at the end of the stream, or if it is reset.
    pub fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        let reader = self.client.reader();
        reader.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        reader.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The stream and the status of the next head.
    pub fn next_status(&mut self) -> (u32, u16) {
        loop {
            let frame = self.next().expect("a frame");
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
            if frame.kind == HEADERS {
                return (frame.stream, status(&frame.payload));
            }
        }
    }

    /// Reads until it is clear what became of a stream.
    pub fn fate(&mut self, stream: u32) -> Fate {
        while let Some(frame) = self.next() {
            match frame.kind {
                HEADERS if frame.stream == stream => return Fate::Status(status(&frame.payload)),
                RST_STREAM if frame.stream == stream => return Fate::Reset,
                GOAWAY => return Fate::Gone,
                SETTINGS if frame.flags & ACK == 0 => {
                    self.send(&self::frame(SETTINGS, ACK, 0, b""));
                }
                _ => {}
            }
        }
        Fate::Gone
    }
}

/// What every connection begins with.
pub fn opening() -> Vec<u8> {
    // A header table of no bytes, so that what Weir answers can be read one by one.
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])[..]].concat()
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = stream.to_be_bytes();
    [&len[1..], &[kind, flags], &stream, payload].concat()
}

/// Fields, each as a literal that is not indexed (RFC 7541, section 6.2.2).
pub fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// RFC 7541, section 5.1, with a prefix of 7 bits.
fn integer(block: &mut Vec<u8>, mut value: usize) {
    if value < 127 {
        block.push(value as u8);
        return;
    }
    block.push(127);
    value -= 127;
    while value >= 128 {
        block.push((value % 128) as u8 | 128);
        value /= 128;
    }
    block.push(value as u8);
}

/// The status at the front of a block that refers to no table but the static one.
fn status(block: &[u8]) -> u16 {
    let block = &block[block.iter().take_while(|&&byte| byte & 0xe0 == 0x20).count()..];
    match block {
        [byte @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(byte - 0x88)],
        // `:status` as a literal; its digits as they are, or in Huffman's code: 5 bits up to 2, then 6.
        [0x48 | 0x08 | 0x18, len, text @ ..] if len & 0x80 != 0 => huffman_digits(&text[..usize::from(len & 0x7f)]),
        [0x48 | 0x08 | 0x18, _, text @ ..] => String::from_utf8_lossy(&text[..3]).parse().unwrap(),
        _ => panic!("no status in {block:02x?}"),
    }
}

fn huffman_digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let value = |bits: &[u8]| bits.iter().fold(0, |value, bit| value << 1 | u16::from(*bit));
    let (mut at, mut status) = (0, 0);
    for _ in 0..3 {
        let five = value(&bits[at..at + 5]);
        let (digit, len) = if five < 3 { (five, 5) } else { (value(&bits[at..at + 6]) - 0x19 + 3, 6) };
        status = status * 10 + digit;
        at += len;
    }
    status
}

/// What a clean request on a new HTTP/2 connection comes to.
pub fn probe(address: SocketAddr, path: &str) -> Fate {
    let mut h2 = H2::connect(address);
    let path = (&b":path"[..], path.as_bytes());
    h2.get(1, &[&CLEAN[..], &[path]].concat()).fate(1)
}
