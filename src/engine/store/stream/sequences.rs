//! A set of sequence numbers: all up to a number, and some of the next 64.

/// The sequence numbers that one side has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    /// All numbers up to this one, from 1.
    pub(super) base: u64,
    /// The bit `i` stands for `base + 1 + i`. The lowest bit is 0.
    pub(super) ahead: u64,
}

/// The numbers after the base that a set can hold, and so the batches that may be on the way at once.
pub(super) const WINDOW: u64 = 64;

/// The greatest number. A peer that counts from 1 never comes so far.
pub(super) const SEQUENCE_MAX: u64 = u64::MAX / 2;

impl Sequences {
    /// Whether the set has `sequence`.
    pub(super) fn contains(&self, sequence: u64) -> bool {
        match sequence.checked_sub(self.base + 1) {
            None => true,
            Some(bit) => bit < WINDOW && self.ahead >> bit & 1 == 1,
        }
    }

    /// Adds `sequence`, unless it is too far ahead. Returns whether the set has gained it.
    pub(super) fn add(&mut self, sequence: u64) -> bool {
        let bit = sequence.checked_sub(self.base + 1).filter(|bit| *bit < WINDOW);
        let Some(bit) = bit.filter(|bit| self.ahead >> bit & 1 == 0) else { return false };
        self.ahead |= 1 << bit;
        self.advance();
        true
    }

    /// Adds all numbers up to `base`. Returns whether one of them was missing.
    pub(super) fn add_up_to(&mut self, base: u64) -> bool {
        let Some(more) = base.checked_sub(self.base).filter(|more| *more > 0) else { return false };
        let present = if more < WINDOW { self.ahead & ((1 << more) - 1) } else { self.ahead };
        self.ahead = if more < WINDOW { self.ahead >> more } else { 0 };
        self.base = base;
        self.advance();
        u64::from(present.count_ones()) < more
    }

    /// Moves the base over the numbers that follow it.
    fn advance(&mut self) {
        let more = self.ahead.trailing_ones();
        self.base += u64::from(more);
        self.ahead = self.ahead.checked_shr(more).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(base: u64, ahead: u64) -> Sequences {
        Sequences { base, ahead }
    }

    #[test]
    fn numbers_are_added_once_in_any_order() {
        let mut set = Sequences::default();
        for (sequence, is_new, is_ahead, after) in [
            (1, true, false, of(1, 0)),
            (1, false, false, of(1, 0)),
            (3, true, false, of(1, 0b10)),
            (3, false, false, of(1, 0b10)),
            (5, true, false, of(1, 0b1010)),
            (2, true, false, of(3, 0b10)),
            (4, true, false, of(5, 0)),
            (0, false, false, of(5, 0)),
            (69, true, false, of(5, 1 << 63)),
            (70, false, true, of(5, 1 << 63)),
            (u64::MAX, false, true, of(5, 1 << 63)),
        ] {
            assert_eq!(set.add(sequence), is_new, "{sequence}");
            assert_eq!(set, after, "{sequence}");
            assert_eq!(set.contains(sequence), !is_ahead, "{sequence}");
        }
        assert!(!set.contains(68) && !set.contains(70));
        for sequence in 6..69 {
            assert!(set.add(sequence));
        }
        assert_eq!(set, of(69, 0), "all 64 bits at once");
    }

    #[test]
    fn numbers_that_are_skipped_may_be_missing() {
        for (before, up_to, is_gap, after) in [
            (of(5, 0), 5, false, of(5, 0)),
            (of(5, 0), 3, false, of(5, 0)),
            (of(5, 0), 6, true, of(6, 0)),
            (of(5, 0b110), 6, true, of(8, 0)),
            (of(5, 0b1010), 7, true, of(7, 0b10)),
            (of(5, 1 << 63), 69, true, of(69, 0)),
            (of(5, 1 << 63), 500, true, of(500, 0)),
            (of(0, 0), u64::MAX, true, of(u64::MAX, 0)),
        ] {
            let mut set = before;
            assert_eq!(set.add_up_to(up_to), is_gap, "{before:?} {up_to}");
            assert_eq!(set, after, "{before:?} {up_to}");
        }
    }
}
