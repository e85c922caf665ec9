//! `SplitMix64` (Steele, Lea and Flood, 2014): a hash of a number, and pseudo-random numbers.
//!
//! [`mix`] is equal on all machines and in all versions, because replicas that agree on the node of a key may differ in
//! version. Not for secrets: anyone can compute it.

use std::cell::Cell;

/// The difference between two successive states: 2^64 divided by the golden ratio. [`mix`] of a state is a
/// pseudo-random number.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer: each bit of the result depends on all bits of the argument. Different numbers have different results.
#[inline]
pub const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

thread_local! {
    static STATE: Cell<u64> = Cell::new(seed());
}

/// A random number that is not secret, from a generator of this thread.
pub fn random() -> u64 {
    STATE.with(|state| {
        state.set(state.get().wrapping_add(STEP));
        mix(state.get())
    })
}

/// A random seed, so that threads and processes do not draw the same numbers.
fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without entropy the numbers repeat those of other threads, which harms no request.
    let _ = getrandom::fill(&mut seed);
    u64::from_le_bytes(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation (Vigna, 2015) from the seed 1234567.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let expected: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        let states = (1..).map(|step| STEP.wrapping_mul(step).wrapping_add(1_234_567));
        assert!(states.map(mix).take(5).eq(expected));
    }
}
