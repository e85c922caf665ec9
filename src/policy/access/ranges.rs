//! What is said of every address there is: ranges without gaps, each with the rule of the longest prefix that holds it.

use super::Rule;

/// Ranges of addresses, each from its start to the next one's.
#[derive(Debug)]
pub(super) struct Ranges<A> {
    /// In order; the first is the first address of all.
    starts: Box<[A]>,
    rules: Box<[Option<Rule>]>,
}

impl<A: Copy + Ord + Default> Ranges<A> {
    /// From networks: the first address, the one after the last (none where addresses end), and the rule. They are in
    /// the order of their first addresses, and each stands before those that it holds.
    pub(super) fn of(networks: impl Iterator<Item = (A, Option<A>, Rule)>) -> Self {
        let mut ranges = vec![(A::default(), None)];
        // Networks that hold the place that has been reached, the innermost last.
        let mut open: Vec<(Option<A>, Rule)> = Vec::new();
        for (start, end, rule) in networks {
            close(&mut open, &mut ranges, |end| end <= start);
            open.push((end, rule));
            begin(&mut ranges, start, Some(rule));
        }
        close(&mut open, &mut ranges, |_| true);
        ranges.dedup_by_key(|(_, rule)| *rule);
        let (starts, rules): (Vec<_>, Vec<_>) = ranges.into_iter().unzip();
        Self { starts: starts.into(), rules: rules.into() }
    }

    /// What is said of an address.
    pub(super) fn at(&self, address: A) -> Option<Rule> {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.rules.get(behind.wrapping_sub(1)).copied().flatten()
    }
}

/// Ends the networks that end where `is_over` says so; what goes on is the network around them.
fn close<A: Copy + Ord>(
    open: &mut Vec<(Option<A>, Rule)>,
    ranges: &mut Vec<(A, Option<Rule>)>,
    is_over: impl Fn(A) -> bool,
) {
    while let Some((Some(end), _)) = open.pop_if(|(end, _)| end.is_some_and(&is_over)) {
        begin(ranges, end, open.last().map(|(_, rule)| *rule));
    }
}

/// Begins a range; what began at the same address was empty.
fn begin<A: Copy + Ord>(ranges: &mut Vec<(A, Option<Rule>)>, start: A, rule: Option<Rule>) {
    ranges.pop_if(|(last, _)| *last == start);
    ranges.push((start, rule));
}
