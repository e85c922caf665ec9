//! A request that its limits refuse.

use std::sync::Arc;

use http::StatusCode;
use smallvec::SmallVec;

use super::budget::{Budget, Budgets};
use super::check::Checked;
use super::refusal_log::{Receipt, RefusedState};
use super::standing::{Standing, known_wait};
use crate::base::split_mix::{STEP, mix};
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::limit::Retry;
use crate::engine::policy::RefusalAnswer;
use crate::engine::store::Charge;

/// A request that is refused.
#[derive(Debug, Default)]
pub struct Refusal<'l> {
    /// The standing with the denying limit that has the longest wait; `None` if that limit is gone.
    pub standing: Option<Standing<'l>>,
    /// The names of the limits that deny the request.
    pub violated: SmallVec<[&'l str; 2]>,
    /// When the request could pass.
    pub retry: Retry,
    /// Whether requests that come later may pass before, so that `retry` is an estimate.
    pub is_estimate: bool,
    /// The time that the client is asked to wait beyond `retry`.
    pub jitter: RetryJitter,
    /// Why the request does not wait until then.
    pub cause: Cause,
    /// The status of the answer if a limit sets it; `None` for that of the cause.
    pub status: Option<StatusCode>,
    /// The answer of the limit that sets the status.
    pub answer: Option<Arc<RefusalAnswer>>,
    /// The budgets that the answer lists.
    pub budgets: Budgets<'l>,
    /// The facts that are kept under the id of the refusal; `None` if none are kept.
    pub receipt: Option<Box<Receipt<'l>>>,
}

/// A random time beyond the time at which a request could pass, so that clients do not return at the same instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryJitter {
    /// In nanoseconds.
    pub ns: u64,
    /// In whole seconds, up or down at random, so that many refusals together have the same mean as `ns`.
    pub s: u64,
}

impl RetryJitter {
    /// At most `percent` of the wait. `bits` are random.
    ///
    /// Waits until the same instant have different lengths, so a uniform part of each would still bring many clients back
    /// soon after it. A uniform number to the power of 0.55 has fewer small values, which makes up for that.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^53
    pub(super) fn of(percent: u8, retry: Retry, bits: u64) -> Self {
        let wait_ns = match retry {
            _ if percent == 0 => return Self::default(),
            Retry::Never => return Self::default(),
            Retry::ON_RELEASE => SECOND_NS,
            Retry::AfterNs(ns) => ns,
        };
        let unit = |bits: u64| (mix(bits) >> 11) as f64 / (1_u64 << 53) as f64;
        let ns = wait_ns as f64 * f64::from(percent) / 100.0 * unit(bits).powf(0.55);
        let s = ns / SECOND_NS as f64 + unit(bits.wrapping_add(STEP));
        Self { ns: ns as u64, s: s as u64 }
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// Why a request beyond a limit is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The limit rejects requests.
    #[default]
    Limit,
    /// The wait would be longer than the limit allows.
    WaitTooLong,
    /// Too many requests wait already.
    QueueFull,
    /// The key is banned, because the limit refused it too often.
    Banned,
    /// The request waited, and Weir is shutting down.
    ShuttingDown,
    /// A ramp has lowered the limit to zero.
    Gone,
}

impl Cause {
    /// The cause in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::WaitTooLong => "wait_too_long",
            Self::QueueFull => "queue_full",
            Self::Banned => "banned",
            Self::ShuttingDown => "shutting_down",
            Self::Gone => "gone",
        }
    }

    /// Whether the request is beyond a limit that would admit it later.
    pub fn is_beyond(self) -> bool {
        matches!(self, Self::Limit | Self::WaitTooLong | Self::QueueFull)
    }
}

impl<'l> Refusal<'l> {
    /// Counts a refusal by the limits of `denials`. The retry is `expected_ns` if that is known, else the longest wait.
    pub(super) fn of<'b, C: Checked<'l> + 'b>(
        denials: impl Iterator<Item = &'b Charge<'b, C>>,
        now: Timestamp,
        cause: Cause,
        expected_ns: Option<u64>,
    ) -> Self {
        let count = |charge: &&'b Charge<'b, C>| {
            let state = charge.check.state();
            if cause != Cause::ShuttingDown {
                state.count_refusal(charge.check.limit(), charge.key, now);
            }
            state.metrics.cells.decided(LimitDecision::Refused, charge.rule.percent(charge.decision().remaining));
        };
        Self::uncounted(denials.inspect(count), now, cause, expected_ns)
    }

    /// The refusal that [`Refusal::of`] counts.
    pub(super) fn uncounted<'b, C: Checked<'l> + 'b>(
        denials: impl Iterator<Item = &'b Charge<'b, C>>,
        now: Timestamp,
        cause: Cause,
        expected_ns: Option<u64>,
    ) -> Self {
        let mut longest: Option<(Retry, Standing<'l>)> = None;
        let (mut jitter_percent, mut bits, mut rules, mut receipt) = (0, 0, None, None::<Box<Receipt<'l>>>);
        let (mut violated, mut budgets, mut is_gone) = (SmallVec::new(), Budgets::new(), false);
        for charge in denials {
            let (state, decision) = (charge.check.state(), charge.decision());
            violated.push(&*state.name);
            is_gone |= charge.check.limit().is_gone();
            budgets.extend(Budget::of(charge));
            let retry = decision.denied.unwrap_or(Retry::AfterNs(0));
            let standing = Standing::new(&state.name, charge, &decision, now);
            if state.refusal_log.is_on() {
                let receipt = receipt.get_or_insert_with(|| Box::new(Receipt::new(now, cause.word())));
                let Standing { burst: capacity, remaining, reset_after_ns, .. } = standing;
                receipt.add(&state.name, charge.key, Some(RefusedState { capacity, remaining, reset_after_ns }));
            }
            // A known wait goes before an unknown one: a release by another request.
            if longest.as_ref().is_none_or(|(known, _)| known_wait(Some(retry)) > known_wait(Some(*known))) {
                longest = Some((retry, standing));
                (jitter_percent, bits) = (charge.check.limit().jitter_percent, charge.key.first ^ now.as_ns());
                rules = Some(&charge.check.limit().refusals);
            }
        }
        let (retry, standing) = longest.map_or((Retry::AfterNs(0), None), |(retry, standing)| (retry, Some(standing)));
        let retry = known_wait(expected_ns.map(Retry::AfterNs)).unwrap_or(retry);
        let jitter = RetryJitter::of(jitter_percent, retry, bits);
        let cause = if is_gone && cause != Cause::ShuttingDown { Cause::Gone } else { cause };
        let rules = rules.filter(|_| cause.is_beyond());
        let (status, answer) = (rules.map(|rules| rules.refused), rules.and_then(|rules| rules.answer.clone()));
        Self { standing, violated, retry, is_estimate: false, jitter, cause, status, answer, budgets, receipt }
    }

    /// The value of `Retry-After`: whole seconds until the client should retry, at least 1; `None` if it never can pass.
    pub fn retry_after_s(&self) -> Option<u64> {
        let s = match self.retry {
            // Until other requests end, which may be soon.
            Retry::ON_RELEASE => 1,
            Retry::AfterNs(ns) => ns.div_ceil(SECOND_NS).max(1),
            Retry::Never => return None,
        };
        Some(s.saturating_add(self.jitter.s))
    }

    /// The refusal of a request that limits of an earlier stage have charged. `standing` and `budgets` are those of that
    /// stage. If one of its limits is exhausted for longer, the retry is the wait for that limit, with its `jitter_percent`.
    pub fn charged_before(
        mut self,
        standing: Option<Standing<'l>>,
        mut budgets: Budgets<'l>,
        jitter_percent: impl FnOnce(&str) -> u8,
    ) -> Self {
        if let Some(wait) = standing.and_then(|standing| standing.wait)
            && self.cause.is_beyond()
            && (known_wait(Some(self.retry)) < Some(wait))
        {
            let percent = standing.map_or(0, |standing| jitter_percent(standing.limit));
            let bits = standing.map_or(0, |standing| mix(standing.at.as_ns()) ^ self.jitter.ns);
            (self.standing, self.retry, self.jitter) = (standing, wait, RetryJitter::of(percent, wait, bits));
        }
        budgets.append(&mut self.budgets);
        self.budgets = budgets;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jitter is a part of the wait, also of one that another limit decides; in whole seconds its mean is the same.
    #[test]
    fn jitter_is_a_part_of_the_wait() {
        let waits = [Retry::AfterNs(500_000_000), Retry::AfterNs(84 * SECOND_NS), Retry::ON_RELEASE];
        for (retry, most_ns) in waits.into_iter().zip([100_000_000, 16_800_000_000, 200_000_000]) {
            let all: Vec<_> = (0..10_000).map(|bits| RetryJitter::of(20, retry, STEP.wrapping_mul(bits))).collect();
            assert!(all.iter().all(|jitter| jitter.ns <= most_ns && jitter.s <= most_ns.div_ceil(SECOND_NS)));
            let [ns, s] = [|jitter: &RetryJitter| jitter.ns, |jitter: &RetryJitter| jitter.s * SECOND_NS]
                .map(|part| all.iter().map(part).sum::<u64>() / 10_000);
            // The mean of a uniform number to the power of 0.55.
            assert!(ns.abs_diff(most_ns * 20 / 31) < most_ns / 50, "{ns} of {most_ns}");
            assert!(s.abs_diff(ns) < ns / 10, "{s} and {ns}");
        }
        for (percent, retry) in [(0, Retry::AfterNs(SECOND_NS)), (20, Retry::Never)] {
            assert_eq!(RetryJitter::of(percent, retry, 7), RetryJitter::default());
        }
    }
}
