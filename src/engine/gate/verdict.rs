//! The verdict of an explanation: what would happen to a request.

use super::identify::Unidentified;
use super::refusal::Cause;
use crate::engine::policy::KeyPart;
use crate::engine::policy::access::DenialReason;

/// What would happen to a request.
#[derive(Clone, Debug)]
pub enum Verdict<'l> {
    /// It would be forwarded.
    Admitted,
    /// It would be forwarded, because `[access]` frees it from limits.
    Freed,
    /// It would wait for its turn.
    Held,
    /// It would be forwarded later.
    Delayed,
    /// Limits would reject it.
    Rejected(Rejection),
    /// No route would take it.
    NoRoute,
    /// Access control would deny it.
    Denied(DenialReason<'l>),
    /// An identity that it needs is missing or wrong.
    Unidentified(Unidentified<'l>),
    /// It has several values for this part of a key.
    SeveralValues(&'l KeyPart),
}

/// Why limits reject a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The cost is above the capacity of a limit.
    Cost,
    /// A ramp has lowered a limit to zero, and requests are not [gone](Cause::Gone).
    Zero,
    /// The store of a limit is down, and requests are rejected then.
    Store,
    /// A limit that rejects is exhausted, the key is banned, or the request may not wait.
    Cause(Cause),
}

impl Verdict<'_> {
    /// Whether the request ends here, so that later stages do not see it.
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Rejected(_) | Self::NoRoute | Self::Denied(_) | Self::Unidentified(_) | Self::SeveralValues(_)
        )
    }
}
