//! The rule of an entry, and the rule of every address: ranges without gaps, each with the rule of the longest prefix that contains it.

/// The rule of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    /// The request is exempt from limits.
    Allow,
    /// The request is denied with 403.
    Deny,
}

/// Ranges of addresses. Each range ends at the start of the next.
#[derive(Debug)]
pub(super) struct Ranges {
    /// The upper halves of the range starts, in order; the first range starts at 0. A search for one word has no branch
    /// to mispredict. A search for two words has one, and takes four times as long.
    high: Box<[u64]>,
    low: Box<[u64]>,
    rules: Box<[Option<AccessRule>]>,
}

impl Ranges {
    /// Builds ranges from networks: the first address, the address after the last (none at the end of the address
    /// space) and the rule. Networks are in the order of their first addresses, and each precedes the networks that it
    /// contains.
    pub(super) fn of(networks: impl Iterator<Item = (u128, Option<u128>, AccessRule)>) -> Self {
        let mut ranges = vec![(0, None)];
        // The networks around the current address, the innermost last.
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

    /// The rule of an address.
    pub(super) fn at(&self, address: u128) -> Option<AccessRule> {
        let [low, high] = halves(address);
        let behind = self.high.partition_point(|start| *start <= high);
        let place = behind.wrapping_sub(1);
        if self.high.get(place) != Some(&high) {
            return self.rules.get(place).copied().flatten();
        }
        self.among(high, low, behind)
    }

    /// The rule of an address if several ranges before `behind` start with `high`.
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

/// Closes the networks whose end fulfils `is_over`. The enclosing network continues.
fn close(
    open: &mut Vec<(Option<u128>, AccessRule)>,
    ranges: &mut Vec<(u128, Option<AccessRule>)>,
    is_over: impl Fn(u128) -> bool,
) {
    while let Some((Some(end), _)) = open.pop_if(|(end, _)| end.is_some_and(&is_over)) {
        begin(ranges, end, open.last().map(|(_, rule)| *rule));
    }
}

/// Begins a range, and removes an empty range at the same start.
fn begin(ranges: &mut Vec<(u128, Option<AccessRule>)>, start: u128, rule: Option<AccessRule>) {
    ranges.pop_if(|(last, _)| *last == start);
    ranges.push((start, rule));
}

/// The lower and the upper word of a number.
#[allow(clippy::cast_possible_truncation)] // the cast selects a half
fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}
