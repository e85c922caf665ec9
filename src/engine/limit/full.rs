//! The handling of new keys at the bound on the keys of a limit.

/// The handling of new keys at the bound. Keys that are remembered are not affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// They are counted in a sketch of fixed size: refused too early if they are very many, never admitted too much.
    /// For token buckets whose rule is the same for every key.
    Sketch,
    /// They share buckets by their hash: refused too early if they are many, never admitted too much.
    #[default]
    Shared,
    /// They are refused until a key is forgotten.
    Reject,
    /// They are admitted and not counted.
    Allow,
}
