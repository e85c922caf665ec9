//! One request, one verdict.
/// How much may wait over all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldCaps {
    /// Requests.
    pub max_waiting: usize,
    /// Bytes of their heads.
    pub max_waiting_bytes: usize,
}
