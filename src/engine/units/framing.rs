//! The documents within a body: one, one in each line, or one in each event of a stream.

/// The form of a body, by its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One document of JSON.
    Json,
    /// A document in each line (NDJSON, JSON Lines).
    Lines,
    /// A document in the data of each event (HTML, section 9.2.6, `text/event-stream`).
    Events,
}

impl Form {
    /// The form of a Content-Type.
    pub(super) fn of(content_type: Option<&[u8]>) -> Self {
        let essence = content_type.and_then(|value| value.split(|byte| *byte == b';').next()).unwrap_or_default();
        let essence = essence.trim_ascii().to_ascii_lowercase();
        match &essence[..] {
            b"text/event-stream" => Self::Events,
            b"application/x-ndjson" | b"application/ndjson" | b"application/jsonl" | b"application/x-jsonlines" => {
                Self::Lines
            }
            _ => Self::Json,
        }
    }
}

/// A part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'b> {
    /// More of a document.
    Data(&'b [u8]),
    /// The rest of a document, whose end follows at once.
    Last(&'b [u8]),
    /// The end of a document.
    End,
}

/// The name of the field of an event that holds its data.
const DATA: &[u8] = b"data:";

/// The position within a line of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// Behind so many bytes of [`DATA`] that begin the line.
    Name(usize),
    /// Behind the name; a space may follow.
    Space,
    Data,
    /// In another field or a comment.
    Other,
}

/// Splits bodies into documents.
#[derive(Debug)]
pub(super) struct Splitter {
    form: Form,
    position: LinePosition,
    /// The last byte was a carriage return, which a line feed may follow.
    is_after_cr: bool,
    /// The event has data.
    has_data: bool,
}

impl Splitter {
    pub(super) fn new(form: Form) -> Self {
        Self { form, position: LinePosition::Name(0), is_after_cr: false, has_data: false }
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Calls `each` with the parts of the next bytes; with `stops`, up to the end of a document. Returns the other bytes.
    pub(super) fn push<'b>(&mut self, bytes: &'b [u8], stops: bool, each: &mut impl FnMut(Part<'_>)) -> &'b [u8] {
        match self.form {
            Form::Json => {
                each(Part::Data(bytes));
                &[]
            }
            Form::Lines => push_lines(bytes, stops, each),
            Form::Events => self.push_events(bytes, stops, each),
        }
    }

    fn push_events<'b>(&mut self, mut bytes: &'b [u8], stops: bool, each: &mut impl FnMut(Part<'_>)) -> &'b [u8] {
        while let [byte, rest @ ..] = bytes {
            let is_second = std::mem::take(&mut self.is_after_cr) && *byte == b'\n';
            if is_second {
                bytes = rest;
                continue;
            }
            if matches!(byte, b'\r' | b'\n') {
                self.is_after_cr = *byte == b'\r';
                bytes = rest;
                if self.end_line(each) && stops {
                    return bytes;
                }
                continue;
            }
            match self.position {
                LinePosition::Name(at) => {
                    self.position = match DATA.get(at) {
                        Some(expected) if expected == byte && at + 1 == DATA.len() => LinePosition::Space,
                        Some(expected) if expected == byte => LinePosition::Name(at + 1),
                        _ => LinePosition::Other,
                    };
                    if self.position == LinePosition::Space {
                        // Lines of one event are joined by line feeds, which are white space between tokens.
                        if std::mem::replace(&mut self.has_data, true) {
                            each(Part::Data(b"\n"));
                        }
                    }
                    bytes = rest;
                }
                LinePosition::Space => {
                    self.position = LinePosition::Data;
                    if *byte == b' ' {
                        bytes = rest;
                    }
                }
                LinePosition::Data | LinePosition::Other => {
                    let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
                    let (data, rest) = bytes.split_at(end);
                    if self.position == LinePosition::Data {
                        let is_last = rest.starts_with(b"\n\n") || rest.starts_with(b"\r\n\r\n");
                        each(if is_last { Part::Last(data) } else { Part::Data(data) });
                    }
                    bytes = rest;
                }
            }
        }
        bytes
    }

    /// Ends a line. An empty one ends the event. Returns whether an event with data has ended.
    fn end_line(&mut self, each: &mut impl FnMut(Part<'_>)) -> bool {
        let is_empty = std::mem::replace(&mut self.position, LinePosition::Name(0)) == LinePosition::Name(0);
        let ends = is_empty && std::mem::take(&mut self.has_data);
        if ends {
            each(Part::End);
        }
        ends
    }
}

fn push_lines<'b>(mut bytes: &'b [u8], stops: bool, each: &mut impl FnMut(Part<'_>)) -> &'b [u8] {
    while let Some(end) = memchr::memchr(b'\n', bytes) {
        each(Part::Last(&bytes[..end]));
        each(Part::End);
        bytes = &bytes[end + 1..];
        if stops {
            return bytes;
        }
    }
    each(Part::Data(bytes));
    &[]
}
