//! Clients below their limits, and clients that take all of them, while a store is away for longer than its keys remember.

use std::ops::Range;

use super::*;

/// Ten units in a second, under each algorithm.
fn rules() -> Vec<String> {
    each_algorithm(
        "50/5s",
        &[
            "token_bucket 10/1s burst 3",
            "leaky_bucket 10/1s burst 3 shapes",
            "fixed_window 50 per 5 s UTC",
            "sub_window 50/5s in 1",
            "token_bucket 50/5s+token_bucket 100/10s",
            "fixed_window 50 per 5 s UTC+fixed_window 100 per 10 s UTC",
        ],
    )
}

/// Seconds in which the store is away, and those at the end in which an obedient client is idle.
const OUTAGES: [(Range<u64>, u64); 4] = [(6..8, 0), (6..10, 1), (6..30, 0), (6..30, 13)];

const SECOND_MS: u64 = 1000;

/// A fleet of three that shares one store, and a client of it.
struct Trial {
    redis: FakeRedis,
    replicas: Vec<(&'static Gate, &'static Live)>,
    begin: Timestamp,
    asked: usize,
}

/// The requests of a client in a part of a trial, and those that passed.
struct Phase {
    asked: usize,
    passed: usize,
    /// The passed ones of each replica.
    by_replica: [usize; 3],
}

impl Trial {
    /// Begins 3.7 seconds after windows of 5 and 10 seconds.
    async fn new(rule: &str, strategy: Strategy, on_failure: OnFailure) -> Self {
        let clock = Clock::start();
        let windows_ns = 10_000 * MS_NS;
        let begin = Timestamp::from_ns(clock.now().as_ns().next_multiple_of(windows_ns) + 3_700 * MS_NS);
        sleep_until(clock.instant(begin)).await;
        let redis = FakeRedis::new(clock);
        let mut limit = limit("a", 1, "1s", 1, OnLimit::Reject);
        (limit.allowed, limit.strategy) = (Allowed::to_all(algorithm(rule)), strategy);
        let replica = |_| {
            let gate = gate_of(clock);
            (gate, install_with(gate, [limit.clone()], CAPS, &[redis.store(on_failure)]))
        };
        Self { replicas: (0..3).map(replica).collect(), redis, begin, asked: 0 }
    }

    /// Asks all replicas in turn from one instant to another, in milliseconds, once in `pace`.
    async fn ask(&mut self, span: Range<u64>, pace: u64) -> Phase {
        let (mut asked, mut by_replica) = (0, [0; 3]);
        for ms in span.step_by(usize::try_from(pace).unwrap()) {
            let at = self.begin.saturating_add_ns(ms * MS_NS);
            sleep_until(self.replicas[0].0.clock.instant(at)).await;
            let (gate, live) = self.replicas[self.asked % 3];
            // Once in 50 ms: a replica in its turn, so each about as often as Weir does.
            if ms % 50 < pace {
                live.return_leases(false);
            }
            let headers = headers(&["a=k"]);
            let answer = answer(super::ask(gate, live, &headers), &self.redis, &headers).await;
            if let Ok(mut pass) = answer {
                pass.charged.commit(true);
                by_replica[self.asked % 3] += 1;
            }
            asked += 1;
            self.asked += 1;
        }
        Phase { asked, passed: by_replica.iter().sum(), by_replica }
    }

    fn set(&self, trouble: Option<Unavailable>) {
        self.redis.set(trouble, Duration::ZERO);
    }
}

/// Each rule with each strategy.
fn cases() -> impl Iterator<Item = (String, Strategy)> {
    let redis = Strategy::Redis { store: 0, replicas: 3 };
    let lease = Strategy::Lease { store: 0, replicas: 3, units: LeaseUnits::Auto };
    let each = rules().into_iter().flat_map(move |rule| [(rule.clone(), redis), (rule, lease)]);
    // A replica would borrow the units of several requests, of which a shaping bucket has one at a time.
    each.filter(|(rule, strategy)| !rule.contains("shapes") || matches!(strategy, Strategy::Redis { .. }))
}

/// Each replica gets at least a third of its part of an even load that is too much, whatever the phases of its calls are.
#[tokio::test(start_paused = true)]
async fn an_even_load_gets_even_parts() {
    let lease = Strategy::Lease { store: 0, replicas: 3, units: LeaseUnits::Auto };
    for rule in ["token_bucket 100/1s", "sliding_window 100/1s", "sub_window 100/1s in 10"] {
        for pace in [1, 2, 3, 5, 7] {
            let mut trial = Trial::new(rule, lease, OnFailure::Split).await;
            let Phase { passed, by_replica, .. } = trial.ask(0..8_000, pace).await;
            println!("{rule} each {pace} ms: {by_replica:?} of {passed}");
            let least = *by_replica.iter().min().unwrap();
            assert!(9 * least >= passed, "{rule} each {pace} ms: {by_replica:?}");
        }
    }
}

/// A client at four fifths of its limit.
#[tokio::test(start_paused = true)]
async fn an_obedient_client_is_never_refused() {
    for ((rule, strategy), on_failure) in
        cases().flat_map(|case| [OnFailure::Split, OnFailure::Local].map(|by| (case.clone(), by)))
    {
        for (outage, idle_s) in OUTAGES {
            let mut trial = Trial::new(&rule, strategy, on_failure).await;
            let (begin, end) = (outage.start * SECOND_MS, outage.end * SECOND_MS);
            let before = trial.ask(0..begin, 125).await;
            trial.set(Some(Unavailable::Down));
            let during = trial.ask(begin..end - idle_s * SECOND_MS, 125).await;
            trial.set(None);
            let after = trial.ask(end..end + 8 * SECOND_MS, 125).await;
            for (phase, Phase { asked, passed, .. }) in [("before", before), ("during", during), ("after", after)] {
                assert_eq!(passed, asked, "{phase} {outage:?}, idle for {idle_s}: {rule} {strategy:?} {on_failure:?}");
            }
        }
    }
}

/// A client that takes all that it gets is admitted as much as if the store had not been away.
#[tokio::test(start_paused = true)]
async fn an_outage_neither_fills_nor_empties_a_key() {
    // The last one differs only by the idle seconds.
    let outages = OUTAGES[..3].iter().map(|(outage, _)| outage.clone());
    for (rule, strategy) in cases() {
        let mut trial = Trial::new(&rule, strategy, OnFailure::Split).await;
        let mut without_outage = Vec::new();
        for second in 0..outages.clone().map(|outage| outage.end).max().unwrap() + 10 {
            without_outage.push(trial.ask(second * SECOND_MS..(second + 1) * SECOND_MS, 50).await.passed);
        }
        for outage in outages.clone() {
            let (begin, end) = (outage.start * SECOND_MS, outage.end * SECOND_MS);
            let mut trial = Trial::new(&rule, strategy, OnFailure::Split).await;
            trial.ask(0..begin, 50).await;
            trial.set(Some(Unavailable::Down));
            let during = trial.ask(begin..end, 50).await.passed;
            trial.set(None);
            let soon = trial.ask(end..end + 3 * SECOND_MS, 50).await.passed;
            let later = trial.ask(end + 3 * SECOND_MS..end + 10 * SECOND_MS, 50).await.passed;
            let found = (during, soon, soon + later);
            let [from, to] = [outage.start, outage.end].map(|second| usize::try_from(second).unwrap());
            let passed = |from: usize, to: usize| without_outage[from..to].iter().sum::<usize>();
            let expected = (passed(from, to), passed(to, to + 3), passed(to, to + 10));
            let case = format!("{outage:?}: {found:?} instead of {expected:?}: {rule} {strategy:?}");
            // A replica keeps parts of a unit, which all together get later.
            assert!(found.0 + found.2 <= expected.0 + expected.2 + 1, "{case}");
            assert!((95..=102).contains(&found.2), "{case}");
            let is_steady = rule.contains("bucket") || rule.contains("sliding_window");
            assert!(!is_steady || found.1.abs_diff(expected.1) <= 2, "{case}");
        }
    }
}
