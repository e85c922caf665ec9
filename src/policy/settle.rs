//! What a request turns out to have cost, once its answer is known.

use http::HeaderName;

/// What happens to a charge after the request was sent.
#[derive(Clone, Debug)]
pub struct AfterResponse {
    /// Only these outcomes count; any other is given back. `None`: all count.
    pub counts: Option<StatusSet>,
    /// How the charge is corrected; `None`: it stays as it is.
    pub settle: Option<Settle>,
}

/// How a charge is corrected to what the request cost in truth.
#[derive(Clone, Debug)]
pub struct Settle {
    /// Where the truth comes from.
    pub by: SettleBy,
    /// With [`SettleBy::ElapsedMs`]: how often it is corrected while the request runs, in nanoseconds.
    pub every_ns: Option<u64>,
    /// Units that a key may owe beyond its limit.
    pub max_debt: u64,
}

/// Where the true cost comes from.
#[derive(Clone, Debug)]
pub enum SettleBy {
    /// Milliseconds from the admission to the end of the response.
    ElapsedMs,
    /// A number in this header of the response; without it the charge stays.
    Header(HeaderName),
    /// Bytes of the response's body.
    ResponseBytes,
    /// By the response's status: the units of the first set that has it; in none, the charge stays.
    Status(Vec<(StatusSet, u64)>),
}

/// Statuses, as ranges that include both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(pub Vec<(u16, u16)>);

impl StatusSet {
    /// Whether a status is in it.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}
