//! Division by a number that is known long before the dividend, as a multiplication.
//!
//! A division of 64 bits takes several times as long as all else that a bucket computes. Granlund and
//! Montgomery, "Division by invariant integers using multiplication" (1994), theorem 4.2: with
//! `2^(l-1) < d <= 2^l` and `m = floor(2^(63+l) / d) + 1`, `floor(n / d) = floor(m * n / 2^(63+l))` for every
//! `n < 2^63`.

/// Divides by one number, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divisor {
    magic: u64,
    shift: u32,
}

impl Divisor {
    /// Dividends are below this.
    const DIVIDEND_BITS: u32 = 63;

    /// `divisor` is from 1 to 2^62; 0 divides as 1 does.
    pub(super) const fn new(divisor: u64) -> Self {
        let divisor = if divisor == 0 { 1 } else { divisor };
        let shift = if divisor == 1 { 0 } else { (divisor - 1).ilog2() + 1 };
        let quotient = (1_u128 << (Self::DIVIDEND_BITS + shift)) / divisor as u128;
        #[allow(clippy::cast_possible_truncation)] // it is below 2^64, because 2^shift < 2 * divisor
        let magic = quotient as u64 + 1;
        Self { magic, shift }
    }

    /// `dividend / divisor`, rounded down, for a dividend below 2^63.
    pub(super) const fn divide(self, dividend: u64) -> u64 {
        debug_assert!(dividend >> Self::DIVIDEND_BITS == 0);
        // The dividend is doubled, so that the product is shifted by 64 first, which costs nothing.
        let product = (dividend << 1) as u128 * self.magic as u128;
        (product >> 64) as u64 >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Divisor;

    fn check(dividend: u64, divisor: u64) {
        assert_eq!(Divisor::new(divisor).divide(dividend), dividend / divisor, "{dividend} / {divisor}");
    }

    #[test]
    fn exact_where_it_turns() {
        let powers = (0..=62).map(|exponent| 1_u64 << exponent);
        let around = |number: u64| [number.saturating_sub(1).max(1), number, number + 1];
        for divisor in powers.clone().flat_map(around).filter(|divisor| *divisor <= 1 << 62) {
            for quotient in powers.clone().flat_map(around) {
                if let Some(multiple) = quotient.checked_mul(divisor).filter(|multiple| *multiple < 1 << 63) {
                    check(multiple, divisor);
                    check(multiple - 1, divisor);
                }
            }
            check((1 << 63) - 1, divisor);
            check(0, divisor);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_division(dividend in 0_u64..1 << 63, divisor in 1_u64..=1 << 62, fewer in 0_u32..62) {
            check(dividend, (divisor >> fewer).max(1));
            check(dividend >> fewer, divisor);
        }
    }
}
