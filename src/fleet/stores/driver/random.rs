//! Random numbers by which processes and workers tell each other apart.

/// A random number from 1 to 2^52, which a double holds.
pub(in crate::fleet::stores) fn random_id() -> u64 {
    // Without randomness of the system nothing is left that tells replicas apart.
    (getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()) << 12) >> 12) + 1
}
