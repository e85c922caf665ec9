//! Tokens.
/// Verifier.
#[derive(Debug)]
pub struct Verifier {}
