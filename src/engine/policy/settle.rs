//! The correction of a charge when the response is known.

use std::sync::Arc;

use http::HeaderName;

use super::body_member::BodyMember;
use crate::engine::units::BodyUnits;

/// The rules for a charge after the request was forwarded.
#[derive(Clone, Debug)]
pub struct AfterResponse {
    /// The outcomes that count; the charge of any other is refunded. `None` if all count.
    pub counts: Option<StatusSet>,
    /// The correction of the charge; `None` if there is none.
    pub settle: Option<Settle>,
}

impl AfterResponse {
    /// The members of the body of the request that the correction looks at.
    pub(super) fn members(&self) -> impl Iterator<Item = &BodyMember> {
        self.settle.iter().flat_map(|settle| settle.usage_of.iter().chain(&settle.priced))
    }

    /// The rule of a charge that numbers of the response body correct.
    pub fn body_units(&self) -> Option<&Arc<BodyUnits>> {
        match &self.settle.as_ref()?.by {
            SettleBy::Body(rule) => Some(rule),
            _ => None,
        }
    }
}

/// The correction of a charge to the real cost of the request.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The source of the real cost.
    pub by: SettleBy,
    /// The interval of corrections while the request runs, in nanoseconds; for [`SettleBy::ElapsedMs`].
    pub every_ns: Option<u64>,
    /// The maximum debt of a key, in units.
    pub max_debt: u64,
    /// The member that says whether an answer is a stream, if streams are asked for their usage.
    pub usage_of: Option<BodyMember>,
    /// The member with the model, if a model without a price is refused.
    pub priced: Option<BodyMember>,
    /// For [`SettleBy::Body`]: the debt of the key, in units, beyond which a stream is cut; `None` if it is finished.
    pub cut_debt: Option<u64>,
}

/// The source of the real cost.
#[derive(Clone, Debug)]
pub enum SettleBy {
    /// Milliseconds from the admission to the end of the response.
    ElapsedMs,
    /// A number in this header of the response; without it the charge stays.
    Header(HeaderName),
    /// Bytes of the response body.
    ResponseBytes,
    /// Numbers in the response body.
    Body(Arc<BodyUnits>),
    /// The units of the first set that contains the response status; without such a set the charge stays.
    Status(Vec<(StatusSet, u64)>),
}

/// What the units of a limit are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of bodies.
    ContentBytes,
    /// Millionths of a US dollar.
    MicroUsd,
    /// What the configuration says.
    Named(Arc<str>),
}

impl Unit {
    /// The name, for clients and operators.
    pub fn name(&self) -> &str {
        match self {
            Self::ContentBytes => "content-bytes",
            Self::MicroUsd => "micro-usd",
            Self::Named(name) => name,
        }
    }
}

/// Ranges of statuses, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(pub Vec<(u16, u16)>);

impl StatusSet {
    /// Whether a range contains the status.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}
