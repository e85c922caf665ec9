//! Ban: a key that was refused too often is refused everything for a time.
//!
//! Refusals are counted in windows of `within`, each of which begins with a refusal. Refusal number `after` of a window
//! starts a ban of `for`. Each further ban is twice as long as the last, up to `for_max`. Refusals because of a ban are not
//! counted, so a client that keeps trying is not banned for ever.
//!
//! Forgetting: a key that has not been banned for `for_max` after the end of its last ban begins anew with `for`.
//!
//! Bound: never for fewer than `after` refusals within `within`; always after `2 * after - 1` of them at latest.

use bytes::BufMut;

use super::packed::{Packed, Unpacker, put_instant};
use super::{Allowance, QuotaError, Rate};
use crate::base::time::Timestamp;

/// When keys are banned, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    after: Allowance,
    for_ns: u64,
    for_max_ns: u64,
}

impl Rule {
    /// Bans for `for_ns`, doubling up to `for_max_ns`, after `after.count` refusals within `after.period_ns`.
    pub fn new(after: Rate, for_ns: u64, for_max_ns: u64) -> Result<Self, QuotaError> {
        let after = Allowance::new(after)?;
        match Allowance::new(Rate { count: 1, period_ns: for_max_ns }) {
            Err(error) => Err(error),
            Ok(_) if for_ns == 0 => Err(QuotaError::Zero),
            Ok(_) if for_ns > for_max_ns => Err(QuotaError::TooLong),
            Ok(_) => Ok(Self { after, for_ns, for_max_ns }),
        }
    }

    /// The longest ban in nanoseconds.
    pub fn longest_ns(&self) -> u64 {
        self.for_max_ns
    }

    /// The length of the ban after `bans` others, in nanoseconds.
    pub fn length_ns(&self, bans: u32) -> u64 {
        let factor = 1_u64.checked_shl(bans).unwrap_or(u64::MAX);
        self.for_ns.saturating_mul(factor).min(self.for_max_ns)
    }
}

/// The state of one key: 40 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The end of the window of refusals.
    window_ends: Timestamp,
    banned_until: Timestamp,
    /// When the bans so far are forgotten.
    forgotten_at: Timestamp,
    refusals: u64,
    bans: u32,
}

impl State {
    /// Nanoseconds from `now` until the ban of the key ends; `None` if it is not banned.
    pub fn banned_ns(&self, now: Timestamp) -> Option<u64> {
        Some(self.banned_until.ns_since(now)).filter(|ns| *ns > 0)
    }

    /// Counts a refusal by the limit. If it starts a ban, returns the length of the ban in nanoseconds.
    pub fn refused(&mut self, rule: &Rule, now: Timestamp) -> Option<u64> {
        self.refused_at(rule, 1, now, now)
    }

    /// Counts refusals of `at`, which may be before the window: it then begins with them.
    pub fn refused_at(&mut self, rule: &Rule, refusals: u64, at: Timestamp, now: Timestamp) -> Option<u64> {
        let window_ends = at.saturating_add_ns(rule.after.period_ns());
        if self.banned_ns(now).is_some() || window_ends <= now {
            return None;
        }
        if now >= self.forgotten_at {
            self.bans = 0;
        }
        if now >= self.window_ends {
            self.window_ends = window_ends;
            self.refusals = 0;
        }
        self.window_ends = self.window_ends.min(window_ends);
        self.refusals = self.refusals.saturating_add(refusals);
        (self.refusals >= rule.after.count()).then(|| self.ban(rule, now))
    }

    /// Bans the key at once, as after too many refusals. Returns the length of the ban in nanoseconds.
    pub fn ban(&mut self, rule: &Rule, now: Timestamp) -> u64 {
        let length_ns = rule.length_ns(self.bans);
        self.banned_until = now.saturating_add_ns(length_ns);
        self.forgotten_at = self.banned_until.saturating_add_ns(rule.for_max_ns);
        self.bans = self.bans.saturating_add(1);
        (self.window_ends, self.refusals) = (Timestamp::ZERO, 0);
        length_ns
    }

    /// Takes a ban over that was set elsewhere: the last one of `bans`, until `until` or for the longest time of `rule`.
    pub fn hold(&mut self, rule: &Rule, until: Timestamp, bans: u32, now: Timestamp) {
        self.banned_until = until.min(now.saturating_add_ns(rule.for_max_ns));
        self.forgotten_at = self.banned_until.saturating_add_ns(rule.for_max_ns);
        self.bans = bans;
        (self.window_ends, self.refusals) = (Timestamp::ZERO, 0);
    }

    /// The end of the last ban, and the number of bans that are remembered.
    pub fn last_ban(&self) -> (Timestamp, u32) {
        (self.banned_until, self.bans)
    }

    /// Lifts a ban and forgets all refusals and bans.
    pub fn pardon(&mut self) {
        *self = Self::default();
    }

    /// The instant from which the key is idle.
    pub fn idle_at(&self) -> Timestamp {
        self.window_ends.max(self.forgotten_at)
    }
}

impl Packed for State {
    fn pack(&self, bytes: &mut Vec<u8>) {
        for at in [self.window_ends, self.banned_until, self.forgotten_at] {
            put_instant(bytes, at);
        }
        bytes.put_u64_le(self.refusals);
        bytes.put_u32_le(self.bans);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        Some(Self {
            window_ends: from.instant()?,
            banned_until: from.instant()?,
            forgotten_at: from.instant()?,
            refusals: from.u64()?,
            bans: from.u32()?,
        })
    }
}

#[cfg(test)]
mod tests;
