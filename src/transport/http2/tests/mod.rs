//! Whole connections: what a peer sends, as frames, and what comes of it.

mod cuts;
mod differential;
mod rules;
mod sending;

use super::*;

pub(super) const CONFIG: Config =
    Config { max_streams: 4, max_head_bytes: 16 * 1024, max_fields: 100, takes_protocol: false };

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const WITH_PRIORITY: u8 = 0x20;

/// A frame as bytes.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Fields, `name=value` each, as literals.
pub(super) fn block(fields: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields.split('|').filter_map(|field| field.split_once('=')) {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}

pub(super) const GET: &str = ":method=GET|:scheme=http|:authority=a|:path=/";

/// The head of a request without a body.
pub(super) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(GET))
}

/// The head of a request that a body follows.
pub(super) fn post(stream: u32, more: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&format!("{GET}|{more}")))
}

pub(super) fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// A connection and what it has come to.
pub(super) struct Lab {
    pub(super) connection: Connection<Option<Key>>,
    pub(super) out: Vec<u8>,
    /// Events, a line each.
    pub(super) events: Vec<String>,
    pub(super) fatal: Option<Fatal>,
    input: Vec<u8>,
}

impl Lab {
    pub(super) fn new(config: Config) -> Self {
        let mut out = Vec::new();
        let connection = Connection::new(config, &mut out);
        out.clear();
        Self { connection, out, events: Vec::new(), fatal: None, input: Vec::new() }
    }

    /// A connection that has said its settings.
    pub(super) fn open() -> Self {
        let mut lab = Self::new(CONFIG);
        lab.say(&opening());
        assert_eq!((lab.fatal, std::mem::take(&mut lab.out)), (None, frame(SETTINGS, ACK, 0, &[])));
        lab
    }

    /// Hands bytes over, which may be cut anywhere.
    pub(super) fn say(&mut self, bytes: &[u8]) -> &mut Self {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while self.fatal.is_none() {
            match self.connection.receive(&input[at..], &mut self.out) {
                Ok(Step { consumed: 0, event: None }) => break,
                Ok(Step { consumed, event }) => {
                    at += consumed;
                    if let Some(event) = event {
                        self.event(event);
                    }
                }
                Err(fatal) => self.fatal = Some(fatal),
            }
        }
        self.input = input[at..].to_vec();
        self
    }

    fn event(&mut self, event: Event<'_>) {
        let line = match event {
            Event::Head { key, head, has_ended } => {
                *self.connection.get_mut(key).unwrap() = Some(key);
                let mut fields = Vec::new();
                head.fields().write_lines(&mut fields, |_| true);
                let fault = head.fault.map(|fault| format!(" {fault:?}")).unwrap_or_default();
                let method = String::from_utf8_lossy(head.method()).into_owned();
                let path = String::from_utf8_lossy(head.path()).into_owned();
                format!("{} {method} {path} {has_ended} {}{fault}", key.id(), fields.escape_ascii())
            }
            Event::Data { key, data, has_ended } => {
                let line = format!("{} data {} {has_ended}", key.id(), data.escape_ascii());
                self.connection.consume(key, data.len(), &mut self.out);
                line
            }
            Event::Trailers { key, trailers } => {
                let mut fields = Vec::new();
                trailers.fields().write_lines(&mut fields, |_| true);
                format!("{} trailers {}", key.id(), fields.escape_ascii())
            }
            Event::Reset { key } => format!("{} reset", key.id()),
            Event::WindowOpened { key } => format!("{} window", key.map_or(0, Key::id)),
            Event::WindowsChanged => "windows".into(),
            Event::Pong => "pong".into(),
            Event::GoAway => "goaway".into(),
        };
        self.events.push(line);
    }

    /// The key of an open stream.
    pub(super) fn key(&mut self, id: u32) -> Key {
        self.connection.owners_mut().flatten().find(|key| key.id() == id).copied().unwrap()
    }

    /// Ends a stream with a response of no body.
    pub(super) fn answer(&mut self, id: u32) -> &mut Self {
        let key = self.key(id);
        self.connection.write_head(key, &mut self.out, 200, true, |_| {});
        self.connection.release(key, &mut self.out);
        self
    }

    /// Frames that were written: kind, flags, stream, payload.
    pub(super) fn frames(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let out = std::mem::take(&mut self.out);
        let (mut rest, mut frames) = (&out[..], Vec::new());
        while let [a, b, c, kind, flags, d, e, f, g, after @ ..] = rest {
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            frames.push((*kind, *flags, u32::from_be_bytes([*d, *e, *f, *g]), after[..len].to_vec()));
            rest = &after[len..];
        }
        assert!(rest.is_empty());
        frames
    }
}
