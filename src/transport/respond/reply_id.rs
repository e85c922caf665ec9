//! The ids in responses that Weir makes itself.

/// What the id of a response names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyId {
    /// The request.
    Request,
    /// The refusal, if requests have no ids.
    Refusal,
}

impl ReplyId {
    /// The name of its field.
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::Request => "x-request-id",
            Self::Refusal => "x-refusal-id",
        }
    }

    /// The member of a problem document up to the id.
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::Request => ",\"request_id\":\"",
            Self::Refusal => ",\"refusal_id\":\"",
        }
    }
}
