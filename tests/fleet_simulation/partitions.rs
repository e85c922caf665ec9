//! `stream`: three replicas that do not all hear each other, by the direction of each link.

use super::exact::{Setup, bucket};
use super::random::Random;
use super::streams::Streams;
use super::world::{Account, Fault, FaultKind, SECOND, World};

/// Names and the ways between replicas that are cut.
const CUTS: [(&str, &[(usize, usize)]); 8] = [
    ("one link", &[(0, 1), (1, 0)]),
    ("one way", &[(0, 1)]),
    ("one hears nothing", &[(1, 0), (2, 0)]),
    ("nobody hears one", &[(0, 1), (0, 2)]),
    ("one is cut off", &[(0, 1), (0, 2), (1, 0), (2, 0)]),
    ("a ring", &[(0, 1), (1, 2), (2, 0)]),
    ("one link and one way", &[(0, 1), (1, 0), (1, 2)]),
    ("all links", &[(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]),
];

/// The second at which a cut begins, and that of its end.
const CUT: (u64, u64) = (2, 12);

/// The units that are admitted between two seconds.
fn admitted(account: &Account, from: u64, to: u64) -> f64 {
    (account.seconds[to as usize] - account.seconds[from as usize]) as f64
}

/// Runs a cut. Returns the admitted units as a part of the allowed ones from `isolate_after` on, and those that one Weir
/// would admit in the ten seconds behind the cut, but the fleet does not, in bursts.
fn run(seed: u64, ways: &'static [(usize, usize)], weights: &[u64]) -> (f64, f64) {
    let setup = Setup { weights: weights.into(), ..Setup::new(3, 500, 100) };
    let mut world = World::new(seed, (3, 0), setup.network, setup.load(), SECOND);
    world.faults = vec![Fault { kind: FaultKind::Ways(ways), from_ns: CUT.0 * SECOND, to_ns: CUT.1 * SECOND }];
    world.run(&mut Streams::new(bucket(setup.rate, setup.burst), setup.timing, 3), 22 * SECOND + SECOND / 10);
    let account = &world.accounts[0];
    let (from, to) = (CUT.0 + 1, CUT.1);
    let part = admitted(account, from, to) / ((to - from) * setup.rate + setup.burst) as f64;
    let less = 10.0 * setup.rate as f64 - admitted(account, to, to + 10);
    (part, less / setup.burst as f64)
}

/// At most 1.10 of the limit is admitted `isolate_after` behind the begin of a cut, and at most one burst less than the limit
/// behind its end.
#[test]
fn no_cut_exceeds_the_limit() {
    println!("| Cut | Admitted / allowed | Bursts less afterwards |");
    for (name, ways) in CUTS {
        let (mut most, mut least) = (f64::MIN, f64::MIN);
        for seed in 0..2 {
            let mut random = Random::new(seed);
            let some = [random.below(4), random.below(4), 1 + random.below(4)];
            let usual: &[_] = if seed == 0 { &[[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]] } else { &[] };
            for weights in usual.iter().copied().chain([some]) {
                let (part, less) = run(seed, ways, &weights);
                assert!(part <= 1.1, "{name}, seed {seed}, load {weights:?}: {part:.3} of the limit");
                assert!(less <= 1.0, "{name}, seed {seed}, load {weights:?}: {less:.2} bursts less afterwards");
                (most, least) = (most.max(part), least.max(less));
            }
        }
        println!("| {name} | {most:.3} | {least:.2} |");
    }
}
