//! What a body says of its units, or why it says nothing.

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
    pub(super) const ABSENT: Self =
        Self { units: None, streamed: None, is_whole: true, unreadable: Some(Unreadable::Absent) };

    /// The reading of a request without a response: its client or its service left before.
    pub const UNANSWERED: Self =
        Self { units: None, streamed: None, is_whole: false, unreadable: Some(Unreadable::Cut) };
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
