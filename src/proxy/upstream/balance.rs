//! Which endpoint gets a request: functions of what is known of those that may.
//!
//! Not here: who may, and keeping count.

/// An endpoint that may get a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Among the endpoints of its upstream.
    pub(super) place: usize,
    /// Requests that it has in hand, from all workers.
    pub(super) in_flight: usize,
    /// A hash of its address.
    pub(super) id: u64,
}

/// All that may, in the order of their places.
pub(super) type Candidates = smallvec::SmallVec<[Candidate; 8]>;

/// The one whose turn it is.
pub(super) fn in_turn(candidates: &[Candidate], turn: usize) -> Option<usize> {
    let next = candidates.iter().find(|candidate| candidate.place >= turn);
    next.or(candidates.first()).map(|candidate| candidate.place)
}

/// One with the fewest requests in hand; of several, the one whose turn it is.
pub(super) fn least_loaded(candidates: &[Candidate], turn: usize) -> Option<usize> {
    let fewest = candidates.iter().map(|candidate| candidate.in_flight).min()?;
    let fewest: Candidates = candidates.iter().filter(|candidate| candidate.in_flight == fewest).copied().collect();
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
    Some(if second.in_flight < first.in_flight { second } else { first }.place)
}

/// The one that suits `hash` best (rendezvous hashing): without it the next best, and all other hashes stay where they
/// are. An endpoint that is added takes its share evenly from all others.
pub(super) fn suited(candidates: &[Candidate], hash: u64) -> Option<usize> {
    candidates.iter().max_by_key(|candidate| mixed(hash ^ candidate.id)).map(|candidate| candidate.place)
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
        loads.iter().map(|&(place, in_flight)| Candidate { place, in_flight, id: id(place) }).collect()
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
}
