//! Random fleets through random faults. After the last fault each must be as exact as before.

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weir::engine::store::stream::Timing;

use super::exact::{LAN, bucket};
use super::leases::LeaseFleet;
use super::random::Random;
use super::split::Split;
use super::streams::Streams;
use super::world::{Account, Fault, FaultKind, Load, MS, Network, SECOND, Strategy, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sharing {
    Stream,
    Lease,
    Split,
}

/// One fleet and its load and faults, all of which follow from the seed.
#[derive(Debug)]
struct Case {
    seed: u64,
    sharing: Sharing,
    nodes: usize,
    timing: Timing,
    network: Network,
    rate: u64,
    burst: u64,
    times: f64,
    weights: Vec<u64>,
    skew_ns: u64,
    faults: Vec<Fault>,
    faults_end: u64,
    seconds: u64,
}

/// The units of a run, for the summary.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// The largest excess over `B + r t`, in seconds of the rate.
    over: f64,
    /// Admitted units as a part of the allowed ones, through the faults and behind them.
    through: f64,
    behind: f64,
    messages: f64,
    bytes: f64,
}

const WAN: Network = Network { lost: 0, doubled: 0, delay_ns: (5 * MS, 60 * MS) };

impl Case {
    /// The case of a seed, with this strategy or a random one.
    fn of(seed: u64, sharing: Option<Sharing>) -> Self {
        let mut random = Random::new(seed);
        let other = if random.happens(200) {
            random.pick(&[Sharing::Lease, Sharing::Lease, Sharing::Split])
        } else {
            Sharing::Stream
        };
        let sharing = sharing.unwrap_or(other);
        let nodes = random.pick(&[2, 2, 2, 3, 3, 3, 3, 4, 5, 5, 8, 13]);
        let interval_ns = if nodes > 8 { 50 * MS } else { random.pick(&[10, 20, 20, 40]) * MS };
        let timing = Timing { interval_ns, isolate_after_ns: (400 * MS).max(8 * interval_ns) };
        let lossy = Network {
            lost: random.between((1, 100)),
            doubled: random.between((1, 50)),
            delay_ns: (MS / 5, random.between((1, 30)) * MS),
        };
        let network = random.pick(&[LAN, LAN, WAN, lossy, lossy]);
        // A store is reached over TCP.
        let network = if sharing == Sharing::Stream { network } else { LAN };
        let (rate, times) = (random.pick(&[50, 200, 500]), random.pick(&[0.9, 1.5, 3.0]));
        let burst = random.pick(&[1, 10, 40, rate / 2]).max(if sharing == Sharing::Stream { 1 } else { nodes as u64 });
        let weights = match random.below(3) {
            0 => (0..nodes).map(|node| u64::from(node == 0)).collect(),
            1 => (1..=nodes as u64).collect(),
            _ => vec![1; nodes],
        };
        let skew_ns = random.pick(&[0, 100 * MS, 3600 * SECOND]);
        let (faults, faults_end) = faults(nodes, &mut random);
        let seconds = faults_end.div_ceil(SECOND) + random.between((6, 10));
        Self {
            seed,
            sharing,
            nodes,
            timing,
            network,
            rate,
            burst,
            times,
            weights,
            skew_ns,
            faults,
            faults_end,
            seconds,
        }
    }

    fn check(&self) -> Figures {
        let rule = bucket(self.rate, self.burst);
        match self.sharing {
            Sharing::Stream => self.run(&mut Streams::new(rule, self.timing, self.nodes), 0),
            Sharing::Lease => self.run(&mut LeaseFleet::new(&rule, self.nodes), 1),
            Sharing::Split => self.run(&mut Split::new(&rule, self.nodes), 0),
        }
    }

    fn run<S: Strategy<Message: Clone>>(&self, strategy: &mut S, stores: usize) -> Figures {
        let load = Load { per_second: self.times * self.rate as f64, keys: 1, weights: self.weights.clone() };
        let mut world = World::new(self.seed, (self.nodes, stores), self.network, load, self.skew_ns);
        (world.rate, world.burst) = (self.rate as f64, self.burst as f64);
        world.faults.clone_from(&self.faults);
        world.bound_span_ns = 2 * self.timing.interval_ns + self.network.delay_ns.1;
        world.run(strategy, self.seconds * SECOND);
        self.check_one_off(&world);
        self.check_rate_behind_faults(&world);
        let account = &world.accounts[0];
        let first = (self.faults_end.div_ceil(SECOND) as usize).min(account.seconds.len() - 1);
        let allowed = self.rate as f64 * first.max(1) as f64 + self.burst as f64;
        let per_node = (self.nodes as u64 * self.seconds) as f64;
        let behind = (account.admitted - account.seconds[first]) as f64;
        Figures {
            over: account.over / self.rate as f64,
            through: account.seconds[first] as f64 / allowed,
            behind: behind / ((self.seconds as usize - first) as f64 * self.rate as f64),
            messages: world.messages as f64 / per_node,
            bytes: world.bytes as f64 / per_node,
        }
    }

    /// The bound on the excess. Without losses and faults it is that of the delay alone.
    fn check_one_off<S: Strategy>(&self, world: &World<S>) {
        let over = world.accounts[0].over;
        let is_exact = self.faults.is_empty() && self.network.lost == 0;
        let crashes = self.faults.iter().filter(|fault| matches!(fault.kind, FaultKind::Crash(_))).count() as f64;
        let most = match self.sharing {
            // A replica that starts again has a full share.
            Sharing::Split => crashes * world.burst.div_euclid(self.nodes as f64),
            Sharing::Stream if is_exact => world.one_off_bound(0),
            // Borrowed units are spent within half a second; without a store replicas have shares of another limit.
            Sharing::Lease if self.faults.is_empty() => 0.5 * world.rate,
            // Each of the others admits as much as its own table allows.
            _ => (self.nodes - 1) as f64 * (world.burst + world.rate * (world.elapsed() / SECOND + 1) as f64),
        };
        assert!(over <= most, "{over} units beyond the limit, at most {most}: {self:?}");
    }

    /// Behind the last fault, when all replicas know of each other again, the rate is the limit's, or that of the load.
    fn check_rate_behind_faults<S: Strategy>(&self, world: &World<S>) {
        let (admitted, span) = self.span_behind_faults(&world.accounts[0]);
        let delay = self.isolate_after() + 2.0 * self.network.delay_ns.1 as f64 / SECOND as f64;
        let delay = if self.network.lost == 0 { world.bound_span_ns as f64 / SECOND as f64 } else { delay };
        let others = match self.sharing {
            Sharing::Stream => (self.nodes - 1) as f64 * (world.burst + world.rate * delay + 1.0),
            Sharing::Lease => 0.5 * world.rate,
            Sharing::Split => 0.0,
        };
        let most = world.burst + world.rate * span + others;
        assert!(admitted <= most, "{admitted} units behind the faults, at most {most}: {self:?}");
        if self.sharing == Sharing::Stream {
            // What was admitted twice in the last moments of a fault is paid first.
            let debt = (self.nodes - 1) as f64 * (world.burst + world.rate * self.isolate_after());
            let least = 0.97 * self.reference() - debt - 3.0 * (self.times * world.rate * span).sqrt();
            assert!(admitted >= least, "{admitted} units behind the faults, at least {least}: {self:?}");
        }
    }

    fn isolate_after(&self) -> f64 {
        self.timing.isolate_after_ns as f64 / SECOND as f64
    }

    /// The units that are admitted behind the faults, and the seconds in which they are.
    fn span_behind_faults(&self, account: &Account) -> (f64, f64) {
        // Two seconds for connections, states and heartbeats.
        let (from, to) = ((self.faults_end / SECOND + 2) as usize, account.seconds.len() - 1);
        ((account.seconds[to] - account.seconds[from]) as f64, (to - from) as f64)
    }

    /// The units that one Weir would admit behind the faults.
    fn reference(&self) -> f64 {
        let load = Load { per_second: self.times * self.rate as f64, keys: 1, weights: vec![1] };
        let mut world = World::new(self.seed, (1, 0), LAN, load, 0);
        world.run(&mut Streams::new(bucket(self.rate, self.burst), self.timing, 1), self.seconds * SECOND);
        self.span_behind_faults(&world.accounts[0]).0
    }
}

/// Links of one direction, and of both, that are lost between three nodes.
const WAYS: [&[(usize, usize)]; 4] = [&[(0, 1)], &[(1, 0), (1, 2)], &[(0, 1), (1, 0)], &[(0, 1), (1, 2), (2, 0)]];

/// Faults one after another or at once, and the end of the last.
fn faults(nodes: usize, random: &mut Random) -> (Vec<Fault>, u64) {
    let mut at = SECOND;
    let mut end = at;
    let count = random.pick(&[0, 0, 1, 1, 1, 2, 3]);
    let faults = (0..count).map(|_| {
        let node = random.below(nodes as u64) as usize;
        let below = 1 + random.below(nodes as u64 - 1) as usize;
        let kind = match random.below(6) {
            0 => FaultKind::Crash(node),
            1 => FaultKind::Pause(node),
            5 if nodes > 2 => FaultKind::Ways(random.pick(&WAYS)),
            cut => FaultKind::Partition { below, cuts: cut == 2 },
        };
        let from_ns = at + random.below(SECOND);
        let to_ns = from_ns + random.between((100, 4000)) * MS;
        // Faults of one node do not overlap.
        at = to_ns + random.below(SECOND);
        end = end.max(to_ns);
        Fault { kind, from_ns, to_ns }
    });
    let faults = faults.collect();
    (faults, end)
}

#[test]
fn seeds() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = number("WEIR_SEED").map_or((0, number("WEIR_SEEDS").unwrap_or(128)), |seed| (seed, 1));
    let sharing = env::var("WEIR_SHARING").ok().map(|word| match word.as_str() {
        "stream" => Sharing::Stream,
        "lease" => Sharing::Lease,
        "split" => Sharing::Split,
        other => panic!("WEIR_SHARING={other}"),
    });
    let (next, figures) = (AtomicU64::new(first), Mutex::new(BTreeMap::<_, Vec<Figures>>::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let case = Case::of(seed, sharing);
                    let checked = case.check();
                    figures.lock().unwrap().entry((case.sharing, case.nodes)).or_default().push(checked);
                }
            });
        }
    });
    println!("sharing nodes runs over(s) through behind messages/s bytes/s");
    for ((sharing, nodes), runs) in &*figures.lock().unwrap() {
        let count = runs.len() as f64;
        let mean = |of: fn(&Figures) -> f64| runs.iter().map(of).sum::<f64>() / count;
        let most = runs.iter().map(|run| run.over).fold(0.0, f64::max);
        println!(
            "{sharing:?} {nodes:3} {count:3} {most:6.2} {:.3} {:.3} {:7.0} {:8.0}",
            mean(|run| run.through),
            mean(|run| run.behind),
            mean(|run| run.messages),
            mean(|run| run.bytes)
        );
    }
}
