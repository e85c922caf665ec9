//! The outcomes of requests.

/// The outcome of a request, as `weir_requests_total{verdict}` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Forwarded at once.
    Forwarded,
    /// Forwarded after a wait.
    Held,
    /// Refused by a limit.
    Rejected,
    /// Refused for another reason: malformed, without an identity, or during shutdown.
    Refused,
    /// The client left before the response.
    Abandoned,
}

impl Outcome {
    /// All outcomes in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Forwarded, Self::Held, Self::Rejected, Self::Refused, Self::Abandoned];

    /// The label of the outcome.
    pub fn label(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Held => "held",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::Abandoned => "abandoned",
        }
    }
}
