//! Two or three replicas whose messages the test carries, delays, doubles or drops.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{BanChange, Charges, Cursor, LimitCharges, LimitStates, Message, States};
use super::*;
use crate::base::split_mix::mix;
use crate::base::time::Timestamp;
use crate::engine::limit::tests::{algorithm, each_algorithm};
use crate::engine::limit::{Key, OnFull};
use crate::engine::store::Table;

const MS: u64 = 1_000_000;
const TIMING: Timing = Timing { interval_ns: 20 * MS, isolate_after_ns: 1000 * MS };

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(1_800_000_000_000 * MS + ms * MS)
}

fn key(number: u64) -> Key {
    Key::of_hash(number << 32, number << 40)
}

/// A ledger that adds up the charges of peers, by limit, plan and number of the key.
#[derive(Debug, Default)]
struct Book {
    own: Vec<(&'static str, &'static str, u64, i64)>,
    /// Changes of bans, by the instant of the change.
    bans: Vec<u64>,
    heard: BTreeSet<u64>,
    lost: bool,
    charged: BTreeMap<(String, String, u64), i64>,
    /// The instant as of which the last charge counts.
    charged_at: Timestamp,
    /// The parts of states that were asked for.
    asked: Vec<u64>,
    parts: u64,
    merged: Vec<String>,
}

impl Ledger for Book {
    fn take(&mut self, _: Timestamp) -> Taken {
        let limits = self.own.drain(..).map(|(limit, plan, number, units)| {
            let mut charges = LimitCharges::of(limit, Some(plan));
            charges.push(key(number), units);
            charges
        });
        self.heard.extend(&self.bans);
        let bans = self.bans.drain(..).map(|at| BanChange { at, ..BanChange::default() }).collect();
        Taken { limits: limits.collect(), bans, is_complete: !std::mem::take(&mut self.lost) }
    }

    fn charge(&mut self, charges: &LimitCharges, at: Timestamp, _: Timestamp) {
        self.charged_at = at;
        for (key, units) in charges.each() {
            let of = (charges.limit.clone(), charges.plan.clone(), key.second >> 40);
            *self.charged.entry(of).or_default() += units;
        }
    }

    fn ban(&mut self, bans: &[BanChange], _: Timestamp) {
        self.heard.extend(bans.iter().map(|ban| ban.at));
    }

    fn states(&mut self, at: &Cursor, _: Timestamp) -> States {
        if at.bans > 0 {
            let later = |changed: &u64| *changed >= at.bans;
            let bans = self.heard.iter().copied().filter(later).map(|at| BanChange { at, ..BanChange::default() });
            return States { at: Some(at.clone()), limits: vec![], bans: bans.collect(), next: None };
        }
        self.asked.push(at.from);
        let states = LimitStates { limit: format!("part {}", at.from), ..LimitStates::default() };
        let next = at.from + 1;
        let next = (next < self.parts).then(|| Cursor { limit: "l".into(), from: next, bans: 0 });
        let bans = self.heard.iter().map(|at| BanChange { at: *at, ..BanChange::default() }).collect();
        States { at: Some(at.clone()), limits: vec![states], bans, next }
    }

    fn merge(&mut self, states: &LimitStates, _: Timestamp) {
        self.merged.push(states.limit.clone());
    }
}

/// A replica with its ledger. Its number is also its number as a peer.
struct Node {
    id: PeerId,
    replica: Replica,
    book: Book,
}

impl Node {
    fn new(number: u32, started_ms: u64) -> Self {
        let book = Book { parts: 1, ..Book::default() };
        Self { id: PeerId(number), replica: Replica::new(TIMING, at(started_ms)), book }
    }

    fn charge(&mut self, number: u64, units: i64) {
        self.book.own.push(("l", "", number, units));
    }

    fn tick(&mut self, ms: u64) {
        self.replica.tick(&mut self.book, at(ms));
    }

    /// All messages that are due for `peer`.
    fn messages(&mut self, peer: PeerId, ms: u64) -> Vec<Message> {
        std::iter::from_fn(|| self.replica.next_message(peer, &mut self.book, at(ms))).collect()
    }

    fn receive(&mut self, from: PeerId, messages: &[Message], ms: u64) {
        for message in messages {
            self.replica.receive(from, message, &mut self.book, at(ms));
        }
    }

    /// The units of key `number` that peers have charged.
    fn charged(&self, number: u64) -> i64 {
        self.book.charged.iter().filter(|((.., of), _)| *of == number).map(|(_, units)| units).sum()
    }
}

fn connect(one: &mut Node, other: &mut Node, ms: u64) {
    one.replica.connect(other.id, at(ms));
    other.replica.connect(one.id, at(ms));
}

/// Carries messages until none is due. Returns their number.
fn exchange(one: &mut Node, other: &mut Node, ms: u64) -> usize {
    let mut count = 0;
    loop {
        let (there, back) = (one.messages(other.id, ms), other.messages(one.id, ms));
        if there.is_empty() && back.is_empty() {
            return count;
        }
        count += there.len() + back.len();
        other.receive(one.id, &there, ms);
        one.receive(other.id, &back, ms);
    }
}

/// Carries the first message, by which the newcomer knows that it needs states.
fn greet(one: &mut Node, newcomer: &mut Node) {
    one.tick(9000);
    newcomer.receive(one.id, &one.messages(newcomer.id, 9000), 9000);
}

/// Two replicas that know each other.
fn pair() -> (Node, Node) {
    let (mut one, mut other) = (Node::new(1, 0), Node::new(2, 1));
    connect(&mut one, &mut other, 1);
    exchange(&mut one, &mut other, 1);
    (one, other)
}

/// The sequence numbers of the batches in `messages`.
fn sequences(messages: &[Message]) -> Vec<u64> {
    messages.iter().filter_map(|message| message.charges().map(|charges| charges.sequence)).collect()
}

#[test]
fn charges_arrive_by_limit_and_plan() {
    let (mut one, mut other) = pair();
    one.book.own = vec![("a", "", 1, 3), ("a", "gold", 1, 4), ("b", "", 2, -1)];
    one.tick(20);
    exchange(&mut one, &mut other, 21);
    let of = |limit: &str, plan: &str, number| (limit.to_owned(), plan.to_owned(), number);
    let expected = BTreeMap::from([(of("a", "", 1), 3), (of("a", "gold", 1), 4), (of("b", "", 2), -1)]);
    assert_eq!(other.book.charged, expected);
    assert!(one.book.charged.is_empty() && one.book.asked.is_empty() && other.book.asked.is_empty());
    assert_eq!(one.replica.status(other.id).map(|status| status.lag), Some(1), "not acknowledged yet");
    other.tick(41);
    exchange(&mut one, &mut other, 41);
    let status = one.replica.status(other.id).unwrap();
    assert!(status.lag == 0 && status.is_connected && status.last_received == Some(at(41)), "{status:?}");
}

#[test]
fn duplicates_and_another_order_do_no_harm() {
    let (mut one, mut other) = pair();
    let mut messages = Vec::new();
    for step in 1..=5 {
        one.charge(1, 10);
        one.tick(20 * step);
        messages.extend(one.messages(other.id, 20 * step));
    }
    assert_eq!(sequences(&messages), [1, 2, 3, 4, 5]);
    for order in [4, 0, 4, 2, 0] {
        other.receive(one.id, &messages[order..=order], 101);
    }
    assert_eq!(other.charged(1), 30);
    other.receive(one.id, &messages, 102);
    other.receive(one.id, &messages, 103);
    assert_eq!(other.charged(1), 50);
}

#[test]
fn a_lost_batch_is_sent_again() {
    let (mut one, mut other) = pair();
    for step in 1..=4 {
        one.charge(1, 1);
        one.tick(20 * step);
        let messages = one.messages(other.id, 20 * step);
        assert_eq!(sequences(&messages), [step]);
        if step != 2 {
            other.receive(one.id, &messages, 20 * step);
        }
    }
    other.tick(100);
    exchange(&mut one, &mut other, 100);
    assert_eq!(other.charged(1), 3);
    one.tick(200);
    assert_eq!(sequences(&one.messages(other.id, 200)), [0; 0], "not yet");
    one.tick(301);
    let again = one.messages(other.id, 301);
    assert_eq!(sequences(&again), [2], "only that one");
    other.receive(one.id, &again, 301);
    assert_eq!((other.charged(1), other.book.charged_at), (4, at(40)), "as of the time of the batch");
}

#[test]
fn a_silent_peer_gets_nothing() {
    let (mut one, mut other) = pair();
    for step in 1..=100 {
        one.charge(1, 1);
        one.tick(20 * step);
        let sent = sequences(&one.messages(other.id, 20 * step));
        assert_eq!(sent.contains(&step), step <= 50, "{step}: {sent:?}");
        assert!(sent.is_empty() || step <= 50, "{step}: {sent:?}");
    }
    other.tick(2001);
    exchange(&mut one, &mut other, 2001);
    assert_eq!(other.charged(1), 0, "all charges until then are in the states");
    assert_eq!((one.book.asked.len(), other.book.merged.len()), (1, 1));
    one.charge(1, 5);
    one.tick(2020);
    exchange(&mut one, &mut other, 2020);
    assert_eq!((other.charged(1), one.book.asked.len()), (5, 1));
}

#[test]
fn no_more_batches_than_the_window_are_on_the_way() {
    let (mut one, mut other) = pair();
    for step in 1..=100 {
        one.charge(1, 1);
        one.tick(5 * step);
    }
    let first = one.messages(other.id, 500);
    assert_eq!(sequences(&first), (1..=64).collect::<Vec<_>>());
    other.receive(one.id, &first, 500);
    other.tick(520);
    exchange(&mut one, &mut other, 520);
    assert_eq!(other.charged(1), 100);
}

#[test]
fn a_newcomer_asks_the_oldest_peer() {
    let (mut one, mut other) = (Node::new(1, 0), Node::new(2, 2000));
    connect(&mut one, &mut other, 2000);
    one.charge(1, 5);
    one.tick(2020);
    exchange(&mut one, &mut other, 2020);
    let mut third = Node::new(3, 5000);
    (one.book.parts, one.book.asked) = (3, vec![]);
    connect(&mut other, &mut third, 5000);
    other.tick(5000);
    exchange(&mut other, &mut third, 5000);
    assert_eq!(other.book.asked, [0], "it has charged nothing, but it may have charges of others");
    third.book.merged.clear();
    connect(&mut one, &mut third, 5000);
    exchange(&mut one, &mut third, 5000);
    assert_eq!(
        (one.book.asked, third.book.merged),
        (vec![0, 1, 2], vec!["part 0".into(), "part 1".into(), "part 2".into()])
    );
    assert_eq!(third.book.charged, BTreeMap::new(), "old charges are in the states");
    assert!(!third.replica.is_recovering());
}

/// The states of a newcomer contain all charges until the connection, whichever side speaks first on it.
#[test]
fn a_newcomer_gets_former_charges_in_states_only() {
    for first in ["older", "newcomer", "both", "both, and the connection ends"] {
        let (mut one, mut newcomer) = (Node::new(1, 0), Node::new(2, 5000));
        one.charge(1, 5);
        one.tick(4980);
        newcomer.charge(1, 10);
        newcomer.tick(5010);
        connect(&mut one, &mut newcomer, 5020);
        let there = if first == "newcomer" { vec![] } else { one.messages(newcomer.id, 5020) };
        let back = if first == "older" { vec![] } else { newcomer.messages(one.id, 5020) };
        newcomer.receive(one.id, &there, 5020);
        one.receive(newcomer.id, &back, 5020);
        if first.ends_with("ends") {
            connect(&mut one, &mut newcomer, 5020);
        }
        exchange(&mut one, &mut newcomer, 5020);
        assert_eq!((newcomer.charged(1), one.book.asked.len()), (0, 1), "{first}");
        assert_eq!(one.charged(1), 10, "{first}: the older one gets all charges");
        one.charge(1, 7);
        one.tick(5040);
        exchange(&mut one, &mut newcomer, 5040);
        assert_eq!(newcomer.charged(1), 7, "{first}: further charges");
    }
}

/// A newcomer hears of a ban from any older replica, also if the replica that set it is gone.
#[test]
fn bans_arrive_at_peers_and_at_newcomers() {
    let (mut one, mut other) = pair();
    one.book.bans = (1..=3000).collect();
    one.tick(20);
    assert_eq!(exchange(&mut one, &mut other, 20), 3, "batches of bans are bounded");
    assert_eq!(other.book.heard, (1..=3000).collect());
    one.book.bans = vec![5000];
    one.book.lost = true;
    one.tick(40);
    exchange(&mut one, &mut other, 40);
    assert!(other.book.heard.contains(&5000), "also if charges were lost");
    let mut newcomer = Node::new(3, 5000);
    connect(&mut other, &mut newcomer, 5000);
    exchange(&mut other, &mut newcomer, 5000);
    assert_eq!(newcomer.book.heard.len(), 3001);
}

/// No replica hears another one for a time, in which each hears of a ban. Then each asks one peer for its states, before
/// that peer knows of the other ban.
#[test]
fn bans_behind_partitions_arrive_everywhere() {
    let mut nodes = [1, 2, 3].map(|number| Node::new(number, 0));
    let exchange_all = |nodes: &mut [Node; 3], ms| {
        for (one, other) in [(0, 1), (1, 2), (0, 2), (0, 1), (1, 2)] {
            let [one, other] = nodes.get_disjoint_mut([one, other]).unwrap();
            exchange(one, other, ms);
        }
    };
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let [one, other] = nodes.get_disjoint_mut([one, other]).unwrap();
        connect(one, other, 1);
    }
    exchange_all(&mut nodes, 1);
    for node in &mut nodes {
        // One changed by a clock that is half an hour behind.
        node.book.bans = vec![at(500).as_ns() + u64::from(node.id.0)];
        node.book.heard.insert(at(500).as_ns() - 1_800_000 * MS + u64::from(node.id.0));
    }
    for step in 1..=150 {
        for node in &mut nodes {
            node.tick(20 * step);
            (1..=3).map(PeerId).for_each(|peer| drop(node.messages(peer, 20 * step)));
        }
    }
    for ms in [3100, 3200, 3300, 3600] {
        for node in &mut nodes {
            node.tick(ms);
        }
        exchange_all(&mut nodes, ms);
    }
    assert_eq!(nodes.map(|node| node.book.heard.len()), [6; 3]);
}

/// A cut lasts for hours, and each side has forgotten the other process. Bans are from its first minutes.
#[test]
fn bans_of_a_long_cut_arrive_everywhere() {
    let mut nodes = [1, 2, 3].map(|number| Node::new(number, 0));
    let pairs = |nodes: &mut [Node; 3], with: &dyn Fn(&mut Node, &mut Node)| {
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let [one, other] = nodes.get_disjoint_mut([one, other]).unwrap();
            with(one, other);
        }
    };
    let meet = |one: &mut Node, other: &mut Node, ms| {
        connect(one, other, ms);
        exchange(one, other, ms);
    };
    pairs(&mut nodes, &|one, other| meet(one, other, 1));
    for node in &mut nodes {
        node.book.bans = vec![at(60_000).as_ns() + u64::from(node.id.0)];
        (1..=3).map(PeerId).for_each(|peer| node.replica.remove(peer));
        node.tick(60_000);
    }
    let end_ms = 3 * 3_600_000;
    for ms in [end_ms, end_ms + 300, end_ms + 600] {
        for node in &mut nodes {
            node.tick(ms);
        }
        pairs(&mut nodes, &|one, other| if ms == end_ms { meet(one, other, ms) } else { _ = exchange(one, other, ms) });
    }
    assert_eq!(nodes.map(|node| node.book.heard.len()), [3; 3]);
}

/// A replica is gone for good, and only one of two others has heard its last ban.
#[test]
fn a_ban_of_a_replica_that_is_gone_is_asked_for() {
    let ((mut one, mut other), mut gone) = (pair(), Node::new(3, 2));
    for node in [&mut one, &mut other] {
        connect(node, &mut gone, 2);
        exchange(node, &mut gone, 2);
    }
    gone.book.bans = vec![at(500).as_ns()];
    gone.tick(500);
    exchange(&mut other, &mut gone, 500);
    for ms in [500, 900, 1300, 1700] {
        for node in [&mut one, &mut other] {
            if ms == 1300 {
                node.replica.remove(gone.id);
            }
            node.tick(ms);
        }
        exchange(&mut one, &mut other, ms);
    }
    assert_eq!((one.book.heard.len(), other.book.heard.len()), (1, 1));
}

/// A newcomer asks the older one of two replicas for states, before that one hears of a ban that the other one has set.
#[test]
fn a_ban_that_is_on_the_way_arrives_at_a_newcomer() {
    let (mut one, mut other) = pair();
    let mut newcomer = Node::new(3, 5000);
    other.book.bans = vec![at(4999).as_ns()];
    other.tick(5000);
    for older in [&mut one, &mut other] {
        connect(older, &mut newcomer, 5001);
        exchange(older, &mut newcomer, 5001);
    }
    assert_eq!((one.book.heard.len(), newcomer.book.heard.len()), (0, 1));
}

/// Batches after a message with a number that no peer comes to.
#[test]
fn numbers_beyond_all_bounds_are_ignored() {
    let (mut one, mut other) = pair();
    one.charge(1, 1);
    one.tick(20);
    let sent = one.messages(other.id, 20);
    for oldest in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1] {
        let messages: Vec<_> = sent.iter().map(|message| Message { oldest, ..message.clone() }).collect();
        other.receive(one.id, &messages, 20);
    }
    one.charge(1, 5);
    one.tick(40);
    exchange(&mut one, &mut other, 40);
    assert!(!sent.is_empty());
    assert_eq!(other.charged(1), 6);
}

#[test]
fn states_are_asked_for_once() {
    let mut nodes: Vec<Node> = [(1, 0), (2, 2000), (3, 4000), (4, 9000)].map(|(id, ms)| Node::new(id, ms)).into();
    for node in &mut nodes[..3] {
        node.charge(1, 1);
        node.tick(4300);
    }
    let mut newcomer = nodes.pop().unwrap();
    // The youngest first: each older one is asked, too.
    for (index, expected) in [(1, 1), (2, 0), (0, 1)] {
        newcomer.book.merged.clear();
        connect(&mut nodes[index], &mut newcomer, 9000);
        exchange(&mut nodes[index], &mut newcomer, 9000);
        assert_eq!(newcomer.book.merged.len(), expected, "{index}");
    }
}

#[test]
fn another_peer_is_asked_if_one_is_lost() {
    let mut nodes: Vec<Node> = [(1, 0), (2, 100), (3, 9000)].map(|(id, ms)| Node::new(id, ms)).into();
    for node in &mut nodes[..2] {
        node.charge(1, 1);
        node.tick(300);
    }
    let mut newcomer = nodes.pop().unwrap();
    for node in &mut nodes {
        connect(node, &mut newcomer, 9000);
        greet(node, &mut newcomer);
    }
    assert!(newcomer.messages(PeerId(1), 9000).iter().any(|message| message.wanted.is_some()));
    newcomer.replica.disconnect(PeerId(1));
    assert!(newcomer.replica.is_recovering());
    newcomer.tick(9020);
    exchange(&mut nodes[1], &mut newcomer, 9020);
    assert_eq!((nodes[1].book.asked.len(), newcomer.replica.is_recovering()), (1, false));
}

#[test]
fn a_part_that_does_not_come_is_asked_for_again() {
    let (mut one, mut newcomer) = (Node::new(1, 0), Node::new(2, 9000));
    one.charge(1, 1);
    one.tick(300);
    connect(&mut one, &mut newcomer, 9000);
    greet(&mut one, &mut newcomer);
    let asks =
        |newcomer: &mut Node, ms| newcomer.messages(PeerId(1), ms).iter().any(|message| message.wanted.is_some());
    assert!(asks(&mut newcomer, 9000));
    assert!(!asks(&mut newcomer, 9100));
    assert!(asks(&mut newcomer, 9200));
}

#[test]
fn lost_charges_are_a_gap_of_all_peers() {
    let (mut one, mut other) = pair();
    one.charge(1, 1);
    one.tick(20);
    exchange(&mut one, &mut other, 20);
    one.charge(1, 7);
    one.book.lost = true;
    one.tick(2000);
    exchange(&mut one, &mut other, 2000);
    assert_eq!((other.charged(1), one.book.asked.len()), (1, 1), "the other charges are in the states");
    one.charge(1, 20);
    one.tick(2020);
    exchange(&mut one, &mut other, 2020);
    assert_eq!((other.charged(1), one.book.asked.len()), (21, 1));
}

#[test]
fn a_connection_belongs_to_one_process() {
    let (mut one, mut other) = pair();
    one.charge(1, 1);
    one.tick(20);
    let late = one.messages(other.id, 20);
    // The process of the peer starts anew.
    let mut again = Node::new(1, 500);
    again.charge(1, 10);
    again.tick(500);
    connect(&mut again, &mut other, 500);
    exchange(&mut again, &mut other, 500);
    let before = other.charged(1);
    other.receive(PeerId(1), &late, 501);
    assert_eq!(other.charged(1), before, "a message of the old process");
    again.charge(1, 100);
    again.tick(520);
    exchange(&mut again, &mut other, 520);
    assert_eq!(other.charged(1), before + 100);
    other.replica.remove(PeerId(1));
    other.receive(PeerId(1), &again.messages(other.id, 540), 540);
    assert!(other.replica.status(PeerId(1)).is_none());
}

#[test]
fn a_connection_that_ends_loses_nothing() {
    let (mut one, mut other) = pair();
    one.charge(1, 1);
    one.tick(20);
    drop(one.messages(other.id, 20));
    one.replica.disconnect(other.id);
    other.replica.disconnect(one.id);
    one.charge(1, 10);
    one.tick(40);
    assert_eq!(one.messages(other.id, 40).len(), 0);
    connect(&mut one, &mut other, 100);
    exchange(&mut one, &mut other, 100);
    assert_eq!((other.charged(1), one.book.asked.len()), (11, 0));
}

#[test]
fn an_idle_fleet_says_little() {
    let (mut one, mut other) = pair();
    let mut count = 0;
    for step in 1..=500 {
        one.tick(20 * step);
        other.tick(20 * step);
        count += exchange(&mut one, &mut other, 20 * step);
    }
    assert!((70..=90).contains(&count), "a heartbeat in 250 ms from each: {count}");
    assert!(one.replica.reaches(other.id, at(10_400)), "it is confirmed within 600 ms");
    assert!(!one.replica.reaches(other.id, at(11_000)));
    let ahead_ns = one.replica.status(other.id).and_then(|status| status.ahead_ns);
    assert_eq!(ahead_ns, Some(0));
}

#[test]
fn urgent_charges_do_not_wait() {
    let (mut one, _other) = pair();
    one.tick(100);
    assert_eq!(one.replica.tick_at(), at(120));
    one.replica.hurry();
    assert_eq!(one.replica.tick_at(), at(102), "but they leave a gap");
    one.tick(110);
    (10..2000).for_each(|peer| one.replica.connect(PeerId(peer), at(110)));
    one.tick(130);
    assert_eq!(one.replica.tick_at(), at(130).saturating_add_ns(20_000 * 1991), "many peers slow the replica down");
}

#[test]
fn large_batches_are_divided() {
    let (mut one, mut other) = pair();
    let most = history::BATCH_CHARGES_MAX as u64;
    for limit in ["a", "b"] {
        one.book.own.extend((0..most + 10).map(|number| (limit, "", number, 1)));
    }
    one.tick(20);
    let messages = one.messages(other.id, 20);
    let sizes: Vec<usize> = messages
        .iter()
        .filter_map(Message::charges)
        .map(|Charges { limits, .. }| limits.iter().map(|limit| limit.units.len()).sum())
        .collect();
    assert_eq!(sizes, [4096, 4096, 20]);
    other.receive(one.id, &messages, 20);
    assert_eq!(other.book.charged.len() as u64, 2 * (most + 10));
}

#[test]
fn foreign_messages_do_no_harm() {
    let (mut one, mut other) = pair();
    one.charge(1, 1);
    one.tick(20);
    let message = one.messages(other.id, 20).remove(0);
    let received = Some(super::message::Received { epoch: at(1).as_ns(), base: u64::MAX, ahead: u64::MAX });
    for broken in [
        Message { charges: vec![1, 2, 3].into(), ..message.clone() },
        Message { received, ..message.clone() },
        Message { age_us: u64::MAX, ..message.clone() },
        Message { oldest: u64::MAX, ..message.clone() },
    ] {
        other.receive(one.id, &[broken], 21);
    }
    assert_eq!(other.charged(1), 1);
}

/// The states of a table as a peer gets them, part by part.
#[test]
fn states_are_merged_by_the_larger_debt() {
    let more = ["fixed_window 10 per 1 h UTC", "token_bucket 10/1s+fixed_window 10/1h"];
    for rule in each_algorithm("10/1h", &more).iter().map(|rule| algorithm(rule)) {
        let tables = [(); 2].map(|()| Table::new(&rule, 100_000, OnFull::Shared));
        let now = at(0);
        let spent = [(0, 3, 0), (1, 0, 3), (2, 5, 4), (3, 4, 5), (4, 14, 2), (5, 2, 14)];
        for (number, here, there) in spent {
            tables[0].settle(key(number), &rule, here, u64::MAX, now);
            tables[1].settle(key(number), &rule, there, u64::MAX, now);
        }
        // So many keys that there are several parts.
        for number in 0..5_000 {
            tables[0].settle(Key::of_hash(mix(number), number << 51 | 7), &rule, 1, 0, now);
        }
        let (mut from, mut parts) = (Some(0), 0);
        while let Some(next) = from {
            let (states, behind) = pack_states("l", &tables[0], next, |_| Some(&rule), now);
            merge_states(&states, &tables[1], |_| Some(&rule), now);
            (from, parts) = (behind, parts + 1);
        }
        assert!(parts == 2 && tables[1].len() == tables[0].len() + 1, "{rule:?}: {parts}");
        for (number, here, there) in spent {
            let most = u64::try_from(here.max(there)).unwrap();
            let (peek, over) = (tables[1].peek(key(number), &rule, 0, now), tables[1].over(key(number), &rule, now));
            assert_eq!(
                (peek.remaining, over),
                (10_u64.saturating_sub(most), most.saturating_sub(10)),
                "{rule:?} {number}"
            );
        }
    }
}

/// Numbers of a peer that are no state change nothing.
#[test]
fn broken_states_are_left_out() {
    let rule = algorithm("token_bucket 10/1s burst 10");
    for numbers in [vec![], vec![5, 1], vec![u64::MAX], vec![2, u64::MAX, u64::MAX], vec![0], vec![1, 5]] {
        let table = Table::new(&rule, 100, OnFull::Shared);
        let states = LimitStates { limit: "l".into(), keys: vec![4, 4, 8, 8, 1], numbers };
        merge_states(&states, &table, |_| Some(&rule), at(0));
        assert!(table.is_empty(), "{states:?}");
    }
}

/// A bucket that was charged elsewhere refills from the time of the charge on.
#[test]
fn charges_count_as_of_their_time() {
    let rows = [
        ("token_bucket 10/1s burst 10", 8),
        ("fixed_window 10 per 1 s UTC", 10),
        ("fixed_window 10 per 1 h UTC", 3),
        ("fixed_window 10 per 1 s UTC+fixed_window 10 per 1 h UTC", 3),
        ("sliding_log 10/1s+fixed_window 20 per 1 s UTC", 3),
        ("sub_window 10/1s in 5", 3),
        ("sub_window 10/1s in 2", 3),
        ("sub_window 10/1s in 1", 10),
    ];
    for (rule, remaining) in rows {
        let rule = algorithm(rule);
        let table = Table::new(&rule, 100, OnFull::Shared);
        // The second has ended since; the hour has not. Each rate counts for itself.
        table.charge_as_of(key(1), &rule, 7, at(500), at(1000));
        assert_eq!(table.peek(key(1), &rule, 0, at(1000)).remaining, remaining, "{rule:?}");
    }
}
