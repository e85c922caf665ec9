//! Numbers of JSON (RFC 8259, section 6) in pieces.

/// The place within a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digits {
    Sign,
    Zero,
    Whole,
    Point,
    Decimals,
    E,
    ExponentSign,
    Exponent,
}

impl Digits {
    /// The place behind `byte`; `None` if no number has it here.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Sign, b'0') => Self::Zero,
            (Self::Sign, b'1'..=b'9') | (Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Decimals, b'0'..=b'9') => Self::Decimals,
            (Self::Zero | Self::Whole | Self::Decimals, b'e' | b'E') => Self::E,
            (Self::E, b'+' | b'-') => Self::ExponentSign,
            (Self::E | Self::ExponentSign | Self::Exponent, b'0'..=b'9') => Self::Exponent,
            _ => return None,
        })
    }

    /// Whether a number may end here.
    pub(super) fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Decimals | Self::Exponent)
    }
}
