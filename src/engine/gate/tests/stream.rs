//! Gates that share limits by streams, in virtual time: each has a replica, and messages arrive at once.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use arc_swap::access::Map;
use tokio::time::{Instant, advance};

use super::redis::NoStore;
use super::{CAPS, MS_NS, answer, ask, facts, headers, hold, install, limit, metrics, ns, pairs_of, policy};
use crate::base::time::{self, Clock};
use crate::engine::gate::spend::correct;
use crate::engine::gate::{Gate, Live, NewestLive, Spend, Step, StreamLedger, Waiting};
use crate::engine::limit::tests::{algorithm, each_algorithm};
use crate::engine::limit::{OnFull, Retry};
use crate::engine::policy::{AfterResponse, Allowed, Cost, Limit, OnLimit, Settle, SettleBy, Stage, Strategy};
use crate::engine::store::TokenCache;
use crate::engine::store::snapshot::{Snapshot, restore};
use crate::engine::store::stream::message::{Cursor, LimitCharges, States};
use crate::engine::store::stream::{Ledger, PeerId, Replica, Timing};

const TIMING: Timing = Timing { interval_ns: 20 * MS_NS, isolate_after_ns: 1000 * MS_NS };

/// One replica.
pub(super) struct Node {
    pub(super) gate: &'static Arc<Gate>,
    pub(super) live: &'static Live,
    newest: Arc<ArcSwap<&'static Live>>,
    pub(super) ledger: StreamLedger,
    replica: Replica,
}

pub(super) struct Fleet(pub(super) Vec<Node>);

fn peer(index: usize) -> PeerId {
    PeerId(u32::try_from(index).unwrap())
}

fn ms_since(start: Instant) -> u128 {
    time::instant_now().duration_since(start).as_millis()
}

pub(super) fn shared(limit: Limit) -> Limit {
    Limit { strategy: Strategy::Stream, ..limit }
}

/// A shared limit of `rule` on requests with the header `a`.
pub(super) fn of_rule(rule: &str) -> Limit {
    Limit { allowed: Allowed::to_all(algorithm(rule)), ..shared(limit("a", 1, "1s", 1, OnLimit::Reject)) }
}

impl Node {
    fn new(gate: Gate, limits: &[Limit]) -> Self {
        let gate: &'static Arc<Gate> = Box::leak(Box::new(Arc::new(gate)));
        let live = install(gate, limits.to_vec(), CAPS);
        let newest = Arc::new(ArcSwap::from_pointee(live));
        let loaded = Map::new(Arc::clone(&newest), |live: &&'static Live| *live);
        let ledger = StreamLedger::new(Arc::clone(gate), NewestLive::new(loaded));
        let replica = Replica::new(TIMING, gate.clock.now());
        Self { gate, live, newest, ledger, replica }
    }

    fn reload(&mut self, limits: &[Limit]) {
        self.live = install(self.gate, limits.to_vec(), CAPS);
        self.newest.store(Arc::new(self.live));
    }

    /// Sends a request and commits its charges. Returns the remaining units, if it passes.
    pub(super) fn left(&self, words: &str) -> Option<u64> {
        match self.step(words) {
            Step::Pass(mut pass) => {
                pass.charged.commit(true);
                pass.standing.map(|standing| standing.remaining)
            }
            _ => None,
        }
    }

    pub(super) fn step(&self, words: &str) -> Step<'static> {
        ask(self.gate, self.live, &headers(&words.split(' ').collect::<Vec<_>>()))
    }

    /// Units that remain for a key of the limit `a`, less its debt.
    pub(super) fn balance(&self, key: &str) -> i64 {
        let charge = self.gate.named_charge(self.live, "a", &pairs_of(&[("header:a", key)]), None, 0).unwrap();
        let balance = correct(self.live, &charge, (0, 0), self.gate.clock.now());
        i64::try_from(balance.remaining.unwrap()).unwrap() - i64::try_from(balance.debt).unwrap()
    }

    fn spend(&self, key: &str, units: i64) {
        let key = pairs_of(&[("header:a", key)]);
        self.gate.spend(self.live, Spend { limit: "a", key: &key, plan: None, units }, self.gate.clock.now()).unwrap();
    }
}

impl Fleet {
    /// Connected replicas with these limits.
    pub(super) fn of(count: usize, limits: &[Limit]) -> Self {
        let clock = Clock::start();
        let mut fleet = Self((0..count).map(|_| Node::new(Gate::new(clock, [7; 16], metrics()), limits)).collect());
        fleet.connect();
        fleet
    }

    fn connect(&mut self) {
        for one in 0..self.0.len() {
            for other in (0..self.0.len()).filter(|other| *other != one) {
                let now = self.0[one].gate.clock.now();
                self.0[one].replica.connect(peer(other), now);
            }
        }
        self.talk();
    }

    /// Each replica makes a batch of its charges, and all messages arrive.
    pub(super) fn talk(&mut self) {
        self.tick();
        self.carry();
    }

    fn tick(&mut self) {
        for Node { gate, ledger, replica, .. } in &mut self.0 {
            replica.tick(ledger, gate.clock.now());
        }
    }

    fn carry(&mut self) {
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for from in 0..self.0.len() {
                for to in (0..self.0.len()).filter(|to| *to != from) {
                    let Node { gate, ledger, replica, .. } = &mut self.0[from];
                    let now = gate.clock.now();
                    let Some(message) = replica.next_message(peer(to), ledger, now) else { continue };
                    is_over = false;
                    let Node { ledger, replica, .. } = &mut self.0[to];
                    replica.receive(peer(from), &message, ledger, now);
                }
            }
        }
    }

    /// Lets `ms` milliseconds pass, in which the replicas talk.
    pub(super) async fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(20) {
            advance(Duration::from_millis(20)).await;
            self.talk();
        }
    }

    /// The balance of a key of the limit `a` on each replica.
    fn balances(&self, key: &str) -> Vec<i64> {
        self.0.iter().map(|node| node.balance(key)).collect()
    }

    /// Restarts a replica with the state that it would hand over. The others do not know of charges since they talked.
    fn restart(&mut self, index: usize, limits: &[Limit]) {
        let Node { gate, .. } = &self.0[index];
        let now = gate.clock.now();
        let mut snapshot = Snapshot::begin(Vec::new(), &[7; 16], now, now).unwrap();
        gate.save_all(&mut snapshot).unwrap();
        let restored = restore(&snapshot.finish().unwrap()[..], now, |_| None).unwrap();
        let next = Gate::new(gate.clock, [7; 16], metrics());
        next.restore(restored.limits);
        self.0[index] = Node::new(next, limits);
        self.connect();
    }
}

#[tokio::test(start_paused = true)]
async fn one_limit_holds_over_all_replicas() {
    let more = ["fixed_window 6 per 1 day UTC", "token_bucket 6/1h+fixed_window 6/1h"];
    for rule in &each_algorithm("6/1h", &more) {
        let mut fleet = Fleet::of(3, &[of_rule(rule)]);
        for turn in 0..6 {
            assert!(fleet.0[turn % 3].left("a=x").is_some(), "{rule} {turn}");
            fleet.talk();
        }
        assert_eq!(fleet.balances("x"), [0; 3], "{rule}");
        assert_eq!(fleet.balances("y"), [6; 3], "{rule}");
        assert!(fleet.0.iter().all(|node| node.left("a=x").is_none()), "{rule}");
    }
}

/// What replicas admit before they hear of each other is a debt of all, and is paid before more passes.
#[tokio::test(start_paused = true)]
async fn what_several_admit_is_owed_by_all() {
    let held = Limit { name: "held".into(), ..shared(limit("b", 10, "1s", 2, hold(None))) };
    let mut fleet = Fleet::of(3, &[shared(limit("a", 1, "1s", 2, OnLimit::Reject)), held]);
    for node in &fleet.0 {
        assert_eq!((node.left("a=x"), node.left("a=x"), node.left("a=x")), (Some(1), Some(0), None));
        assert_eq!((node.left("b=x"), node.left("b=x")), (Some(1), Some(0)));
    }
    let Step::Wait(early) = fleet.0[0].step("b=x") else { panic!("it waits") };
    fleet.talk();
    assert_eq!(fleet.balances("x"), [-4; 3]);
    let Step::Refuse(refusal) = fleet.0[1].step("a=x") else { panic!("refused") };
    assert_eq!(refusal.retry, Retry::AfterNs(ns("5s")));
    let Step::Wait(late) = fleet.0[1].step("b=x") else { panic!("it waits") };
    // The first was told to wait for 100 ms. Now it waits until the debt of all is paid, on each replica.
    let start = time::instant_now();
    let took = |waiting: Box<Waiting<'static>>| async move {
        waiting.wait(&NoStore).await.unwrap().charged.commit(true);
        ms_since(start)
    };
    let (early, late) = tokio::join!(took(early), took(late));
    assert!((500..502).contains(&early) && (500..502).contains(&late), "{early} {late}");
    fleet.talk();
    // Both have passed at once.
    let Step::Wait(last) = fleet.0[2].step("b=x") else { panic!("it waits") };
    let last = took(last).await;
    assert!((700..702).contains(&last), "{last}");
}

/// A charge that is given back before a batch is in no batch. After a batch, the next one says that it was given back.
#[tokio::test(start_paused = true)]
async fn a_charge_given_back_at_once_is_not_told() {
    for rule in ["token_bucket 6/1h burst 6", "sliding_log 6/1h"] {
        let mut fleet = Fleet::of(1, &[of_rule(rule)]);
        let node = &mut fleet.0[0];
        let told = |node: &mut Node| -> Vec<(Vec<i64>, usize)> {
            let taken = node.ledger.take(node.gate.clock.now());
            taken.limits.into_iter().map(|charges| (charges.units, charges.returned.len())).collect()
        };
        drop([node.step("a=x"), node.step("a=x")]);
        assert_eq!(told(node), [], "{rule}");
        let passes = [node.step("a=x"), node.step("a=x")];
        assert_eq!(told(node), [(vec![2], 0)], "{rule}");
        advance(Duration::from_millis(1)).await;
        drop(passes);
        assert_eq!(told(node), [(vec![], 3)], "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn units_that_are_given_back_come_back_everywhere() {
    for rule in
        ["token_bucket 6/1h burst 6", "fixed_window 6 per 1 day UTC", "sliding_log 6/1h", "sub_window 6/1h in 4"]
    {
        let mut fleet = Fleet::of(2, &[of_rule(rule)]);
        let before = fleet.0[0].step("a=x");
        drop(before);
        fleet.talk();
        assert_eq!(fleet.balances("x"), [6, 6], "{rule}: in one batch they are nothing");
        let pass = fleet.0[0].step("a=x");
        fleet.talk();
        assert_eq!(fleet.balances("x"), [5, 5], "{rule}");
        // Nearly all of the unit is left to be given back.
        fleet.pass(100).await;
        drop(pass);
        fleet.pass(20).await;
        assert_eq!(fleet.balances("x"), [6, 6], "{rule}");
    }
    // Units that have come back by themselves are not given back again: not even after the peer has spent them.
    let mut fleet = Fleet::of(2, &[shared(limit("a", 10, "1s", 10, OnLimit::Reject))]);
    let pass = fleet.0[0].step("a=x");
    fleet.pass(900).await;
    fleet.0[1].spend("x", 5);
    fleet.talk();
    assert_eq!(fleet.balances("x"), [5, 5]);
    drop(pass);
    fleet.talk();
    assert_eq!(fleet.balances("x"), [5, 5]);
}

/// A request that waited has its charges in another place.
#[tokio::test(start_paused = true)]
async fn held_requests_are_charged_and_given_back_everywhere() {
    let mut fleet = Fleet::of(2, &[shared(limit("a", 1, "1s", 1, hold(None)))]);
    fleet.0[0].left("a=x");
    fleet.talk();
    let waiting = fleet.0[1].step("a=x");
    let pass = answer(waiting, &super::redis::FakeRedis::new(fleet.0[0].gate.clock), &headers(&["a=x"])).await.unwrap();
    fleet.talk();
    let balances = fleet.balances("x");
    assert!(balances == [0, 0], "{balances:?}");
    let other = fleet.0[0].step("a=x");
    let Step::Wait(other) = other else { panic!("it waits") };
    drop(pass);
    fleet.talk();
    // The front of the other replica is woken by the refund.
    let start = time::instant_now();
    other.wait(&NoStore).await.unwrap();
    assert!(ms_since(start) < 10);
}

#[tokio::test(start_paused = true)]
async fn settlements_count_as_far_as_they_were_made() {
    let settle = Settle::only(SettleBy::ResponseBytes, 7);
    let after = Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) }));
    let rule = Limit { after, cost: Cost::Units(4), ..shared(limit("a", 1, "1h", 10, OnLimit::Reject)) };
    let mut fleet = Fleet::of(2, &[rule]);
    for (bytes, expected) in [(1, 9), (4, 5), (5, 0)] {
        let Step::Pass(mut pass) = fleet.0[0].step("a=x") else { panic!("{bytes}") };
        pass.charged.commit(true);
        let mut bill = pass.charged.bill().unwrap();
        fleet.talk();
        bill.end(bytes, None, None);
        drop(bill);
        fleet.talk();
        assert_eq!(fleet.balances("x"), [expected; 2], "{bytes}");
        fleet.0[0].spend("y", 1);
    }
    // A service gives units back, and no more than are spent.
    for (extra, expected) in [(-3, 3), (-30, 10)] {
        let Node { gate, live, ledger, .. } = &mut fleet.0[1];
        let charge = gate.named_charge(live, "a", &pairs_of(&[("header:a", "x")]), None, 0).unwrap();
        correct(live, &charge, (extra, 0), gate.clock.now());
        let told: i64 = ledger.take(gate.clock.now()).limits.iter().flat_map(|of| of.units.clone()).sum();
        assert_eq!((told, fleet.0[1].balance("x")), (extra.max(-7), expected), "{extra}");
    }
    // The largest debt bounds the charge on all replicas.
    fleet.0[0].spend("z", 1000);
    fleet.talk();
    assert_eq!(fleet.balances("z"), [-7; 2]);
    assert_eq!(fleet.balances("y"), [7; 2]);
}

#[tokio::test(start_paused = true)]
async fn delayed_requests_are_charged_as_far_as_they_were() {
    let delayed = super::parse_limit(&["a", "1", "1h", "1", "delay=100ms,300ms"]);
    let mut fleet = Fleet::of(2, &[shared(delayed)]);
    let steps: Vec<_> = (0..6).map(|_| fleet.0[0].step("a=x")).collect();
    fleet.talk();
    assert_eq!(fleet.balances("x"), [-3; 2], "beyond the longest delay nothing is charged");
    drop(steps);
    fleet.pass(20).await;
    assert_eq!(fleet.balances("x"), [1; 2]);
}

#[tokio::test(start_paused = true)]
async fn plans_and_overrides_select_the_rule_everywhere() {
    let usual = shared(limit("a", 2, "1h", 2, OnLimit::Reject));
    let of = |burst| Some(limit("a", burst, "1h", burst, OnLimit::Reject).allowed.usual);
    let plans = vec![("gold".into(), of(50)), ("free".into(), of(9)), ("all".into(), None)];
    let overrides = vec![("o".into(), of(100)), ("u".into(), None)];
    let rule = Limit { allowed: Allowed { plans, overrides, ..usual.allowed.clone() }, ..usual };
    let mut fleet = Fleet::of(2, std::slice::from_ref(&rule));
    for (words, expected) in [
        ("a=1", 1),
        ("a=2 x-plan=gold", 49),
        ("a=3 x-plan=free", 8),
        ("a=4 x-plan=none", 1),
        ("a=o x-plan=gold", 99),
        ("a=o", 97),
    ] {
        assert_eq!(fleet.0[0].left(words), Some(expected), "{words}");
        fleet.talk();
        assert_eq!(fleet.0[1].left(words), Some(expected - 1), "{words}");
        fleet.talk();
    }
    assert_eq!(fleet.0[0].left("a=5 x-plan=all").or(fleet.0[0].left("a=u")), None, "no limit applies");
    // Plans in another order after a reload: charges keep the names of theirs.
    fleet.0[0].left("a=6 x-plan=free");
    let mut moved = rule;
    moved.allowed.plans.swap(0, 1);
    fleet.0[0].reload(std::slice::from_ref(&moved));
    fleet.0[0].left("a=7 x-plan=gold");
    fleet.talk();
    assert_eq!((fleet.0[1].left("a=6 x-plan=free"), fleet.0[1].left("a=7 x-plan=gold")), (Some(7), Some(48)));
}

#[tokio::test(start_paused = true)]
async fn an_isolated_replica_keeps_to_its_share() {
    let mut fleet = Fleet::of(1, &[shared(limit("a", 9, "9s", 9, OnLimit::Reject))]);
    let node = &mut fleet.0[0];
    node.gate.link().set_absent(2, Some(0));
    assert_eq!((0..9).filter(|_| node.left("a=x").is_some()).count(), 3);
    assert_eq!(node.balance("x"), 0);
    let admitted = {
        let mut admitted = 0;
        for _ in 0..900 {
            advance(Duration::from_millis(100)).await;
            admitted += u32::from(fleet.0[0].left("a=x").is_some());
        }
        admitted
    };
    assert_eq!(admitted, 30, "a third of one unit a second");
    // What is given back counts as often.
    let node = &mut fleet.0[0];
    let pass = node.step("a=y");
    assert_eq!(node.balance("y"), 6);
    drop(pass);
    assert_eq!(node.balance("y"), 9);
    node.spend("y", 2);
    assert_eq!(node.balance("y"), 3);
    // Peers hear of the own charges only.
    let taken = node.ledger.take(node.gate.clock.now());
    assert!(taken.is_complete);
    let charged: i64 = taken.limits.iter().flat_map(LimitCharges::each).map(|(_, units)| units).sum();
    assert_eq!(charged, 3 + 30 + 2);
    node.gate.link().set_absent(0, Some(0));
    assert_eq!(node.left("a=z"), Some(8));
}

/// The state that a successor takes over contains the charges of its peers.
#[tokio::test(start_paused = true)]
async fn a_takeover_charges_nothing_twice() {
    let limits = [shared(limit("a", 1, "1h", 100, OnLimit::Reject))];
    let mut fleet = Fleet::of(3, &limits);
    for index in 0..3 {
        for _ in 0..10 {
            assert!(fleet.0.iter().all(|node| node.left("a=x").is_some()));
            fleet.pass(20).await;
        }
        let before = fleet.balances("x");
        fleet.restart(index, &limits);
        fleet.pass(100).await;
        assert_eq!(fleet.balances("x"), before, "{index}");
    }
}

#[tokio::test(start_paused = true)]
async fn reloads_keep_what_peers_charged() {
    let rule = |burst| shared(limit("a", 1, "1h", burst, OnLimit::Reject));
    let mut fleet = Fleet::of(2, &[rule(5)]);
    fleet.0[0].left("a=x");
    fleet.talk();
    fleet.0[0].left("a=x");
    fleet.0[1].reload(&[rule(10)]);
    fleet.talk();
    assert_eq!(fleet.balances("x"), [3, 8], "one rule, and then the other");
    fleet.0[0].reload(&[rule(10)]);
    assert_eq!(fleet.balances("x"), [8, 8]);
    // A replica without the limit ignores it; its own last charges still arrive.
    fleet.0[0].left("a=x");
    fleet.0[0].reload(&[limit("b", 1, "1h", 1, OnLimit::Reject)]);
    fleet.0[1].left("a=x");
    fleet.talk();
    assert_eq!(fleet.0[1].balance("x"), 6);
    // So does one where it is local.
    fleet.0[0].reload(&[limit("a", 1, "1h", 10, OnLimit::Reject)]);
    fleet.0[0].left("a=x");
    fleet.0[1].left("a=x");
    fleet.talk();
    assert_eq!(fleet.balances("x"), [6, 5]);
    // Another algorithm begins anew.
    fleet.0[1].reload(&[rule(10)]);
    fleet.0[1].left("a=y");
    let windows = of_rule("fixed_window 10 per 1 day UTC");
    (0..2).for_each(|index| fleet.0[index].reload(std::slice::from_ref(&windows)));
    fleet.talk();
    assert_eq!((fleet.balances("x"), fleet.balances("y")), (vec![10; 2], vec![9, 10]));
}

/// Peers hear of what a table was charged before another one replaced it, and of what requests of the older policy charge
/// it after that.
#[tokio::test(start_paused = true)]
async fn charges_of_a_replaced_table_arrive() {
    let windows = of_rule("fixed_window 10 per 1 day UTC");
    let mut fleet = Fleet::of(2, std::slice::from_ref(&windows));
    let gate = fleet.0[0].gate;
    let buckets = policy(vec![of_rule("token_bucket 9/1h burst 9")], Vec::new());
    let old = gate.install_with(buckets, CAPS, Arc::new(TokenCache::new(10)), &[]);
    let charge = |old: &Live| {
        let step = gate.admit(old, Stage::Identified, &facts(&headers(&["a=x"])), || 100, gate.clock.now()).unwrap();
        let Step::Pass(mut pass) = step else { panic!("it passes") };
        pass.charged.commit(true);
    };
    charge(&old);
    fleet.0[0].reload(std::slice::from_ref(&windows));
    charge(&old);
    fleet.talk();
    assert_eq!(fleet.balances("x"), [10, 9]);
    drop(old);
    fleet.talk();
    assert_eq!(fleet.balances("x"), [10, 8]);
}

#[tokio::test(start_paused = true)]
async fn charges_of_unknown_limits_and_plans_do_no_harm() {
    let fleet =
        &mut Fleet::of(1, &[shared(limit("a", 5, "1h", 5, OnLimit::Reject)), limit("b", 5, "1h", 5, OnLimit::Reject)]);
    let node = &mut fleet.0[0];
    let now = node.gate.clock.now();
    let key = node.gate.named_charge(node.live, "a", &pairs_of(&[("header:a", "x")]), None, 0).unwrap().key;
    for (limit, plan) in [("gone", None), ("b", None), ("a", Some("unknown"))] {
        let mut charges = LimitCharges::of(limit, plan);
        charges.push(key, 2);
        charges.push(key, 0);
        node.ledger.charge(&charges, now, now);
    }
    assert_eq!(node.balance("x"), 3, "an unknown plan has the usual rule");
    assert!(node.live.states[1].table.is_empty(), "not shared");
    let mut extreme = LimitCharges::of("a", None);
    extreme.push(key, i64::MAX);
    extreme.push(key, i64::MAX);
    extreme.push(key, i64::MIN);
    node.ledger.charge(&extreme, now, now);
    let at = Cursor { limit: "z".into(), ..Cursor::default() };
    assert_eq!(node.ledger.states(&at, now), States { at: Some(at), ..States::default() });
}

/// A key beyond `max_keys` is charged in the sketch, or in a shared bucket.
#[tokio::test(start_paused = true)]
async fn keys_beyond_the_bound_are_charged_too() {
    for (on_full, rule) in [
        (OnFull::Sketch, "token_bucket 4/1h burst 4"),
        (OnFull::Shared, "token_bucket 4/1h burst 4"),
        (OnFull::Shared, "fixed_window 4 per 1 day UTC"),
    ] {
        let mut fleet = Fleet::of(2, &[Limit { max_keys: 1, on_full, ..of_rule(rule) }]);
        fleet.0[1].left("a=other");
        (0..4).for_each(|_| assert!(fleet.0[0].left("a=x").is_some(), "{rule}"));
        fleet.talk();
        assert_eq!(fleet.0[1].balance("x"), 0, "{rule}");
        assert_eq!(fleet.0[1].left("a=x"), None, "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_the_states_of_all_limits() {
    let named = |name: &str| Limit { name: name.into(), ..shared(limit("a", 6, "1h", 6, OnLimit::Reject)) };
    let limits = [named("c"), named("a"), Limit { strategy: Strategy::Local, ..named("local") }, named("b")];
    let mut fleet = Fleet::of(2, &limits);
    fleet.0[0].left("a=x");
    fleet.talk();
    fleet.0[1].left("a=x");
    fleet.talk();
    let clock = fleet.0[0].gate.clock;
    advance(Duration::from_secs(2)).await;
    fleet.0[1] = Node::new(Gate::new(clock, [7; 16], metrics()), &limits);
    fleet.connect();
    let remaining: Vec<u64> = ["c", "a", "local", "b"]
        .iter()
        .map(|name| {
            let node = &fleet.0[1];
            let charge = node.gate.named_charge(node.live, name, &pairs_of(&[("header:a", "x")]), None, 0).unwrap();
            correct(node.live, &charge, (0, 0), clock.now()).remaining.unwrap()
        })
        .collect();
    assert_eq!(remaining, [4, 4, 6, 4]);
}

/// A process that takes over tells peers what the one before did not, also while that one ends.
#[tokio::test(start_paused = true)]
async fn a_takeover_loses_no_charge() {
    let limits = [shared(limit("a", 9, "1h", 9, OnLimit::Reject))];
    let mut fleet = Fleet::of(2, &limits);
    fleet.0[0].left("a=x");
    fleet.talk();
    fleet.pass(1100).await;
    // The last charge is in no batch.
    fleet.0[0].left("a=x");
    let (old, old_live) = (fleet.0[0].gate, fleet.0[0].live);
    let told = old.subscribe_deltas();
    fleet.restart(0, &limits);
    assert_eq!(fleet.balances("x"), [7; 2], "peers have asked for the states");
    let Step::Pass(mut pass) = ask(old, old_live, &headers(&["a=x"])) else { panic!("it passes") };
    pass.charged.commit(true);
    for delta in told.try_iter() {
        fleet.0[0].gate.apply_delta(fleet.0[0].live, &delta);
    }
    fleet.talk();
    assert_eq!(fleet.balances("x"), [6; 2]);
}

/// A process whose successor fails goes on, and peers hear of what only the successor was told.
#[tokio::test(start_paused = true)]
async fn a_takeover_that_fails_loses_no_charge() {
    let mut fleet = Fleet::of(2, &[shared(limit("a", 9, "1h", 9, OnLimit::Reject))]);
    fleet.pass(1100).await;
    let told = fleet.0[0].gate.subscribe_deltas();
    fleet.0[0].left("a=x");
    fleet.talk();
    assert_eq!(fleet.balances("x"), [8, 9]);
    drop(told);
    fleet.0[0].gate.unsubscribe_deltas();
    fleet.talk();
    assert_eq!(fleet.balances("x"), [8; 2]);
}

/// Windows of the calendar end at one time everywhere, whenever the first request of a key came.
#[tokio::test(start_paused = true)]
async fn windows_of_the_calendar_end_together() {
    let mut fleet = Fleet::of(3, &[of_rule("fixed_window 6 per 1 min UTC")]);
    let minute_ns = 60_000 * MS_NS;
    let now = fleet.0[0].gate.clock.now().as_ns();
    let to_end = minute_ns - now % minute_ns;
    advance(Duration::from_nanos(to_end + minute_ns - 900 * MS_NS)).await;
    (0..3).for_each(|_| fleet.talk());
    for index in 0..3 {
        fleet.0[index].left("a=x");
        fleet.pass(20).await;
    }
    assert_eq!(fleet.balances("x"), [3; 3]);
    // A batch of the window before does not count in the next one.
    advance(Duration::from_millis(830)).await;
    fleet.0[0].left("a=x");
    fleet.tick();
    advance(Duration::from_millis(20)).await;
    fleet.carry();
    assert_eq!(fleet.balances("x"), [6; 3]);
}

/// Charges of a request that was never decided were not told, so neither is their return.
#[tokio::test(start_paused = true)]
async fn undecided_requests_tell_nothing() {
    let clock = Clock::start();
    let redis = super::redis::FakeRedis::new(clock);
    let store = redis.store(crate::engine::store::backend::OnFailure::Split);
    let mut node = Node::new(Gate::new(clock, [7; 16], metrics()), &[]);
    let limits = [
        shared(limit("a", 9, "1h", 9, OnLimit::Reject)),
        Limit { strategy: Strategy::Redis { store: 0, replicas: 1 }, ..limit("b", 9, "1h", 9, OnLimit::Reject) },
    ];
    let live = super::install_with(node.gate, limits, CAPS, &[store]);
    node.newest.store(Arc::new(live));
    let fields = headers(&["a=x", "b=x"]);
    let step = node.gate.admit(live, Stage::Identified, &facts(&fields), || 100, clock.now()).unwrap();
    let Step::Ask(asking) = step else { panic!("a store is asked") };
    drop(asking);
    assert!(node.ledger.take(clock.now()).limits.is_empty());
    let pass = answer(ask(node.gate, live, &fields), &redis, &fields).await.unwrap();
    let taken = node.ledger.take(clock.now()).limits;
    assert_eq!(taken.iter().map(|limit| (&*limit.limit, limit.units.clone())).collect::<Vec<_>>(), [("a", vec![1])]);
    drop(pass);
    assert_eq!(node.ledger.take(clock.now()).limits.first().map(|limit| limit.returned[0]), Some(1));
}

/// Three replicas charge one key all the time, and give most of it back 30 ms later. Only what they do not give back stays
/// charged, as with one Weir. The bucket is nearly full, so a refund may lose the time since its charge; all of them
/// together lose it once.
#[tokio::test(start_paused = true)]
async fn refunds_by_several_replicas_lose_no_more_than_time() {
    let [one, two] = ["token_bucket 1/1s burst 200", "token_bucket 1/1s burst 200+token_bucket 2/1s burst 300"];
    for (rule, is_exact) in [(one, true), (two, false)] {
        for kept_every in [u32::MAX, 100] {
            let fleet = &mut Fleet::of(3, &[of_rule(rule)]);
            let (mut flights, mut kept) = (std::collections::VecDeque::new(), 0_i64);
            for step in 1..=2000_u32 {
                for node in &fleet.0 {
                    let Step::Pass(pass) = node.step("a=x") else { panic!("{rule}: refused at {step}") };
                    flights.push_back((step, pass));
                }
                if step % kept_every == 0 {
                    fleet.0[0].left("a=x");
                    kept += 1;
                }
                while flights.front().is_some_and(|(at, _)| at + 30 <= step) {
                    flights.pop_front(); // gives it back
                }
                advance(Duration::from_millis(1)).await;
                if step % 20 == 0 {
                    fleet.talk();
                }
            }
            flights.clear();
            fleet.talk();
            // Two units have come back meanwhile, and refunds may lose as much.
            let (least, most) = (200 - kept, (200 - kept + 2).min(200));
            // With several rates, each replica loses time of its own.
            let least = if is_exact { least } else { least - 6 };
            for balance in fleet.balances("x") {
                assert!((least..=most).contains(&balance), "{rule}: {balance} of {least} to {most}");
            }
        }
    }
}
