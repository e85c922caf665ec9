//! The values of a histogram at one moment, and what follows from them.
//!
//! Not here: how they are counted (`cells.rs`).

/// The values of a histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// Each upper bound, and the number of values up to it.
    pub buckets: Vec<(f64, u64)>,
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: f64,
}

impl HistogramSnapshot {
    /// The values that came after `before`.
    pub fn since(&self, before: &Self) -> Self {
        let bucket =
            |((bound, count), (_, before)): (&(f64, u64), &(f64, u64))| (*bound, count.saturating_sub(*before));
        Self {
            buckets: self.buckets.iter().zip(&before.buckets).map(bucket).collect(),
            count: self.count.saturating_sub(before.count),
            sum: self.sum - before.sum,
        }
    }

    /// The mean of the values; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / as_float(self.count))
    }

    /// The value below which `part` of the values are, with even distances between the values of a bucket; the last
    /// bound if it is above that. `None` without values.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = part * as_float(self.count);
        let (mut from, mut below) = (0.0, 0);
        for (bound, count) in &self.buckets {
            if as_float(*count) >= rank && *count > below {
                return Some(from + (bound - from) * (rank - as_float(below)) / as_float(count - below));
            }
            (from, below) = (*bound, *count);
        }
        (self.count > 0).then_some(from)
    }
}

#[allow(clippy::cast_precision_loss)] // Prometheus has floats alone
pub(super) fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let of = |counts: [u64; 3], count| HistogramSnapshot {
            buckets: [1.0, 2.0, 4.0].into_iter().zip(counts).collect(),
            count,
            sum: as_float(count),
        };
        for (counts, count, part, expected) in [
            ([10, 10, 10], 10, 0.5, Some(0.5)),
            ([0, 10, 10], 10, 0.5, Some(1.5)),
            ([50, 99, 100], 100, 0.5, Some(1.0)),
            ([50, 99, 100], 100, 0.99, Some(2.0)),
            ([0, 0, 4], 4, 0.99, Some(3.98)),
            ([0, 0, 0], 4, 0.5, Some(4.0)),
            ([0, 0, 0], 0, 0.5, None),
        ] {
            assert_eq!(of(counts, count).quantile(part), expected, "{counts:?} {count} {part}");
        }
        assert_eq!(of([5, 7, 9], 12).since(&of([1, 2, 3], 3)), of([4, 5, 6], 9));
        assert_eq!((of([1, 1, 1], 2).mean(), of([0, 0, 0], 0).mean()), (Some(1.0), None));
    }
}
