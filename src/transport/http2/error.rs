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
    pub(super) const ABANDONED: Self = Self::new(ErrorCode::EnhanceYourCalm, "too many abandoned requests");
    /// Too many frames with a mistake about their stream.
    pub(super) const STREAM_ERRORS: Self = Self::new(ErrorCode::EnhanceYourCalm, "too many errors of streams");
    /// Too many frames in a row that bring nothing on.
    pub(super) const IDLE_FRAMES: Self = Self::new(ErrorCode::EnhanceYourCalm, "too many frames without a purpose");
    /// A header block of too many frames or bytes.
    pub(super) const ENDLESS_HEAD: Self = Self::new(ErrorCode::EnhanceYourCalm, "a header block without end");

    /// All kinds, as metrics count them.
    pub const KINDS: [&'static str; 7] = [
        "abandoned_streams",
        "h2_stream_errors",
        "h2_idle_frames",
        "h2_endless_head",
        "h2_compression",
        "h2_flow_control",
        "h2_protocol",
    ];

    /// The kind: one of [`KINDS`](Self::KINDS).
    pub fn kind(self) -> &'static str {
        let [abandoned, stream_errors, idle_frames, endless_head, compression, flow_control, protocol] = Self::KINDS;
        match self {
            Self::ABANDONED => abandoned,
            Self::STREAM_ERRORS => stream_errors,
            Self::IDLE_FRAMES => idle_frames,
            Self::ENDLESS_HEAD => endless_head,
            Self { code: ErrorCode::Compression, .. } => compression,
            Self { code: ErrorCode::FlowControl, .. } => flow_control,
            _ => protocol,
        }
    }

    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::Protocol, reason)
    }
}
