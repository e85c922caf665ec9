//! The outcomes of requests.

/// The outcome of a request, as `weir_requests_total{verdict}` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Forwarded at once.
    Forwarded,
    /// Forwarded after a wait.
    Held,
    /// The client left before the response.
    Abandoned,
    /// Not forwarded.
    Refused(RefusedBy),
}

/// The reason of a refusal, as `weir_refused_requests_total{by}` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// A limit.
    Limit,
    /// A ban of a limit or of an operator.
    Ban,
    /// `[access]`.
    Access,
    /// The lack of a valid identity.
    Identity,
    /// `[overload]`.
    Overload,
    /// Anything else: invalid HTTP, no route, no connection to the service, or a shutdown.
    Other,
}

impl RefusedBy {
    /// All reasons in the order of their discriminants.
    pub const ALL: [Self; 6] = [Self::Limit, Self::Ban, Self::Access, Self::Identity, Self::Overload, Self::Other];

    /// The label of the reason.
    pub fn label(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Ban => "ban",
            Self::Access => "access",
            Self::Identity => "identity",
            Self::Overload => "overload",
            Self::Other => "other",
        }
    }
}

impl Outcome {
    /// All outcomes, in the order of their positions.
    pub const ALL: [Self; 9] = [
        Self::Forwarded,
        Self::Held,
        Self::Abandoned,
        Self::Refused(RefusedBy::Limit),
        Self::Refused(RefusedBy::Ban),
        Self::Refused(RefusedBy::Access),
        Self::Refused(RefusedBy::Identity),
        Self::Refused(RefusedBy::Overload),
        Self::Refused(RefusedBy::Other),
    ];

    /// The verdicts, each once.
    pub const VERDICTS: [&'static str; 4] = ["forwarded", "held", "refused", "abandoned"];

    /// The position in [`ALL`](Self::ALL).
    #[inline]
    pub(super) fn index(self) -> usize {
        match self {
            Self::Forwarded => 0,
            Self::Held => 1,
            Self::Abandoned => 2,
            Self::Refused(by) => 3 + by as usize,
        }
    }

    /// The verdict.
    pub fn verdict(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Held => "held",
            Self::Abandoned => "abandoned",
            Self::Refused(_) => "refused",
        }
    }

    /// The reason of a refusal; `None` for other outcomes.
    pub fn refused_by(self) -> Option<RefusedBy> {
        match self {
            Self::Refused(by) => Some(by),
            Self::Forwarded | Self::Held | Self::Abandoned => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_position_and_a_verdict() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), index);
            assert!(Outcome::VERDICTS.contains(&outcome.verdict()));
        }
        let reasons: Vec<_> = Outcome::ALL.into_iter().filter_map(Outcome::refused_by).collect();
        assert_eq!(reasons, RefusedBy::ALL);
    }
}
