//! `stream`: the one-off bound at every instant, and the rate in the long run.

use weir::engine::limit::{Algorithm, Quota, Rate};
use weir::engine::store::stream::Timing;

use super::streams::Streams;
use super::world::{Fault, FaultKind, Load, MS, Network, SECOND, Strategy, World};

/// The messages of a network without faults.
pub const LAN: Network = Network { lost: 0, doubled: 0, delay_ns: (MS / 5, MS) };

pub const TIMING: Timing = Timing { interval_ns: 20 * MS, isolate_after_ns: SECOND };

/// A token bucket of `rate` units a second.
pub fn bucket(rate: u64, burst: u64) -> Algorithm {
    Algorithm::TokenBucket(Quota::new(Rate { count: rate, period_ns: SECOND }, burst).unwrap())
}

/// The result of a run without faults.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The largest excess over `B + r t`, and its bound.
    pub over: f64,
    pub bound: f64,
    pub admitted: u64,
    /// Units that are admitted in a second, behind the start.
    pub per_second: f64,
    /// Per node and second.
    pub messages: f64,
    pub bytes: f64,
}

/// A fleet with a limit of one key, and its load.
#[derive(Clone, Debug)]
pub struct Setup {
    pub timing: Timing,
    pub network: Network,
    pub faults: Vec<Fault>,
    pub rate: u64,
    pub burst: u64,
    /// The parts of the load that nodes get.
    pub weights: Vec<u64>,
    /// The load as a multiple of the rate.
    pub times: f64,
    pub seconds: u64,
    /// Seconds that do not count for the rate.
    pub from: u64,
}

impl Setup {
    /// Replicas on a network without faults, with twice the load that they may admit.
    pub fn new(replicas: usize, rate: u64, burst: u64) -> Self {
        let (faults, weights) = (Vec::new(), vec![1; replicas]);
        Self { timing: TIMING, network: LAN, faults, rate, burst, weights, times: 2.0, seconds: 48, from: 12 }
    }

    /// Nanoseconds from a charge to its arrival, without losses. The interval grows with the fleet.
    pub fn delay_ns(&self) -> u64 {
        self.timing.interval_ns.max(20_000 * self.weights.len() as u64) + self.network.delay_ns.1
    }

    pub fn load(&self) -> Load {
        Load { per_second: self.times * self.rate as f64, keys: 1, weights: self.weights.clone() }
    }

    /// Runs `strategy`, which has so many stores.
    pub fn run<S: Strategy<Message: Clone>>(&self, strategy: &mut S, stores: usize) -> Outcome {
        let nodes = self.weights.len();
        let mut world = World::new(1, (nodes, stores), self.network, self.load(), 0);
        (world.rate, world.burst) = (self.rate as f64, self.burst as f64);
        world.bound_span_ns = self.delay_ns();
        world.faults.clone_from(&self.faults);
        world.run(strategy, self.seconds * SECOND);
        let bound = world.one_off_bound(0);
        let account = &world.accounts[0];
        let (from, to) = (self.from as usize, account.seconds.len() - 1);
        let per_second = (account.seconds[to] - account.seconds[from]) as f64 / (to - from) as f64;
        let per_node = (nodes as u64 * self.seconds) as f64;
        let (messages, bytes) = (world.messages as f64 / per_node, world.bytes as f64 / per_node);
        Outcome { over: account.over, bound, admitted: account.admitted, per_second, messages, bytes }
    }

    pub fn stream(&self) -> Outcome {
        self.run(&mut Streams::new(bucket(self.rate, self.burst), self.timing, self.weights.len()), 0)
    }

    /// The rate of one Weir with this load.
    fn alone(&self) -> f64 {
        Self { weights: vec![1], faults: Vec::new(), ..self.clone() }.stream().per_second
    }

    /// Checks the long-run rate: not above that of the limit, or of the load, and not below that of one Weir, `alone`.
    fn check(&self, name: &str, alone: f64) -> Outcome {
        let outcome = self.stream();
        let most = self.rate as f64 * self.times.min(1.0);
        let (above, below) = (outcome.per_second / most - 1.0, 1.0 - outcome.per_second / alone);
        println!("{name}: {:.3} % above, {:.3} % below, {outcome:?}", above * 100.0, below * 100.0);
        assert!(above < 0.005 && below < 0.005, "{name}: {outcome:?}");
        outcome
    }
}

#[test]
fn the_long_run_rate_is_right() {
    let three = Setup::new(3, 1000, 100);
    let uneven = vec![20, 5, 3, 1, 1, 1, 0, 0];
    // The setups of a group have one reference.
    for setups in [
        vec![
            ("three", three.clone()),
            ("eight", Setup::new(8, 1000, 100)),
            ("uneven load of eight", Setup { weights: uneven, ..three.clone() }),
        ],
        vec![("uneven load", Setup { weights: vec![8, 1, 1], burst: 500, ..three.clone() })],
        vec![("burst of one", Setup::new(3, 400, 1)), ("burst of one of eight", Setup::new(8, 400, 1))],
        // Longer, because the load itself is not exact.
        vec![("load below the limit", Setup { times: 0.8, seconds: 120, from: 24, ..three })],
    ] {
        let alone = setups[0].1.alone();
        for (name, setup) in setups {
            let outcome = setup.check(name, alone);
            assert!(outcome.over <= outcome.bound, "{name}: {outcome:?}");
        }
    }
}

#[test]
fn the_long_run_rate_is_right_over_a_bad_network() {
    let network = Network { lost: 100, doubled: 100, delay_ns: (MS, 50 * MS) };
    let [three, eight] = [3, 8].map(|replicas| Setup { network, ..Setup::new(replicas, 1000, 100) });
    let alone = three.alone();
    three.check("losses", alone);
    eight.check("losses", alone);
}

/// A fault of ten seconds. Then the fleet is as exact as before, as soon as it has paid its debts.
#[test]
fn the_rate_is_right_behind_a_fault() {
    let setup = |replicas| Setup { from: 20, ..Setup::new(replicas, 1000, 100) };
    let alone = setup(1).alone();
    for (name, kind) in [
        ("partition", FaultKind::Partition { below: 1, cuts: false }),
        ("partition that cuts", FaultKind::Partition { below: 1, cuts: true }),
        ("crash", FaultKind::Crash(0)),
        ("pause", FaultKind::Pause(0)),
    ] {
        for replicas in [2, 3, 8] {
            let faults = vec![Fault { kind, from_ns: 5 * SECOND, to_ns: 15 * SECOND }];
            let outcome = Setup { faults, ..setup(replicas) }.check(name, alone);
            // A partition admits more: the share of a replica that is cut off.
            let share = 10.0 * 1000.0 / replicas as f64 + 2.0 * 1000.0;
            assert!(outcome.over <= share, "{name}, {replicas}: {outcome:?}");
        }
    }
}
