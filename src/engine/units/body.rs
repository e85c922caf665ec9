//! The reader of one body.

use std::sync::Arc;

use smallvec::SmallVec;

use super::framing::{Form, Part, Splitter};
use super::reading::{Reading, Unreadable};
use super::rule::BodyUnits;
use super::scanner::Scanner;

/// Whether the value of Content-Encoding changes a body.
pub(super) fn is_encoding(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
}

/// Reads the units of one body while it passes.
#[derive(Debug)]
pub struct UnitReader {
    rule: Arc<BodyUnits>,
    splitter: Splitter,
    scanner: Scanner,
    /// The body has a Content-Encoding.
    is_encoded: bool,
    /// A document was no JSON.
    is_broken: bool,
    /// The end of the body has come.
    is_whole: bool,
}

impl UnitReader {
    /// A reader of a body with these fields.
    pub fn new(rule: Arc<BodyUnits>, content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) -> Self {
        Self {
            scanner: Scanner::new(&rule.tree),
            rule,
            splitter: Splitter::new(Form::of(content_type)),
            is_encoded: content_encoding.is_some_and(is_encoding),
            is_broken: false,
            is_whole: false,
        }
    }

    /// Reads more of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.push_until(bytes, false);
    }

    /// Reads more of the body; with `stops`, up to the end of a document. Returns the number of bytes read, and
    /// whether a document has ended.
    fn push_until(&mut self, bytes: &[u8], stops: bool) -> (usize, bool) {
        if self.is_encoded {
            return (bytes.len(), false);
        }
        let mut has_ended = false;
        let Self { rule, splitter, scanner, is_broken, .. } = self;
        let rest = splitter.push(bytes, stops, &mut |part| match part {
            Part::Last(data) if scanner.is_fresh() && rule.has_no_number(data, scanner) => scanner.skip(),
            Part::Data(data) | Part::Last(data) => scanner.push(&rule.tree, data),
            Part::End => {
                has_ended = true;
                *is_broken |= !scanner.end();
            }
        });
        (bytes.len() - rest.len(), has_ended)
    }

    /// Notes that the body came to its end.
    pub fn end(&mut self) {
        self.is_whole = true;
        self.is_broken |= !self.scanner.end();
    }

    /// What the body says so far.
    pub fn reading(&self) -> Reading {
        let sum = if self.is_encoded { Err(Unreadable::Encoded) } else { self.rule.sum(&self.scanner) };
        let unreadable = sum.err().map(|reason| match reason {
            Unreadable::Absent if !self.is_whole => Unreadable::Cut,
            Unreadable::Absent if self.is_broken => Unreadable::Syntax,
            reason => reason,
        });
        let streamed = self.rule.streamed(&self.scanner).filter(|_| self.splitter.form() != Form::Json);
        Reading { units: sum.ok(), streamed, is_whole: self.is_whole, unreadable }
    }
}

/// The readers of one body: one for each rule.
#[derive(Debug, Default)]
pub struct UnitReaders(SmallVec<[UnitReader; 1]>);

impl UnitReaders {
    /// Adds the reader of a rule, unless there is one.
    pub fn add(&mut self, rule: &Arc<BodyUnits>, content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) {
        if !self.0.iter().any(|reader| reader.rule == *rule) {
            self.0.push(UnitReader::new(Arc::clone(rule), content_type, content_encoding));
        }
    }

    /// Reads more of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|reader| reader.push(bytes));
    }

    /// Reads more of the body, up to the end of a document. Returns the number of bytes read, and whether it has ended.
    pub fn push_document(&mut self, bytes: &[u8]) -> (usize, bool) {
        let Some((first, others)) = self.0.split_first_mut() else { return (bytes.len(), false) };
        let (read, has_ended) = first.push_until(bytes, true);
        for reader in others {
            reader.push(&bytes[..read]);
        }
        (read, has_ended)
    }

    /// The form of the body, if it is a stream of documents that can be read.
    pub fn stream_form(&self) -> Option<Form> {
        let first = self.0.first().filter(|reader| !reader.is_encoded)?;
        Some(first.splitter.form()).filter(|form| *form != Form::Json)
    }

    /// Whether the newest document has a number of a rule.
    pub fn has_new_number(&self, rule: &Arc<BodyUnits>) -> bool {
        self.0.iter().any(|reader| reader.rule == *rule && reader.scanner.since() == 0)
    }

    /// Notes that the body came to its end.
    pub fn end(&mut self) {
        self.0.iter_mut().for_each(UnitReader::end);
    }

    /// What the body says by a rule.
    pub fn reading(&self, rule: &Arc<BodyUnits>) -> Reading {
        self.0.iter().find(|reader| reader.rule == *rule).map_or(Reading::ABSENT, UnitReader::reading)
    }
}
