//! The reader of one body.

use std::sync::Arc;

use smallvec::SmallVec;

use super::framing::{Form, Part, Splitter};
use super::rule::BodyUnits;
use super::scanner::Scanner;

/// Reads the units of one body while it passes.
#[derive(Debug)]
pub struct UnitReader {
    rule: Arc<BodyUnits>,
    splitter: Splitter,
    scanner: Scanner,
    form: Form,
    /// The body has a Content-Encoding.
    is_encoded: bool,
    /// A document was no JSON.
    is_broken: bool,
    /// The end of the body has come.
    is_whole: bool,
}

/// What a body says of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The sum of its numbers; none if there is none.
    pub units: Option<u64>,
    /// About the units that events after the last number have brought; none if the rule does not know.
    pub streamed: Option<u64>,
    /// Whether the body came to its end.
    pub is_whole: bool,
    /// Why there is no sum.
    pub unreadable: Option<Unreadable>,
}

impl Reading {
    /// The reading of a response without a body.
    const ABSENT: Self = Self { units: None, streamed: None, is_whole: true, unreadable: Some(Unreadable::Absent) };
}

/// Why a body has no units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It has a Content-Encoding.
    Encoded,
    /// It is no JSON.
    Syntax,
    /// It broke off before its number.
    Cut,
    /// It has no number at the place.
    Absent,
    /// The number is negative, or longer than 512 digits.
    Number,
    /// The model has no price.
    Model,
}

impl Unreadable {
    /// All reasons.
    pub const ALL: [Self; 6] = [Self::Encoded, Self::Syntax, Self::Cut, Self::Absent, Self::Number, Self::Model];

    /// The label of the metric.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Encoded => "encoded",
            Self::Syntax => "syntax",
            Self::Cut => "cut",
            Self::Absent => "absent",
            Self::Number => "number",
            Self::Model => "model",
        }
    }
}

impl UnitReader {
    /// A reader of a body with these fields.
    pub fn new(rule: Arc<BodyUnits>, content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) -> Self {
        let is_plain = |encoding: &[u8]| encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity");
        let form = Form::of(content_type);
        Self {
            scanner: Scanner::new(&rule.tree),
            rule,
            splitter: Splitter::new(form),
            form,
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
        let streamed = self.rule.streamed(&self.scanner).filter(|_| self.form != Form::Json);
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
