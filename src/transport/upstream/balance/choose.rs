//! Chooses an endpoint among candidates: pure functions. Not here: which endpoints are candidates, and their counts.

use crate::base::split_mix::mix;
use crate::transport::upstream::dns::address::Preference;

/// An endpoint that may get a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its index in the upstream.
    pub(crate) index: usize,
    /// Its active requests, from all workers.
    pub(crate) in_flight: usize,
    /// A hash of its address.
    pub(crate) id: u64,
    /// Its priority and weight in the DNS; equal for all candidates without SRV records.
    pub(crate) preference: Preference,
}

impl Candidate {
    /// Proportional to its part of the requests. Weight 0 gets a small part (RFC 2782).
    fn weight(&self) -> u64 {
        u64::from(self.preference.weight) * 256 + 1
    }

    /// Whether its load relative to its weight would be lower than that of `other` after one more request.
    fn is_lighter_than(&self, other: &Self) -> bool {
        let load = |a: &Self, b: &Self| (a.in_flight as u128 + 1) * u128::from(b.weight());
        load(self, other) < load(other, self)
    }
}

/// Candidates in the order of their indices.
pub(crate) type Candidates = smallvec::SmallVec<[Candidate; 8]>;

/// Removes candidates that do not have the lowest priority.
pub(crate) fn retain_lowest_priority(candidates: &mut Candidates) {
    if let Some(first) = candidates.iter().map(|candidate| candidate.preference.priority).min() {
        candidates.retain(|candidate| candidate.preference.priority == first);
    }
}

/// A random candidate in proportion to the weights; round robin if all weights are equal. Returns its index.
pub(crate) fn by_weight(candidates: &[Candidate], turn: usize, random: u64) -> Option<usize> {
    let first = candidates.first()?;
    if candidates.iter().all(|candidate| candidate.preference.weight == first.preference.weight) {
        return round_robin(candidates, turn);
    }
    let sum: u64 = candidates.iter().map(Candidate::weight).sum();
    let mut at = random % sum;
    candidates
        .iter()
        .find(|candidate| match at.checked_sub(candidate.weight()) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        })
        .map(|candidate| candidate.index)
}

/// The first candidate at or after index `turn`, else the first of all.
pub(crate) fn round_robin(candidates: &[Candidate], turn: usize) -> Option<usize> {
    let next = candidates.iter().find(|candidate| candidate.index >= turn);
    next.or(candidates.first()).map(|candidate| candidate.index)
}

/// The candidate with the lowest load; round robin among several.
pub(crate) fn least_loaded(candidates: &[Candidate], turn: usize) -> Option<usize> {
    let mut all = candidates.iter();
    let first = all.next()?;
    let least = all.fold(first, |least, candidate| if candidate.is_lighter_than(least) { candidate } else { least });
    let fewest: Candidates = candidates.iter().filter(|candidate| !least.is_lighter_than(candidate)).copied().collect();
    round_robin(&fewest, turn)
}

/// The less loaded of two random candidates.
pub(crate) fn less_loaded_of_two(candidates: &[Candidate], random: u64) -> Option<usize> {
    let count = candidates.len() as u64;
    let (first, others) = (random.checked_rem(count)?, count.saturating_sub(1).max(1));
    // The second differs from the first, unless there is only one.
    let second = (first + 1 + (random >> 32) % others) % count;
    let [first, second] = [first, second].map(|index| candidates.get(usize::try_from(index).ok()?));
    let (first, second) = (first?, second?);
    Some(if second.is_lighter_than(first) { second } else { first }.index)
}

/// The candidate with the highest score for `hash` (rendezvous hashing). Without it, its hashes go to their second-best
/// candidates and all others stay. A new candidate takes hashes evenly from all others.
pub(crate) fn rendezvous(candidates: &[Candidate], hash: u64) -> Option<usize> {
    let score = |candidate: &Candidate| mix(hash ^ candidate.id);
    let first_weight = candidates.first().map(Candidate::weight);
    if candidates.iter().all(|candidate| Some(candidate.weight()) == first_weight) {
        return candidates.iter().max_by_key(|candidate| score(candidate)).map(|candidate| candidate.index);
    }
    // Weighted rendezvous hashing by the logarithmic method (Schindelhauer and Schomaker, 2005).
    let weighted = |candidate: &Candidate| {
        let number = |bits: u64| f64::from(u32::try_from(bits).unwrap_or(u32::MAX));
        let unit = (number(score(candidate) >> 32) + 0.5) / (f64::from(u32::MAX) + 1.0);
        -number(candidate.weight()) / unit.ln()
    };
    let best = candidates.iter().max_by(|a, b| weighted(a).total_cmp(&weighted(b)));
    best.map(|candidate| candidate.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates with these indices and loads.
    fn loads(loads: &[(usize, usize)]) -> Candidates {
        let id = |index: usize| mix(index as u64 + 1);
        loads
            .iter()
            .map(|&(index, in_flight)| Candidate { index, in_flight, id: id(index), preference: Preference::default() })
            .collect()
    }

    #[test]
    fn no_candidates_give_no_choice() {
        assert_eq!(
            [round_robin(&[], 1), least_loaded(&[], 1), less_loaded_of_two(&[], 1), rendezvous(&[], 1)],
            [None; 4]
        );
    }

    #[test]
    fn round_robin_skips_other_endpoints() {
        let candidates = loads(&[(1, 9), (2, 0), (5, 3)]);
        let turns = [0, 1, 2, 3, 5, 6, 99].map(|turn| round_robin(&candidates, turn).unwrap());
        assert_eq!(turns, [1, 1, 2, 5, 5, 1, 1]);
    }

    #[test]
    fn equally_loaded_candidates_take_turns() {
        let candidates = loads(&[(0, 2), (1, 1), (2, 7), (3, 1)]);
        let chosen = [0, 1, 2, 3, 4].map(|turn| least_loaded(&candidates, turn).unwrap());
        assert_eq!(chosen, [1, 1, 3, 3, 1]);
    }

    #[test]
    fn the_less_loaded_of_two_different_candidates_is_chosen() {
        let candidates = loads(&[(0, 0), (1, 5), (2, 9)]);
        let mut counts = [0; 3];
        for seed in 0..30_000 {
            counts[less_loaded_of_two(&candidates, mix(seed)).unwrap()] += 1;
        }
        // Of the three pairs, the first candidate wins two, the second one, and the third none.
        assert!(counts[0] > 19_000 && counts[0] < 21_000 && counts[2] == 0, "{counts:?}");
        assert_eq!(less_loaded_of_two(&loads(&[(4, 1)]), u64::MAX), Some(4));
    }

    #[test]
    fn few_hashes_move_when_an_endpoint_is_added_or_removed() {
        let all = loads(&[(0, 0), (1, 0), (2, 0), (3, 0)]);
        let mut counts = [0_u32; 4];
        for key in 0..40_000_u64 {
            let chosen = rendezvous(&all, mix(key)).unwrap();
            counts[chosen] += 1;
            let without_last = rendezvous(&all[..3], mix(key)).unwrap();
            assert!(chosen == 3 || without_last == chosen, "only hashes of the removed candidate move");
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    fn with_preferences(preferences: &[(u16, u16)]) -> Candidates {
        let preference = |(index, &(priority, weight)): (usize, &(u16, u16))| {
            let id = mix(index as u64 + 1);
            Candidate { index, in_flight: 0, id, preference: Preference { priority, weight } }
        };
        preferences.iter().enumerate().map(preference).collect()
    }

    #[test]
    fn only_the_lowest_priority_remains() {
        for (preferences, expected) in
            [(&[(2, 1), (1, 1), (1, 0), (3, 9)][..], &[1, 2][..]), (&[(7, 0)], &[0]), (&[], &[])]
        {
            let mut candidates = with_preferences(preferences);
            retain_lowest_priority(&mut candidates);
            let indices: Vec<_> = candidates.iter().map(|candidate| candidate.index).collect();
            assert_eq!(indices, expected);
        }
    }

    /// Each candidate gets its weight, by each method; weight 0 gets a small part.
    #[test]
    fn requests_are_proportional_to_weights() {
        let candidates = with_preferences(&[(0, 10), (0, 30), (0, 60), (0, 0)]);
        let mut counts = [[0_i64; 4]; 2];
        for turn in 0..100_000 {
            counts[0][by_weight(&candidates, 0, mix(turn)).unwrap()] += 1;
            counts[1][rendezvous(&candidates, mix(turn)).unwrap()] += 1;
        }
        for counts in counts {
            let near = |count: i64, share: i64| (count - share).abs() < 600;
            assert!(near(counts[0], 10_000) && near(counts[1], 30_000) && near(counts[2], 60_000), "{counts:?}");
            assert!(counts[3] < 30, "{counts:?}");
        }
        // Equal load for each unit of weight.
        let mut candidates = with_preferences(&[(0, 10), (0, 30)]);
        for turn in 0..40 {
            let index = least_loaded(&candidates, turn).unwrap();
            candidates[index].in_flight += 1;
        }
        assert_eq!([candidates[0].in_flight, candidates[1].in_flight], [10, 30]);
        let alike = with_preferences(&[(0, 5), (0, 5)]);
        assert_eq!([0, 1, 2].map(|turn| by_weight(&alike, turn, 9).unwrap()), [0, 1, 0]);
    }
}
