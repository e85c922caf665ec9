//! What is said of every address there is: ranges without gaps, each with the rule of the longest prefix that holds it.

use super::rule::AccessRule;

/// Ranges of addresses, each from its start to the next one's.
#[derive(Debug)]
pub(super) struct Ranges {
    /// The upper halves of the starts, in order; the first range starts at 0. A search for a word has no branch that
    /// could be foreseen wrongly, and one for two words has: that takes four times as long.
    high: Box<[u64]>,
    low: Box<[u64]>,
    rules: Box<[Option<AccessRule>]>,
}

impl Ranges {
    /// From networks: the first address, the one after the last (none where addresses end), and the rule. They are in
    /// the order of their first addresses, and each stands before those that it holds.
    pub(super) fn of(networks: impl Iterator<Item = (u128, Option<u128>, AccessRule)>) -> Self {
        let mut ranges = vec![(0, None)];
        // Networks that hold the place that has been reached, the innermost last.
        let mut open: Vec<(Option<u128>, AccessRule)> = Vec::new();
        for (start, end, rule) in networks {
            close(&mut open, &mut ranges, |end| end <= start);
            open.push((end, rule));
            begin(&mut ranges, start, Some(rule));
        }
        close(&mut open, &mut ranges, |_| true);
        ranges.dedup_by_key(|(_, rule)| *rule);
        let half = |at: usize| ranges.iter().map(move |(start, _)| halves(*start)[at]).collect();
        Self { high: half(1), low: half(0), rules: ranges.iter().map(|(_, rule)| *rule).collect() }
    }

    /// What is said of an address.
    pub(super) fn at(&self, address: u128) -> Option<AccessRule> {
        let [low, high] = halves(address);
        let behind = self.high.partition_point(|start| *start <= high);
        let place = behind.wrapping_sub(1);
        if self.high.get(place) != Some(&high) {
            return self.rules.get(place).copied().flatten();
        }
        self.among(high, low, behind)
    }

    /// The same where some ranges before the one at `behind` start with `high`.
    fn among(&self, high: u64, low: u64, behind: usize) -> Option<AccessRule> {
        let place = if self.low.get(behind.wrapping_sub(1)).is_some_and(|start| *start <= low) {
            behind
        } else {
            let first = self.high[..behind].partition_point(|start| *start < high);
            first + self.low[first..behind].partition_point(|start| *start <= low)
        };
        self.rules.get(place.wrapping_sub(1)).copied().flatten()
    }
}

/// Ends the networks that end where `is_over` says so; what goes on is the network around them.
fn close(
    open: &mut Vec<(Option<u128>, AccessRule)>,
    ranges: &mut Vec<(u128, Option<AccessRule>)>,
    is_over: impl Fn(u128) -> bool,
) {
    while let Some((Some(end), _)) = open.pop_if(|(end, _)| end.is_some_and(&is_over)) {
        begin(ranges, end, open.last().map(|(_, rule)| *rule));
    }
}

/// Begins a range; what began at the same address was empty.
fn begin(ranges: &mut Vec<(u128, Option<AccessRule>)>, start: u128, rule: Option<AccessRule>) {
    ranges.pop_if(|(last, _)| *last == start);
    ranges.push((start, rule));
}

/// The lower and the upper word.
#[allow(clippy::cast_possible_truncation)] // that is what a half is
fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}
