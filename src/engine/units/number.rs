//! Exact arithmetic of numbers in JSON and their weights.

use std::fmt;

use crate::base::fields::decimal;

/// The parts into which a unit is divided. A number with more decimals is rounded up.
const PARTS: u128 = 1_000_000_000;
/// The decimals of a part.
const DECIMALS: i64 = 9;
/// The largest exponent that is told from a larger one: beyond it any number is 0 or saturated.
const EXPONENT_MAX: i64 = 1 << 20;

/// A number that is not negative, in [`PARTS`] of a unit. It saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u128);

impl Number {
    /// Reads a number of JSON (RFC 8259, section 6). `None` if it is negative.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
        let end = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
        let (mantissa, exponent) = text.split_at(end);
        let whole = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
        let mut power = i64::try_from(whole).ok()? + self::exponent(exponent) + DECIMALS;
        let (mut parts, mut is_rounded) = (0_u128, false);
        for digit in mantissa.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0') {
            power -= 1;
            if power >= 0 {
                parts = parts.saturating_mul(10).saturating_add(digit.into());
            } else {
                is_rounded |= digit > 0;
            }
        }
        while power > 0 && parts > 0 && parts < u128::MAX {
            parts = parts.saturating_mul(10);
            power -= 1;
        }
        let parts = parts.saturating_add(is_rounded.into());
        (parts == 0 || !is_negative).then_some(Self(parts))
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Number {
    /// Writes all spellings of a number alike.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, parts) = (self.0 / PARTS, self.0 % PARTS);
        write!(f, "{whole}")?;
        if parts > 0 { write!(f, ".{}", format!("{parts:09}").trim_end_matches('0')) } else { Ok(()) }
    }
}

/// The exponent of `e-7`, bounded; 0 for no text.
fn exponent(text: &[u8]) -> i64 {
    let (is_negative, digits) = match text {
        [] => return 0,
        [_, b'-', digits @ ..] => (true, digits),
        [_, b'+', digits @ ..] | [_, digits @ ..] => (false, digits),
    };
    let size = decimal(digits).and_then(|size| i64::try_from(size).ok()).unwrap_or(EXPONENT_MAX).min(EXPONENT_MAX);
    if is_negative { -size } else { size }
}

/// The units that one of a number counts as: a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    numerator: u64,
    denominator: u64,
}

/// The largest numerator and denominator of a weight.
const WEIGHT_MAX: u64 = 1_000_000_000;

/// The form of a weight, for errors.
const WEIGHT: &str = "expected a number from 0 to 1000000000 with at most six decimals, or a fraction such as `1/10`";

impl Weight {
    /// One unit for one of the number.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// Reads `3`, `2.5` or `1/10`.
    ///
    /// # Errors
    /// The text is no such number, or a part of it is too large.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let part = |text: &str| decimal(text.as_bytes()).filter(|part| *part <= WEIGHT_MAX);
        let weight = if let Some((numerator, denominator)) = text.split_once('/') {
            (part(numerator), part(denominator).filter(|part| *part > 0))
        } else if let Some((whole, decimals)) = text.split_once('.') {
            let scale =
                u32::try_from(decimals.len()).ok().filter(|len| (1..=6).contains(len)).map(|len| 10_u64.pow(len));
            let parts = part(whole).zip(part(decimals)).zip(scale);
            (parts.map(|((whole, decimals), scale)| whole * scale + decimals), scale)
        } else {
            (part(text), Some(1))
        };
        let (Some(numerator), Some(denominator)) = weight else { return Err(WEIGHT) };
        Ok(Self { numerator, denominator })
    }
}

/// The sum of weighted numbers. Beyond the range of its parts it is the largest number of units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    /// In [`PARTS`] of a unit divided by `denominator`.
    parts: u128,
    denominator: u128,
}

impl Default for Sum {
    fn default() -> Self {
        Self { parts: 0, denominator: 1 }
    }
}

impl Sum {
    pub(super) fn add(&mut self, number: Number, weight: Weight) {
        let (numerator, denominator) = (u128::from(weight.numerator), u128::from(weight.denominator));
        // Sums with different denominators are extended to the product of both, divided by what they share.
        let shared = greatest_divisor(self.denominator, denominator);
        let (own, other) = (denominator / shared, self.denominator / shared);
        let sum = || {
            let term = number.0.checked_mul(numerator)?.checked_mul(other)?;
            let parts = self.parts.checked_mul(own)?.checked_add(term)?;
            Some(Self { parts, denominator: self.denominator.checked_mul(own)? })
        };
        *self = sum().unwrap_or(Self { parts: u128::MAX, denominator: 1 });
    }

    /// Whole units, rounded up.
    pub(super) fn units(self) -> u64 {
        if self.parts == u128::MAX {
            return u64::MAX;
        }
        // Two divisions, because the product may be out of range; both round up.
        u64::try_from(self.parts.div_ceil(self.denominator).div_ceil(PARTS)).unwrap_or(u64::MAX)
    }
}

fn greatest_divisor(mut left: u128, mut right: u128) -> u128 {
    while right > 0 {
        (left, right) = (right, left % right);
    }
    left
}

impl From<u64> for Number {
    fn from(whole: u64) -> Self {
        Self(u128::from(whole) * PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(terms: &[(&str, &str)]) -> u64 {
        let mut sum = Sum::default();
        for (number, weight) in terms {
            sum.add(Number::parse(number.as_bytes()).unwrap(), Weight::parse(weight).unwrap());
        }
        sum.units()
    }

    #[test]
    fn numbers_are_exact_and_round_up() {
        for (text, expected) in [
            ("0", 0),
            ("-0.0", 0),
            ("12", 12),
            ("12.0", 12),
            ("12.000000001", 13),
            ("1.2e1", 12),
            ("1200E-2", 12),
            ("0.000000000000000001", 1),
            ("9007199254740993", 9_007_199_254_740_993),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("1e400", u64::MAX),
            ("1e99999999999999999999", u64::MAX),
            ("0e99999999999999999999", 0),
            ("1e-99999999999999999999", 1),
        ] {
            assert_eq!(units(&[(text, "1")]), expected, "{text}");
        }
        for text in ["-1", "-0.5", "-1e-400"] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn sums_of_fractions_are_exact() {
        assert_eq!(units(&[("10", "1/3"), ("10", "1/3"), ("10", "1/3")]), 10);
        assert_eq!(units(&[("1", "1/10"), ("1", "1/4"), ("1", "0.65")]), 1);
        assert_eq!(units(&[("1", "1/10"), ("1", "1/4"), ("1", "0.650001")]), 2);
        assert_eq!(units(&[("100", "2.5"), ("3", "10")]), 280);
        assert_eq!(units(&[("5", "0")]), 0);
        // Numbers out of range cost too much, never too little.
        let large = ["1/999999937", "1/999999929", "1/999999893", "1/999999883"].map(|weight| ("1000000", weight));
        assert_eq!((units(&large[..2]), units(&large)), (1, u64::MAX));
        assert_eq!(units(&[("18446744073709551615", "0.000001"), ("1e300", "1/3")]), u64::MAX);
        for text in ["", "-1", "1/0", "/2", "1/", "1.", ".5", "1.1234567", "1000000001", "1e3", "1/2/3", "+1"] {
            assert_eq!(Weight::parse(text), Err(WEIGHT), "{text}");
        }
    }
}
