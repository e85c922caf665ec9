//! What becomes of new keys once a limit remembers as many as it may.

/// The ways there are. Keys that are remembered are not affected by any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// They are kept in a sketch of fixed size: refused too early if they are very many, never admitted too much.
    /// For token buckets whose rule is the same for every key.
    Sketch,
    /// They share buckets by their hash: refused too early if they are many, never admitted too much.
    #[default]
    Shared,
    /// They are refused until a key is forgotten.
    Reject,
    /// They pass uncounted.
    Allow,
}
