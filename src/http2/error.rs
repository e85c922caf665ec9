//! Why streams and connections end.

/// Why a stream or a connection ends (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0,
    /// The peer broke a rule.
    Protocol = 1,
    /// This side cannot go on.
    Internal = 2,
    /// The peer sent more than a window allows.
    FlowControl = 3,
    /// The peer used a stream that it had ended.
    StreamClosed = 5,
    /// A frame has a length that it cannot have.
    FrameSize = 6,
    /// The request was not looked at.
    RefusedStream = 7,
    /// The stream is not wanted any more.
    Cancel = 8,
    /// A header block cannot be decoded.
    Compression = 9,
    /// The peer makes too much work.
    EnhanceYourCalm = 11,
}

/// The end of a connection by a mistake of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// What the peer is told.
    pub code: ErrorCode,
    /// For logs.
    pub reason: &'static str,
}

impl Fatal {
    /// Too many requests were abandoned before they were answered.
    pub const ABANDONED: Self = Self::new(ErrorCode::EnhanceYourCalm, "too many abandoned requests");

    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::Protocol, reason)
    }
}
