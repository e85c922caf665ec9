//! Which endpoint gets a request: functions of what is known of those that may.
//!
//! Not here: who may, and keeping count.

use super::names::Rank;

/// An endpoint that may get a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Among the endpoints of its upstream.
    pub(super) place: usize,
    /// Requests that it has in hand, from all workers.
    pub(super) in_flight: usize,
    /// A hash of its address.
    pub(super) id: u64,
    /// What the DNS says of it; the same of all if it says nothing.
    pub(super) rank: Rank,
}

impl Candidate {
    /// In proportion to what it gets. One of no weight gets little, not nothing (RFC 2782).
    fn weight(&self) -> u64 {
        u64::from(self.rank.weight) * 256 + 1
    }

    /// Whether it would be less loaded by one more request than `other`, for what they get.
    fn is_lighter_than(&self, other: &Self) -> bool {
        let load = |one: &Self, other: &Self| (one.in_flight as u128 + 1) * u128::from(other.weight());
        load(self, other) < load(other, self)
    }
}

/// All that may, in the order of their places.
pub(super) type Candidates = smallvec::SmallVec<[Candidate; 8]>;

/// Leaves those of the lowest priority.
pub(super) fn keep_first(candidates: &mut Candidates) {
    if let Some(first) = candidates.iter().map(|candidate| candidate.rank.priority).min() {
        candidates.retain(|candidate| candidate.rank.priority == first);
    }
}

/// One by chance, in proportion to weights; of equal ones, the one whose turn it is.
pub(super) fn by_weight(candidates: &[Candidate], turn: usize, random: u64) -> Option<usize> {
    let first = candidates.first()?;
    if candidates.iter().all(|candidate| candidate.rank.weight == first.rank.weight) {
        return in_turn(candidates, turn);
    }
    let sum: u64 = candidates.iter().map(Candidate::weight).sum();
    let mut at = random % sum;
    candidates
        .iter()
        .find(|candidate| match at.checked_sub(candidate.weight()) {
            Some(left) => {
                at = left;
                false
            }
            None => true,
        })
        .map(|candidate| candidate.place)
}

/// The one whose turn it is.
pub(super) fn in_turn(candidates: &[Candidate], turn: usize) -> Option<usize> {
    let next = candidates.iter().find(|candidate| candidate.place >= turn);
    next.or(candidates.first()).map(|candidate| candidate.place)
}

/// One with the fewest requests in hand; of several, the one whose turn it is.
pub(super) fn least_loaded(candidates: &[Candidate], turn: usize) -> Option<usize> {
    let mut all = candidates.iter();
    let first = all.next()?;
    let least = all.fold(first, |least, one| if one.is_lighter_than(least) { one } else { least });
    let fewest: Candidates = candidates.iter().filter(|one| !least.is_lighter_than(one)).copied().collect();
    in_turn(&fewest, turn)
}

/// The less loaded of two that chance picks.
pub(super) fn of_two(candidates: &[Candidate], random: u64) -> Option<usize> {
    let count = candidates.len() as u64;
    let (first, others) = (random.checked_rem(count)?, count.saturating_sub(1).max(1));
    // Never the first again, unless it is the only one.
    let second = (first + 1 + (random >> 32) % others) % count;
    let [first, second] = [first, second].map(|index| candidates.get(usize::try_from(index).ok()?));
    let (first, second) = (first?, second?);
    Some(if second.is_lighter_than(first) { second } else { first }.place)
}

/// The one that suits `hash` best (rendezvous hashing): without it the next best, and all other hashes stay where they
/// are. An endpoint that is added takes its share evenly from all others.
pub(super) fn suited(candidates: &[Candidate], hash: u64) -> Option<usize> {
    let score = |candidate: &Candidate| mixed(hash ^ candidate.id);
    let weights = |candidate: &&Candidate| candidates.first().is_some_and(|first| first.weight() == candidate.weight());
    if candidates.iter().all(|candidate| weights(&candidate)) {
        return candidates.iter().max_by_key(|candidate| score(candidate)).map(|candidate| candidate.place);
    }
    // Weighted: the share of each is in proportion to the logarithm that it is divided by (Schindelhauer, 2005).
    let weighted = |candidate: &Candidate| {
        let number = |bits: u64| f64::from(u32::try_from(bits).unwrap_or(u32::MAX));
        let unit = (number(score(candidate) >> 32) + 0.5) / (f64::from(u32::MAX) + 1.0);
        -number(candidate.weight()) / unit.ln()
    };
    let best = candidates.iter().max_by(|one, other| weighted(one).total_cmp(&weighted(other)));
    best.map(|candidate| candidate.place)
}

/// The finaliser of `SplitMix64` (Steele, Lea and Flood, 2014): each bit of the result depends on all bits.
pub(super) fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Candidates of these places and loads.
    fn loads(loads: &[(usize, usize)]) -> Candidates {
        let id = |place: usize| mixed(place as u64 + 1);
        loads
            .iter()
            .map(|&(place, in_flight)| Candidate { place, in_flight, id: id(place), rank: Rank::default() })
            .collect()
    }

    #[test]
    fn nobody_is_chosen_of_none() {
        assert_eq!([in_turn(&[], 1), least_loaded(&[], 1), of_two(&[], 1), suited(&[], 1)], [None; 4]);
    }

    #[test]
    fn turns_skip_who_may_not() {
        let candidates = loads(&[(1, 9), (2, 0), (5, 3)]);
        let turns = [0, 1, 2, 3, 5, 6, 99].map(|turn| in_turn(&candidates, turn).unwrap());
        assert_eq!(turns, [1, 1, 2, 5, 5, 1, 1]);
    }

    #[test]
    fn the_least_loaded_take_turns() {
        let candidates = loads(&[(0, 2), (1, 1), (2, 7), (3, 1)]);
        let chosen = [0, 1, 2, 3, 4].map(|turn| least_loaded(&candidates, turn).unwrap());
        assert_eq!(chosen, [1, 1, 3, 3, 1]);
    }

    #[test]
    fn of_two_the_less_loaded_and_never_twice_the_same() {
        let candidates = loads(&[(0, 0), (1, 5), (2, 9)]);
        let mut counts = [0; 3];
        for seed in 0..30_000 {
            counts[of_two(&candidates, mixed(seed)).unwrap()] += 1;
        }
        // Of the three pairs the first is in two, the second wins one, and the third none.
        assert!(counts[0] > 19_000 && counts[0] < 21_000 && counts[2] == 0, "{counts:?}");
        assert_eq!(of_two(&loads(&[(4, 1)]), u64::MAX), Some(4));
    }

    #[test]
    fn few_move_when_an_endpoint_comes_or_goes() {
        let all = loads(&[(0, 0), (1, 0), (2, 0), (3, 0)]);
        let mut counts = [0_u32; 4];
        for key in 0..40_000_u64 {
            let chosen = suited(&all, mixed(key)).unwrap();
            counts[chosen] += 1;
            let without_last = suited(&all[..3], mixed(key)).unwrap();
            assert!(chosen == 3 || without_last == chosen, "only those of the last one move");
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    fn ranked(ranks: &[(u16, u16)]) -> Candidates {
        let rank = |(place, &(priority, weight)): (usize, &(u16, u16))| {
            let id = mixed(place as u64 + 1);
            Candidate { place, in_flight: 0, id, rank: Rank { priority, weight } }
        };
        ranks.iter().enumerate().map(rank).collect()
    }

    #[test]
    fn the_lowest_priority_is_asked() {
        for (ranks, left) in [(&[(2, 1), (1, 1), (1, 0), (3, 9)][..], &[1, 2][..]), (&[(7, 0)], &[0]), (&[], &[])] {
            let mut candidates = ranked(ranks);
            keep_first(&mut candidates);
            let places: Vec<_> = candidates.iter().map(|candidate| candidate.place).collect();
            assert_eq!(places, left);
        }
    }

    /// Each gets what its weight says, whichever way it is chosen; one without weight a little.
    #[test]
    fn weights_are_shares() {
        let candidates = ranked(&[(0, 10), (0, 30), (0, 60), (0, 0)]);
        let mut counts = [[0_i64; 4]; 2];
        for turn in 0..100_000 {
            counts[0][by_weight(&candidates, 0, mixed(turn)).unwrap()] += 1;
            counts[1][suited(&candidates, mixed(turn)).unwrap()] += 1;
        }
        for counts in counts {
            let near = |count: i64, share: i64| (count - share).abs() < 600;
            assert!(near(counts[0], 10_000) && near(counts[1], 30_000) && near(counts[2], 60_000), "{counts:?}");
            assert!(counts[3] < 30, "{counts:?}");
        }
        // As many in hand for each unit of weight.
        let mut candidates = ranked(&[(0, 10), (0, 30)]);
        for turn in 0..40 {
            let place = least_loaded(&candidates, turn).unwrap();
            candidates[place].in_flight += 1;
        }
        assert_eq!([candidates[0].in_flight, candidates[1].in_flight], [10, 30]);
        let alike = ranked(&[(0, 5), (0, 5)]);
        assert_eq!([0, 1, 2].map(|turn| by_weight(&alike, turn, 9).unwrap()), [0, 1, 0]);
    }
}
