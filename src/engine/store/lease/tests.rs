//! Spending, calls, expiry and the amount of leases.

use super::*;

const KEY: Key = Key { first: 1, second: 2 };
const MS: u64 = 1_000_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(1_700_000_000_000_000_000 + ms * MS)
}

fn grant(units: u64, ms: u64) -> Grant<u32> {
    Grant { units, expires: at(ms).saturating_add_ns(LEASE_NS), receipt: Arc::default() }
}

fn units(amount: Option<u64>) -> LeaseUnits {
    amount.map_or(LeaseUnits::Auto, LeaseUnits::Fixed)
}

/// Spends at `ms`: "spent LEFT", "spent LEFT, call WANT", "borrow WANT" or "wait". A call ends without units.
fn spend(leases: &Arc<Leases<u32>>, cost: u64, amount: Option<u64>, ms: u64) -> String {
    match leases.spend(KEY, cost, units(amount), at(ms)) {
        Spend::Spent { spent: SpentUnits { left, taken }, are_few } => {
            assert_eq!(taken.iter().map(|(_, units)| units).sum::<u64>(), cost);
            let call = leases.refill(KEY, units(amount), at(ms));
            assert_eq!(call.is_some(), are_few);
            call.map_or_else(|| format!("spent {left}"), |call| format!("spent {left}, call {}", call.want))
        }
        Spend::Denied(ns) => format!("denied for {} ms", ns / MS),
        Spend::Short => match leases.supply(KEY, cost, units(amount), at(ms)) {
            Supply::Borrow(call) => format!("borrow {}", call.want),
            Supply::Wait(_) => "wait".to_owned(),
            other => panic!("{other:?}"),
        },
    }
}

fn borrow(leases: &Arc<Leases<u32>>, cost: u64, amount: Option<u64>, ms: u64) -> Call<u32> {
    match leases.supply(KEY, cost, units(amount), at(ms)) {
        Supply::Borrow(call) => call,
        other => panic!("{other:?}"),
    }
}

#[test]
fn units_are_spent_until_none_is_left() {
    let leases = Arc::<Leases<u32>>::default();
    let call = borrow(&leases, 3, Some(10), 0);
    assert_eq!(call.want, 10);
    call.granted(grant(10, 0), 3, at(0));
    drop(call);
    // ms, cost, result
    for (ms, cost, result) in [
        (1, 4, "spent 3"),
        (2, 2, "spent 1, call 10"), // below a quarter of the amount
        (3, 0, "spent 1, call 10"),
        (4, 2, "borrow 10"),
        (5, 11, "borrow 11"), // no less than the cost
        (6, 1, "spent 0, call 10"),
        (7, 1, "borrow 10"),
    ] {
        assert_eq!(spend(&leases, cost, Some(10), ms), result, "{ms} ms");
    }
    assert_eq!(leases.units(), 0);
}

#[test]
fn units_are_taken_from_the_oldest_grants() {
    let leases = Arc::<Leases<u32>>::default();
    borrow(&leases, 1, Some(4), 0).granted(Grant { receipt: Arc::new(1), ..grant(4, 0) }, 1, at(0));
    borrow(&leases, 4, Some(10), 1).granted(Grant { receipt: Arc::new(2), ..grant(10, 1) }, 0, at(1));
    let Spend::Spent { spent, .. } = leases.spend(KEY, 5, units(Some(10)), at(2)) else { panic!("there are units") };
    let taken: Vec<_> = spent.taken.iter().map(|(receipt, units)| (**receipt, *units)).collect();
    assert_eq!((taken, spent.left), (vec![(1, 3), (2, 2)], 8));
    let swept = leases.sweep(true, at(2));
    let left: Vec<_> = swept.into_iter().map(|(_, grant)| (*grant.receipt, grant.units)).collect();
    assert_eq!(left, [(2, 8)]);
}

#[test]
fn one_call_is_in_flight() {
    let leases = Arc::<Leases<u32>>::default();
    let call = borrow(&leases, 1, Some(8), 0);
    let Supply::Wait(in_flight) = leases.supply(KEY, 1, LeaseUnits::Fixed(8), at(1)) else { panic!("calls twice") };
    assert!(in_flight.0.has_changed().is_ok());
    call.granted(grant(8, 1), 1, at(1));
    drop(call);
    assert!(in_flight.0.has_changed().is_err(), "the call has ended");
    assert_eq!(spend(&leases, 1, Some(8), 2), "spent 6");
    // In the background too.
    let spent = leases.spend(KEY, 5, LeaseUnits::Fixed(8), at(2));
    assert!(matches!(spent, Spend::Spent { spent: SpentUnits { left: 1, .. }, are_few: true }), "{spent:?}");
    let call = leases.refill(KEY, LeaseUnits::Fixed(8), at(2)).unwrap();
    assert_eq!(spend(&leases, 1, Some(8), 2), "spent 0");
    assert_eq!(spend(&leases, 1, Some(8), 2), "wait");
    drop(call);
    assert_eq!(spend(&leases, 1, Some(8), 2), "borrow 8");
}

#[test]
fn the_amount_follows_the_demand() {
    let leases = Arc::<Leases<u32>>::default();
    borrow(&leases, 1, None, 0).granted(grant(1, 0), 1, at(0));
    // ms, units that the key uses at once, the next call
    for (ms, units, call) in [
        (10, 9, "borrow 20"),   // 10 in this interval
        (110, 30, "borrow 60"), // 30 in this interval
        (210, 1, "borrow 60"),  // 30 in the last interval
        (320, 1, "borrow 2"),   // 1 in each of two
        (900, 1, "borrow 2"),   // the interval before is too long ago
    ] {
        borrow(&leases, units, None, ms).granted(grant(units, ms), units, at(ms));
        assert_eq!(spend(&leases, 1, None, ms), call, "{ms} ms");
    }
}

#[test]
fn a_key_without_units_makes_no_call_for_a_while() {
    let leases = Arc::<Leases<u32>>::default();
    let call = borrow(&leases, 1, Some(10), 0);
    call.granted(grant(2, 0), 1, at(0));
    call.is_scarce(0, u64::MAX, at(0));
    drop(call);
    // ms, result of a request of one unit
    for (ms, result) in [(1, "spent 0"), (2, "denied for 71 ms"), (73, "denied for 0 ms"), (74, "borrow 10")] {
        assert_eq!(spend(&leases, 1, Some(10), ms), result, "{ms} ms");
    }
    // One unit is at hand, and three are in the store, which has more at 110 ms.
    let call = borrow(&leases, 5, Some(10), 100);
    call.granted(grant(1, 100), 0, at(100));
    call.is_scarce(3, 10 * MS, at(100));
    drop(call);
    for (ms, cost, result) in
        [(101, 5, "denied for 9 ms"), (101, 4, "borrow 10"), (102, 0, "spent 1, call 10"), (110, 5, "borrow 10")]
    {
        assert_eq!(spend(&leases, cost, Some(10), ms), result, "{ms} ms");
    }
}

#[test]
fn units_expire_and_go_back() {
    let leases = Arc::<Leases<u32>>::default();
    borrow(&leases, 1, Some(10), 0).granted(Grant { receipt: Arc::new(7), ..grant(10, 0) }, 1, at(0));
    assert_eq!(leases.unspent(KEY, at(499)), 9);
    assert_eq!(leases.unspent(KEY, at(500)), 0);
    assert_eq!(spend(&leases, 1, Some(10), 500), "borrow 10");
    let swept = |all, ms| -> Vec<_> {
        leases.sweep(all, at(ms)).into_iter().map(|(key, grant)| (key, *grant.receipt, grant.units)).collect()
    };
    assert_eq!(swept(false, 500), [(KEY, 7, 9)]);

    borrow(&leases, 1, Some(10), 600).granted(Grant { receipt: Arc::new(8), ..grant(10, 600) }, 1, at(600));
    assert_eq!((swept(false, 1099), swept(false, 1100)), (vec![], vec![(KEY, 8, 9)]));
    assert!(leases.keys.is_empty(), "an idle key is forgotten");

    borrow(&leases, 1, Some(10), 1200).granted(grant(10, 1200), 1, at(1200));
    assert_eq!(swept(true, 1200).len(), 1, "at the end all go back");
}

#[test]
fn spent_units_return_to_their_grant_until_it_expires() {
    let leases = Arc::<Leases<u32>>::default();
    let (first, second) = (grant(10, 0), grant(4, 100));
    let receipts = [Arc::clone(&first.receipt), Arc::clone(&second.receipt)];
    let put_back = |of: usize, units, ms| leases.put_back(KEY, &receipts[of], units, at(ms));
    assert!(!put_back(0, 1, 0), "no such key");
    borrow(&leases, 10, Some(10), 0).granted(first, 10, at(0));
    borrow(&leases, 1, Some(10), 100).granted(second, 4, at(100));
    assert!(put_back(0, 4, 101) && put_back(1, 3, 101), "all were spent");
    assert_eq!((leases.unspent(KEY, at(499)), leases.unspent(KEY, at(500))), (7, 3));
    assert!(!put_back(0, 1, 500), "expired");
    assert_eq!(leases.sweep(false, at(500)).len(), 1);
    assert!(!put_back(0, 1, 500) && put_back(1, 1, 599));
    let unspent = |()| leases.sweep(true, at(600)).iter().map(|(_, grant)| grant.units).sum::<u64>();
    assert_eq!([(); 2].map(unspent), [4, 0]);
}

/// The store is asked for what is missing, and lends less than the cost.
#[test]
fn units_at_hand_and_borrowed_ones_are_spent_together() {
    // Units that others spend during the call, and what is spent of each grant.
    for (others, expected) in [(0, Some((vec![(1, 3), (2, 5)], 1))), (1, Some((vec![(1, 2), (2, 6)], 0))), (2, None)] {
        let leases = Arc::<Leases<u32>>::default();
        borrow(&leases, 1, Some(4), 0).granted(Grant { receipt: Arc::new(1), ..grant(4, 0) }, 1, at(0));
        let call = borrow(&leases, 8, Some(4), 1);
        let Units { cost, want, at_hand, .. } = call.units();
        assert_eq!((cost, want, at_hand), (5, 8, 3));
        leases.spend(KEY, others, units(Some(4)), at(2));
        let spent = call.granted(Grant { receipt: Arc::new(2), ..grant(6, 2) }, 8, at(2));
        let each = |taken: Taken<u32>| taken.iter().map(|(receipt, units)| (**receipt, *units)).collect::<Vec<_>>();
        assert_eq!(spent.map(|spent| (each(spent.taken), spent.left)), expected);
    }
}

/// A key whose grants have a unit each has a grant for each request.
#[test]
fn few_spent_grants_are_kept() {
    let leases = Arc::<Leases<u32>>::default();
    let mut receipts = Vec::new();
    for ms in 0..100 {
        let one = grant(1, ms);
        receipts.push(Arc::clone(&one.receipt));
        borrow(&leases, 1, Some(1), ms).granted(one, 1, at(ms));
    }
    assert_eq!(leases.keys.get(&KEY).unwrap().grants.len(), SPENT_GRANTS_MAX);
    let known = receipts.iter().filter(|receipt| leases.put_back(KEY, receipt, 1, at(100))).count();
    assert_eq!(known, SPENT_GRANTS_MAX);
    // A grant with units is never forgotten.
    borrow(&leases, 17, Some(1), 101).granted(grant(17, 101), 16, at(101));
    assert_eq!(leases.unspent(KEY, at(101)), 17);
}

#[test]
fn a_busy_key_makes_few_calls() {
    let leases = Arc::<Leases<u32>>::default();
    let mut calls = 0;
    // 33,000 requests a second for two seconds, each call granted at once.
    for request in 0..66_000 {
        let ms = request / 33;
        let (call, spent) = match leases.spend(KEY, 1, LeaseUnits::Auto, at(ms)) {
            Spend::Spent { are_few: false, .. } => continue,
            Spend::Spent { .. } => (leases.refill(KEY, LeaseUnits::Auto, at(ms)).unwrap(), 0),
            Spend::Short => (borrow(&leases, 1, None, ms), 1),
            Spend::Denied(_) => panic!("there are units"),
        };
        calls += 1;
        call.granted(grant(call.want, ms), spent, at(ms));
    }
    println!("{calls} calls in 2 s");
    assert!(calls <= 2 * 16 + 20, "{calls}");
}
