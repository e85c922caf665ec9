//! Bans that replicas share, in virtual time.

use std::time::Duration;

use tokio::time::advance;

use super::stream::{Fleet, shared};
use super::{limit, ns};
use crate::engine::gate::{BanTarget, OperatorBan, Step};
use crate::engine::limit::{Rate, ban};
use crate::engine::policy::{Limit, OnLimit};
use crate::engine::store::stream::Ledger;
use crate::engine::store::stream::message::{BanChange, Cursor};

/// A limit of one request an hour, which bans for a minute after two refusals.
fn banning() -> Limit {
    let after = Rate { count: 2, period_ns: ns("1min") };
    let ban = Some(ban::Rule::new(after, ns("1min"), ns("1h")).unwrap());
    Limit { ban, ..shared(limit("a", 1, "1h", 1, OnLimit::Reject)) }
}

fn is_banned(fleet: &Fleet, words: &str) -> Vec<bool> {
    let is_ban = |step| matches!(step, Step::Refuse(refusal) if refusal.cause == crate::engine::gate::Cause::Banned);
    fleet.0.iter().map(|node| is_ban(node.step(words))).collect()
}

fn of_network(network: &str, is_lifted: bool) -> OperatorBan {
    let target = BanTarget::Network(network.parse().unwrap());
    let (since, until, replaced_until) = (crate::base::time::Timestamp::ZERO, None, None);
    OperatorBan { target, until, since, replica: 0, is_lifted, replaced_until, reason: None, token: None }
}

fn banned_networks(fleet: &Fleet) -> Vec<usize> {
    fleet.0.iter().map(|node| node.gate.operator_bans().len()).collect()
}

fn share(fleet: &Fleet) {
    (1..).zip(&fleet.0).for_each(|(number, node)| node.gate.share_bans(number));
}

#[tokio::test(start_paused = true)]
async fn a_ban_of_a_limit_holds_on_all_replicas_and_is_lifted_on_all() {
    let fleet = &mut Fleet::of(3, &[banning()]);
    share(fleet);
    (0..3).for_each(|_| _ = fleet.0[0].left("a=x"));
    assert_eq!(is_banned(fleet, "a=x"), [true, false, false]);
    fleet.talk();
    assert_eq!((is_banned(fleet, "a=x"), is_banned(fleet, "a=y")), (vec![true; 3], vec![false; 3]));
    let found =
        fleet.0[2].gate.find_key(fleet.0[2].live, "a", &crate::engine::gate::KeyName::Text("x".into())).unwrap();
    let node = &fleet.0[2];
    assert!(node.gate.pardon(node.live, &found, node.gate.clock().now()).is_some());
    fleet.talk();
    assert_eq!(is_banned(fleet, "a=x"), [false; 3]);
    // Each of these was a refusal, so the key is banned again, by two replicas at once or more.
    (0..2).for_each(|_| _ = is_banned(fleet, "a=x"));
    fleet.talk();
    assert_eq!(is_banned(fleet, "a=x"), [true; 3]);
    advance(Duration::from_secs(61)).await;
    assert_eq!(is_banned(fleet, "a=x"), [false; 3]);
}

/// Two refusals within a minute ban, whichever replicas refuse, and each refusal counts once.
#[tokio::test(start_paused = true)]
async fn refusals_count_on_all_replicas() {
    let fleet = &mut Fleet::of(3, &[banning()]);
    share(fleet);
    assert!(fleet.0[0].left("a=x").is_some());
    fleet.talk();
    assert_eq!(fleet.0[0].left("a=x"), None);
    // Peers date it at their next batch.
    fleet.pass(60_020).await;
    assert_eq!(fleet.0[1].left("a=x"), None);
    fleet.pass(1000).await;
    assert_eq!(banned_keys(fleet), [0; 3], "one refusal in this minute");
    assert_eq!(fleet.0[2].left("a=x"), None);
    fleet.pass(20).await;
    assert_eq!(banned_keys(fleet), [1; 3]);
    fleet.pass(60_020).await;
    assert_eq!(banned_keys(fleet), [0; 3], "the first ban");
}

fn banned_keys(fleet: &Fleet) -> Vec<usize> {
    fleet.0.iter().map(|node| node.live.states[0].bans.banned(node.gate.clock().now())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_all_bans_in_parts() {
    let fleet = &mut Fleet::of(2, &[banning()]);
    share(fleet);
    let node = &fleet.0[0];
    let now = node.gate.clock().now();
    for tens in 0..20_u64 {
        let bans = (0..250).map(|number| of_network(&format!("10.{tens}.{number}.0/24"), false));
        node.gate.change_operator_bans(node.live, bans, now.saturating_add_ns(tens));
    }
    (0..3).for_each(|_| _ = node.left("a=x"));
    let mut at = Cursor::default();
    let (mut parts, mut changes) = (0, Vec::new());
    loop {
        let part = fleet.0[0].ledger.states(&at, now);
        parts += 1;
        changes.extend(part.bans);
        match part.next {
            Some(next) => at = next,
            None => break,
        }
    }
    assert!(parts >= 5 && changes.len() == 5001, "{parts} parts, {} changes", changes.len());
    let is_in_the_file = |change: &BanChange| change.by_limit || change.at.is_multiple_of(1_000_000);
    assert!(changes.iter().all(is_in_the_file), "the file of bans has whole milliseconds");
    fleet.0[1].ledger.ban(&changes, now);
    fleet.0[1].ledger.ban(&changes, now);
    assert_eq!((banned_networks(fleet), is_banned(fleet, "a=x")), (vec![5000; 2], vec![true; 2]));
}

#[tokio::test(start_paused = true)]
async fn the_last_change_by_an_operator_counts() {
    let fleet = &mut Fleet::of(3, &[banning()]);
    share(fleet);
    let change = |fleet: &Fleet, index: usize, network: &str, is_lifted: bool| {
        let node = &fleet.0[index];
        node.gate.change_operator_bans(node.live, [of_network(network, is_lifted)], node.gate.clock().now());
    };
    change(fleet, 0, "192.0.2.0/24", false);
    change(fleet, 0, "198.51.100.7/32", false);
    fleet.talk();
    assert_eq!(banned_networks(fleet), [2; 3]);
    change(fleet, 1, "192.0.2.0/24", true);
    fleet.talk();
    assert_eq!(banned_networks(fleet), [1; 3]);
    // At one instant, without knowing of each other.
    change(fleet, 0, "198.51.100.7/32", true);
    change(fleet, 2, "198.51.100.7/32", false);
    fleet.talk();
    assert_eq!(banned_networks(fleet), [1; 3], "the change of the replica with the greater number");
    let known = fleet.0[0].gate.all_operator_bans();
    assert_eq!(known.iter().filter(|ban| ban.is_lifted).count(), 1);
    advance(Duration::from_hours(31 * 24)).await;
    fleet.0[0].gate.sweep();
    assert_eq!(fleet.0[0].gate.all_operator_bans().len(), 1, "that a ban was lifted is forgotten in the end");
}

/// Two replicas know a ban for good. Without the other one, one of them shortens it, or lifts the shorter one.
#[tokio::test(start_paused = true)]
async fn a_longer_ban_does_not_come_back() {
    for is_lifted in [false, true] {
        let fleet = &mut Fleet::of(3, &[banning()]);
        share(fleet);
        let change = |fleet: &Fleet, index: usize, length: Option<&str>, is_lifted: bool| {
            let node = &fleet.0[index];
            let now = node.gate.clock().now();
            let until = length.map(|length| now.saturating_add_ns(ns(length)));
            let ban = OperatorBan { until, ..of_network("192.0.2.0/24", is_lifted) };
            node.gate.change_operator_bans(node.live, [ban], now);
        };
        change(fleet, 0, None, false);
        fleet.talk();
        assert_eq!(banned_networks(fleet), [1; 3]);
        let cut = fleet.0.pop().unwrap();
        change(fleet, 1, Some("10min"), false);
        if is_lifted {
            change(fleet, 1, None, true);
        }
        fleet.talk();
        advance(Duration::from_mins(11)).await;
        fleet.0.iter().for_each(|node| node.gate.sweep());
        assert_eq!(banned_networks(fleet), [0; 2], "{is_lifted}");
        // Each hears of all changes that the other knows.
        fleet.0.push(cut);
        for (from, to) in [(2, 0), (2, 1), (0, 2)] {
            let now = fleet.0[from].gate.clock().now();
            let known = fleet.0[from].ledger.states(&Cursor::default(), now);
            fleet.0[to].ledger.ban(&known.bans, now);
        }
        assert_eq!(banned_networks(fleet), [0; 3], "{is_lifted}");
        advance(Duration::from_hours(31 * 24)).await;
        fleet.0.iter().for_each(|node| node.gate.sweep());
        assert!(fleet.0.iter().all(|node| node.gate.all_operator_bans().is_empty()), "{is_lifted}");
    }
}

/// The end of the ban, the end of the longer one that it replaced, and what a process that starts at second 10 reads.
#[test]
fn a_ban_that_replaced_a_longer_one_outlives_its_end() {
    let at = |seconds: u64| crate::base::time::Timestamp::from_ns(seconds * 1_000_000_000);
    for (until, replaced_until, left) in [
        (None, None, Some((None, false))),
        (Some(11), Some(20), Some((Some(11), false))),
        (Some(10), None, None),
        (Some(10), Some(10), None),
        (Some(9), Some(11), Some((Some(11), true))),
    ] {
        let (until, replaced_until) = (until.map(at), replaced_until.map(at));
        let ban = OperatorBan { until, replaced_until, ..of_network("192.0.2.0/24", false) };
        let found = ban.clone().continuing(at(10)).map(|ban| (ban.until, ban.is_lifted));
        assert_eq!(found, left.map(|(until, is_lifted)| (until.map(at), is_lifted)), "{ban:?}");
    }
}

/// A ban of 600 seconds that was set at second 1000. A process starts at second 10, because its clock was set back.
#[test]
fn a_ban_does_not_grow_by_a_clock_that_was_set_back() {
    let at = |seconds: u64| crate::base::time::Timestamp::from_ns(seconds * 1_000_000_000);
    for (replica, instants) in [(0, (10, 610)), (1, (1000, 1600))] {
        let ban = OperatorBan { since: at(1000), until: Some(at(1600)), replica, ..of_network("192.0.2.0/24", false) };
        let continued = ban.at_start(at(10));
        assert_eq!((continued.since, continued.until), (at(instants.0), Some(at(instants.1))), "{replica}");
    }
}

/// A replica knows as many bans as it can, most of which are lifted: those make room for new ones.
#[tokio::test(start_paused = true)]
async fn new_bans_displace_lifted_ones() {
    let fleet = &mut Fleet::of(2, &[banning()]);
    share(fleet);
    let now = fleet.0[0].gate.clock().now();
    let change = |number: u64, is_lifted: bool| {
        let network = format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
        let change = BanChange {
            network: format!("{network}/32"),
            at: 1 + number,
            replica: 9,
            is_lifted,
            ..BanChange::default()
        };
        BanChange { until: now.saturating_add_ns(ns("1h")).as_ns(), ..change }
    };
    for (lifted, set, expected) in [(0..20_000, 20_000..20_100, 100), (0..0, 20_100..40_100, 20_000)] {
        for node in &mut fleet.0 {
            node.ledger.ban(&lifted.clone().map(|number| change(number, true)).collect::<Vec<_>>(), now);
            node.ledger.ban(&set.clone().map(|number| change(number, false)).collect::<Vec<_>>(), now);
            assert_eq!(node.gate.all_operator_bans().len(), 20_000);
        }
        assert_eq!(banned_networks(fleet), [expected; 2]);
    }
}
