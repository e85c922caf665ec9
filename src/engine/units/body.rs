//! The reader of one body.

use std::sync::Arc;

use smallvec::SmallVec;

use super::framing::{Form, Part, Splitter};
use super::reading::{Reading, Unreadable};
use super::rule::BodyUnits;
use super::scanner::Scanner;

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
        let is_plain = |encoding: &[u8]| encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity");
        Self {
            scanner: Scanner::new(&rule.tree),
            rule,
            splitter: Splitter::new(Form::of(content_type)),
            is_encoded: !content_encoding.is_none_or(|encoding| is_plain(encoding.trim_ascii())),
            is_broken: false,
            is_whole: false,
        }
    }

    /// Reads more of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.is_encoded {
            return;
        }
        let Self { rule, splitter, scanner, is_broken, .. } = self;
        splitter.push(bytes, &mut |part| match part {
            Part::Data(data) => scanner.push(&rule.tree, data),
            Part::End => *is_broken |= !scanner.end(),
        });
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

    /// Notes that the body came to its end.
    pub fn end(&mut self) {
        self.0.iter_mut().for_each(UnitReader::end);
    }

    /// What the body says by a rule.
    pub fn reading(&self, rule: &Arc<BodyUnits>) -> Reading {
        self.0.iter().find(|reader| reader.rule == *rule).map_or(Reading::ABSENT, UnitReader::reading)
    }
}
