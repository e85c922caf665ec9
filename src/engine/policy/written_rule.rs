//! A rule of a limit as it is written, for operators.

use crate::engine::limit::Scale;

/// A rule as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenRule {
    /// The rates, such as `5/15min`. Empty if the rule was not written, but requested by a caller.
    pub rates: Box<[Box<str>]>,
    /// The rest, such as `, burst 20, token bucket`.
    pub rest: Box<str>,
}

impl WrittenRule {
    /// The rule times a scale.
    pub(super) fn scaled(&self, Scale { numerator, denominator }: Scale) -> Self {
        #[expect(clippy::cast_precision_loss)] // six digits for the eye
        let factor = format!("x{:.6}", numerator as f64 / denominator as f64);
        let factor = factor.trim_end_matches('0').trim_end_matches('.');
        let rates = self.rates.iter().map(|rate| format!("{factor} of {rate}").into()).collect();
        Self { rates, rest: self.rest.clone() }
    }

    /// The rule as text, or one of its rates with the rest; `None` if nothing is written.
    pub fn text(&self, rate: Option<usize>) -> Option<String> {
        let rates = match rate.and_then(|rate| self.rates.get(rate..=rate)) {
            Some(rate) => rate.concat(),
            None => self.rates.join(" and "),
        };
        (!rates.is_empty()).then(|| format!("{rates}{}", self.rest))
    }
}
