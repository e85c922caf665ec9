//! A verdict as an answer: status, headers, body.
/// Which limit headers clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profiles {
    /// X-RateLimit-Limit, -Remaining, -Reset.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10).
    pub ietf: bool,
    /// X-Ratelimit-Remaining; on 429 -Retry, -Limit, -Reset in seconds.
    pub wildberries: bool,
}
impl Default for Profiles {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: false, wildberries: false }
    }
}
