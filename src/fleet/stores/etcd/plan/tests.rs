//! Tables with two replicas and one key of etcd, and the loss of an answer.

use super::*;
use crate::engine::limit::{Key, Quota, Rate, fixed_window};
use crate::engine::store::backend::Settlement;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;

/// 100 units in an hour from the first request.
fn window() -> Algorithm {
    Algorithm::FixedWindow(fixed_window::Rule::from_first(Rate { count: 100, period_ns: HOUR }).unwrap())
}

/// 100 units, one of which comes back every second.
fn bucket() -> Algorithm {
    Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: SECOND }, 100).unwrap())
}

/// One key in an etcd, and what two replicas `a` and `b` have of it.
struct Lab {
    rule: Algorithm,
    counter: Option<Counter>,
    loans: [Loans; 2],
    holdings: [Holding; 2],
    numbers: u64,
}

impl Lab {
    fn new(rule: Algorithm) -> Self {
        Self { rule, counter: None, loans: Default::default(), holdings: Default::default(), numbers: 0 }
    }

    /// One transaction of a replica. Returns the units that it borrows.
    fn transact(&mut self, replica: usize, borrow: Option<Units>, now: Timestamp) -> u64 {
        self.numbers += 1;
        let others = self.loans[1 - replica].loans.clone();
        let (counter, own) = (self.counter.clone(), self.loans[replica].clone());
        let account = Account { revision: 1, counter, own, others };
        let borrow = borrow.map(|units| (units, self.numbers));
        let wish = Wish { rule: &self.rule, borrow, ends_all: false, own: now };
        let holding = &mut self.holdings[replica];
        let Plan { borrowed, write, .. } = plan(&account, holding, &wish, now);
        if let Some(write) = write {
            self.loans[replica] = write.own(self.numbers);
            self.counter = Some(write.counter);
            holding.loans = write.loans;
            holding.reports.clear();
        }
        borrowed
    }

    /// Gives units of the first loan of a replica, or of a loan that has ended, back.
    fn give_back(&mut self, replica: usize, units: u64, at: Timestamp) {
        let loan = self.holdings[replica].loans.first().map_or(0, |loan| loan.number);
        let (limit, key, rule) = ("a".into(), Key { first: 1, second: 0 }, self.rule.clone());
        self.holdings[replica].reports.push(Report::GiveBack(EtcdReceipt { limit, key, rule, loan, at, units }, at));
    }
}

/// Each line is a time in milliseconds, a replica, an event, and the units that it borrows:
///
/// - `borrow COST/WANT/AT_HAND`,
/// - `return UNITS` with the next transaction, which were borrowed a second before at most,
/// - `settle UNITS` with the next transaction,
/// - `tell`: a transaction without a loan,
/// - `dies`: etcd deletes the loans of the replica.
fn check(rule: Algorithm, table: &str) {
    let mut lab = Lab::new(rule);
    for line in table.lines().map(str::trim) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let now = Timestamp::from_ns(1_000_000 * SECOND + cells[0].parse::<u64>().unwrap() * 1_000_000);
        let replica = usize::from(cells[1] == "b");
        let number = |index: usize| cells[index].parse::<u64>().unwrap();
        match cells[2] {
            "borrow" => {
                let units: Vec<u64> = cells[3].split('/').map(|units| units.parse().unwrap()).collect();
                let units = Units { cost: units[0], want: units[1], divisor: 1, at_hand: units[2] };
                assert_eq!(lab.transact(replica, Some(units), now), number(4), "{line}");
            }
            "return" => lab.give_back(replica, number(3), now),
            "settle" => {
                let (key, units) = (Key { first: 1, second: 0 }, i64::try_from(number(3)).unwrap());
                let settlement = Settlement::new("a", key, &lab.rule, (units, 1000), now);
                lab.holdings[replica].reports.push(Report::Settle(Box::new(settlement)));
            }
            "tell" => _ = lab.transact(replica, None, now),
            "dies" => {
                lab.loans[replica] = Loans::default();
                lab.holdings[replica] = Holding::default();
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn two_replicas_borrow_no_more_than_there_is() {
    for rule in [window(), bucket()] {
        check(
            rule,
            "0   a borrow 1/40/0  40
             10  b borrow 1/100/0 60
             20  a borrow 5/40/39 0
             30  b borrow 1/1/59  0",
        );
    }
}

/// Units of a loan that were given back can be borrowed again. The others are spent.
#[test]
fn unspent_units_go_back() {
    check(
        window(),
        "0    a borrow 1/40/0  40
         500  a return 30
         501  a tell
         502  b borrow 1/100/0 90
         503  a borrow 1/1/0   0",
    );
    // More than the loan has left, because the request that borrowed it has reached no service.
    check(
        window(),
        "0    a borrow 1/40/0  40
         500  a return 40
         501  a tell
         502  b borrow 1/200/0 100",
    );
}

/// The unit that was spent at once is the only one that does not come back.
#[test]
fn units_of_a_dead_replica_come_back() {
    check(
        window(),
        "0    a borrow 1/40/0   40
         10   b borrow 1/100/0  60
         5000 a dies
         5001 b borrow 1/100/0  39",
    );
    // It has told that it had spent 30 of the first 40.
    check(
        window(),
        "0    a borrow 1/40/0   40
         100  a borrow 1/40/10  40
         5000 a dies
         5001 b borrow 1/100/0  69",
    );
}

/// A loan that nobody gives back is spent after its time, and does not come back with the lease of its replica.
#[test]
fn ended_loans_are_spent() {
    check(
        window(),
        "0    a borrow 1/40/0   40
         750  a tell
         5000 a dies
         5001 b borrow 1/100/0  60",
    );
}

#[test]
fn time_gives_units_back() {
    check(
        window(),
        "0       a borrow 1/100/0  100
         3599000 b borrow 1/100/0  0
         3600000 b borrow 1/100/0  100",
    );
    check(
        bucket(),
        "0     a borrow 1/100/0  100
         750   a tell
         10000 b borrow 1/100/0  10
         20000 a borrow 1/100/0  10",
    );
}

/// A cost that was known after the request.
#[test]
fn settlements_are_charged() {
    check(
        window(),
        "0  a settle 70
         1  a tell
         2  b borrow 1/100/0 30
         3  a settle 20
         4  a tell
         5  a borrow 1/1/0   0",
    );
}

/// A clock that is ahead gives units back once, and a clock behind it gives back none.
#[test]
fn clocks_may_differ() {
    check(
        bucket(),
        "10000 a borrow 1/100/0  100
         0     b borrow 1/100/0  0
         19000 b borrow 1/100/0  9",
    );
}

#[test]
fn another_rule_takes_the_spent_units_over() {
    let mut lab = Lab::new(window());
    let now = Timestamp::from_ns(1_000_000 * SECOND);
    let units = |cost| Some(Units { cost, want: cost, divisor: 1, at_hand: 0 });
    assert_eq!(lab.transact(0, units(70), now), 70);
    lab.rule = bucket();
    assert_eq!(lab.transact(1, units(31), now), 0);
    assert_eq!(lab.transact(1, units(30), now), 30);
    // They come back with time, also if nothing could be lent since.
    let mut lab = Lab::new(window());
    assert_eq!(lab.transact(0, units(100), now), 100);
    lab.rule = bucket();
    assert_eq!(lab.transact(1, units(1), now), 0);
    assert_eq!(lab.transact(1, units(100), now.saturating_add_ns(10_000 * SECOND)), 100);
}

/// The loan of a transaction without an answer belongs to nobody, whether it was made or not.
#[test]
fn a_transaction_without_an_answer_is_resolved() {
    for is_made in [true, false] {
        let mut lab = Lab::new(window());
        let now = Timestamp::from_ns(1_000_000 * SECOND);
        let wish = Wish {
            rule: &window(),
            borrow: Some((Units { cost: 1, want: 40, divisor: 1, at_hand: 0 }, 7)),
            ends_all: false,
            own: now,
        };
        let settlement = Settlement::new("a", Key { first: 1, second: 0 }, &lab.rule, (10, 0), now);
        lab.holdings[0].reports.push(Report::Settle(Box::new(settlement)));
        let planned = plan(&Account::default(), &lab.holdings[0], &wish, now);
        let write = planned.write.unwrap();
        let receipt = EtcdReceipt {
            limit: "a".into(),
            key: Key { first: 1, second: 0 },
            rule: window(),
            loan: 7,
            at: now,
            units: 1,
        };
        lab.holdings[0].begin(8, 0, &write.loans, Some(receipt));
        if is_made {
            (lab.loans[0], lab.counter) = (write.own(8), Some(write.counter));
        }
        let account = Account { own: lab.loans[0].clone(), counter: lab.counter.clone(), ..Account::default() };
        lab.holdings[0].resolve(&account);
        lab.transact(0, None, now);
        assert_eq!(lab.loans[0].loans, []);
        let units = Units { cost: 1, want: 100, divisor: 1, at_hand: 0 };
        assert_eq!(lab.transact(1, Some(units), now), 90, "{is_made}");
    }
}

/// A transaction without an answer may be made after the next one was planned, which etcd then refuses.
#[test]
fn a_transaction_that_is_made_late_counts_once() {
    let (rule, now, none) = (window(), Timestamp::from_ns(1_000_000 * SECOND), Account::default());
    let mut holding = Holding::default();
    let settlement = Settlement::new("a", Key { first: 1, second: 0 }, &rule, (10, 0), now);
    holding.reports.push(Report::Settle(Box::new(settlement)));
    let wish = Wish { rule: &rule, borrow: None, ends_all: false, own: now };
    let late = plan(&none, &holding, &wish, now).write.unwrap();
    holding.begin(1, 0, &late.loans, None);
    holding.resolve(&none);
    let next = plan(&none, &holding, &wish, now).write.unwrap();
    holding.begin(2, 0, &next.loans, None);
    holding.refused();
    holding.resolve(&Account { revision: 1, own: late.own(1), counter: Some(late.counter), others: Vec::new() });
    assert!(holding.is_empty(), "{holding:?}");
}

/// Without a further write, its loan would stay without an owner.
#[test]
fn a_transaction_cannot_be_made_after_the_next_one() {
    let (rule, now, none) = (window(), Timestamp::from_ns(1_000_000 * SECOND), Account::default());
    let mut holding = Holding::default();
    let units = Units { cost: 1, want: 40, divisor: 1, at_hand: 0 };
    let borrow = Wish { rule: &rule, borrow: Some((units, 7)), ends_all: false, own: now };
    let lost = plan(&none, &holding, &borrow, now).write.unwrap();
    holding.begin(8, 0, &lost.loans, None);
    holding.resolve(&none);
    assert!(holding.is_due(false, now));
    let wish = Wish { rule: &rule, borrow: None, ends_all: false, own: now };
    assert!(plan(&none, &holding, &wish, now).write.is_some());
}
