//! Tokens.
use crate::time::Timestamp;
use std::sync::Arc;
/// Verifier.
#[derive(Debug)]
pub struct Verifier {}
/// E
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// E
    Malformed,
}
/// V
#[derive(Debug)]
pub struct Verified {
    /// value
    pub value: Arc<str>,
    /// exp
    pub expires: Option<Timestamp>,
}
impl Verifier {
    /// verify
    pub fn verify(&self, _token: &[u8], _now: Timestamp) -> Result<Verified, TokenError> {
        Err(TokenError::Malformed)
    }
}
