//! Held requests of several priorities, and requests that are shed.

use std::fmt::Write;

use http::HeaderName;

use super::{CAPS, OnLimit, ask, check, facts, headers, limit, new_gate, parse_limit, policy, scripts};
use crate::base::split_mix::{STEP, mix};
use crate::engine::gate::{AccessError, EntryError, LEVEL_MAX, Step};
use crate::engine::policy::{
    Facts, Identity, IdentitySource, KeyPart, Match, OnMissing, Overload, Priorities, Priority, PriorityRule, Repeated,
};

scripts! {
    higher_priorities_pass_first_and_each_in_order_of_arrival: "
        priorities 0
        limit a 1 1s 1 hold=forever
        0ms    ask r a=k
        0ms    ask b1..b2 a=k x-priority=background
        100ms  ask n1 a=k
        100ms  ask n2 a=k x-priority=normal
        100ms  ask u  a=k x-priority=urgent
        200ms  ask c1 a=k x-priority=critical
        1500ms ask c2 a=k x-priority=critical
        > 0s r  pass
        > 1s c1 pass
        > 2s c2 pass
        > 3s n1 pass
        > 4s n2 pass
        > 5s b1 pass
        > 6s b2 pass
        > 7s u  pass
    ";

    /// The expected wait is that behind requests of the own priority and of higher ones.
    a_wait_is_foreseen_by_priority: "
        priorities 0
        limit a 1 1s 1 hold=2s waiting=3
        0ms ask r a=k                        > pass
        0ms ask b1 a=k x-priority=background > 2s WaitTooLong 2s
        0ms ask b2 a=k x-priority=background > 2s WaitTooLong 1s
        0ms ask b3 a=k x-priority=background > WaitTooLong 3s
        0ms ask c1 a=k x-priority=critical
        0ms ask n1 a=k                       > 2s WaitTooLong 1s
        0ms ask n2 a=k                       > WaitTooLong 3s
        0ms leave c1
        0ms ask c2 a=k x-priority=critical   > 1s pass
        0ms ask c3 a=k x-priority=critical   > 2s pass
        0ms ask c4 a=k x-priority=critical   > WaitTooLong 3s
    ", "
        # one that is overtaken is refused once it has waited too long, with the wait that remains
        priorities 0
        limit a 1 1s 1 hold=1200ms
        0ms   ask r a=k                       > pass
        0ms   ask b a=k x-priority=background > 1330ms WaitTooLong 1670ms
        500ms ask c1 a=k x-priority=critical  > 1s pass
        900ms ask c2 a=k x-priority=critical  > 2s pass
    ", "
        # also if it waits already when a reload adds priorities
        limit a 1 1s 1 hold=1200ms
        0ms   ask r a=k                      > pass
        0ms   ask n a=k                      > 1330ms WaitTooLong 1670ms
        priorities 0
        500ms ask c1 a=k x-priority=critical > 1s pass
        900ms ask c2 a=k x-priority=critical > 2s pass
    ";
}

#[tokio::test(start_paused = true)]
async fn a_lower_priority_gets_its_share() {
    let rows = |share: u8| {
        let mut rows = format!("priorities {share}\nlimit a 10 1s 1 hold=1050ms\n0ms ask r a=k\n");
        for (priority, count) in [("critical", 8), ("background", 2)] {
            for number in 1..=count {
                writeln!(rows, "0ms ask {}{number} a=k x-priority={priority}", &priority[..1]).unwrap();
            }
        }
        rows + "0ms ask c9 a=k x-priority=critical\n> 0ms r pass\n"
    };
    let tell = |rows: &mut String, order: &str| {
        for (index, who) in order.split(' ').enumerate() {
            writeln!(rows, "> {}ms {who} pass", (index + 1) * 100).unwrap();
        }
    };
    let mut without = rows(0);
    tell(&mut without, "c1 c2 c3 c4 c5 c6 c7 c8 c9");
    without += "> 1s b1 pass\n> 1100ms b2 pass\n";
    check(&without).await;
    // Every fourth unit. The wait of the last critical request counts them.
    let mut quarter = rows(25);
    tell(&mut quarter, "c1 c2 c3 b1 c4 c5 c6 b2 c7 c8");
    quarter += "> 0ms c9 WaitTooLong 1100ms\n";
    check(&quarter).await;
}

/// A reload that gives shares gives them to requests that wait already, too.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_gets_its_share_after_a_reload() {
    let mut rows = "priorities 0\nlimit a 10 1s 1 hold=forever\n".to_owned();
    rows += "0ms ask r a=k\n0ms ask b a=k x-priority=background\n";
    for number in 0..200 {
        if number == 10 {
            rows += "priorities 10\n";
        }
        writeln!(rows, "{}ms ask c{number} a=k x-priority=critical", number * 50).unwrap();
    }
    let told = super::run(&rows).await;
    assert!(told["b"].at_ns < 3_000_000_000, "{:?}", told["b"]);
}

/// Critical requests take all that they can, and more of them come than may wait. Background requests that come later get
/// their share even so, and are refused at once beyond it.
#[tokio::test(start_paused = true)]
async fn a_lower_priority_gets_its_share_though_the_queue_is_full() {
    for (share, waiting, expected) in [(0, 100, 0..=0), (10, 100, 8..=11), (25, 100, 22..=26), (25, 5, 22..=26)] {
        let mut rows = format!("priorities {share}\nlimit a 10 1s 1 hold=1s waiting={waiting}\n");
        for number in 0..20 {
            writeln!(rows, "0ms ask first{number} a=k x-priority=critical").unwrap();
        }
        for number in 1..200 {
            writeln!(rows, "{}ms ask c{number} a=k x-priority=critical", number * 50).unwrap();
            writeln!(rows, "{}ms ask b{number} a=k x-priority=background", number * 50).unwrap();
        }
        let told = super::run(&rows).await;
        let is_pass = |told: &super::Told| told.what == "pass" && told.at_ns < 10_000_000_000;
        let passed = |name: &str| told.iter().filter(|(who, told)| who.starts_with(name) && is_pass(told)).count();
        assert!(expected.contains(&passed("b")), "{share} {waiting}: {} of 100", passed("b"));
        assert!((98..=101).contains(&passed("")), "{share} {waiting}: {} of all", passed(""));
    }
}

/// Two busy limits with requests of all priorities that need one or both: none is stuck.
#[tokio::test(start_paused = true)]
async fn no_request_is_stuck_between_two_limits() {
    for seed in 0..40_u64 {
        let mut bits = seed;
        let mut next = |most: u64| {
            bits = bits.wrapping_add(STEP);
            usize::try_from(mix(bits) % most).unwrap()
        };
        let mut rows = format!("priorities {}\n", [0, 5, 25][usize::try_from(seed % 3).unwrap()]);
        rows += "limit a 20 1s 2 hold=forever\nlimit b 15 1s 1 hold=forever\n";
        for number in 0..150 {
            let at_ms = number * 20;
            let priority = ["critical", "normal", "background"][next(3)];
            let needs = ["a=k", "b=k", "a=k b=k"][next(3)];
            writeln!(rows, "{at_ms}ms ask r{number} {needs} x-priority={priority}").unwrap();
        }
        let told = super::run(&rows).await;
        assert!(told.len() == 150 && told.values().all(|told| told.what == "pass"), "{seed}: {told:?}");
        // All units are used: the later of 150 requests of which two thirds need each limit, and a little.
        let last = told.values().map(|told| told.at_ns).max().unwrap();
        assert!(last < 9_000_000_000, "{seed}: {last}");
    }
}

/// While critical requests never end, background requests that need two busy limits pass.
#[tokio::test(start_paused = true)]
async fn the_share_holds_for_requests_that_need_two_limits() {
    for (share, passes) in [(0, false), (10, true)] {
        let mut rows = format!("priorities {share}\nlimit a 10 1s 1 hold=forever\nlimit b 10 1s 1 hold=forever\n");
        rows += "0ms ask both a=k b=k x-priority=background\n0ms ask late a=k b=k x-priority=background\n";
        for number in 0..300 {
            let needs = ["a=k", "b=k", "a=k b=k"][number % 3];
            writeln!(rows, "{}ms ask c{number} {needs} x-priority=critical", number * 40).unwrap();
        }
        let told = super::run(&rows).await;
        let at_ms = told["late"].at_ns / 1_000_000;
        assert_eq!(at_ms < 6000, passes, "{share}: {at_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_counts_only_if_its_client_cannot_choose_it() {
    let rule = PriorityRule { priority: Priority::Background, matches: Match::default(), plans: vec!["free".into()] };
    let gate = new_gate();
    let policy = policy(vec![parse_limit(&["a", "1", "1s", "1", "hold=1500ms"])], Vec::new());
    let live = gate.install(
        policy.with_priorities(Some(Priorities { rules: vec![rule], ..Priorities::default() }), None),
        CAPS,
        10,
    );
    let live = Box::leak(Box::new(live));
    let (plain, free) = (headers(&["a=k"]), headers(&["a=k", "x-plan=free"]));
    let Step::Pass(mut first) = ask(gate, live, &plain) else { panic!("the burst is 1") };
    first.charged.commit(true);
    let Step::Wait(_waits) = ask(gate, live, &plain) else { panic!("it has to wait") };
    let admit = |facts: &Facts<'_>| gate.admit(live, super::Stage::Identified, facts, || 0, gate.clock.now()).unwrap();
    // A background request sees the normal one before it; a normal one of the same client would, too.
    for (is_proxied, is_estimate) in [(true, true), (false, true)] {
        let Step::Refuse(refusal) = admit(&Facts { is_proxied, ..facts(&free) }) else { panic!("the wait is 2 s") };
        assert_eq!(refusal.is_estimate, is_estimate);
    }
    // One that a rule makes critical cannot be overtaken.
    let header = Some(HeaderName::from_static("x-priority"));
    let policy = live.policy.ramped(gate.clock.now());
    assert!(policy.is_none(), "no ramp");
    let critical = headers(&["a=k", "x-priority=critical"]);
    let policy = super::policy(vec![parse_limit(&["a", "1", "1s", "1", "hold=1500ms"])], Vec::new());
    let named =
        gate.install(policy.with_priorities(Some(Priorities { header, ..Priorities::default() }), None), CAPS, 10);
    let named = Box::leak(Box::new(named));
    let admit = |facts: &Facts<'_>| gate.admit(named, super::Stage::Identified, facts, || 0, gate.clock.now()).unwrap();
    assert!(matches!(admit(&Facts { is_proxied: false, ..facts(&critical) }), Step::Refuse(_)));
    assert!(matches!(admit(&facts(&critical)), Step::Wait(_)));
}

/// What a request must prove comes before shedding, also if only a limit asks for it.
#[tokio::test(start_paused = true)]
async fn a_request_without_its_identity_is_never_shed() {
    let gate = new_gate();
    let header = HeaderName::from_static("x-seller");
    let source = IdentitySource::Header(header, Repeated::Reject);
    let seller = Identity { name: "seller".into(), source, on_missing: OnMissing::Reject, is_plain: false };
    let mut inner = limit("a", 1, "1min", 1, OnLimit::Reject);
    (inner.key, inner.matches) = (vec![KeyPart::Identity(0)], Match::default());
    let bounds = Overload { in_flight: Some(1), ..Overload::default() };
    let header = Some(HeaderName::from_static("x-priority"));
    let priorities = Priorities { header, ..Priorities::default() };
    let policy = policy(vec![inner], vec![seller]).with_priorities(Some(priorities), Some(bounds));
    let live = gate.install(policy, CAPS, 10);
    let enter = |words: &[&str]| {
        gate.enter(&live, &[], &facts(&headers(words)), false, gate.clock.now()).map_err(|error| match error {
            EntryError::Access(AccessError::Unidentified(missing)) => missing.identity.to_owned(),
            EntryError::Access(AccessError::Denied(reason)) => reason.to_string(),
            EntryError::Shed(shed) => {
                assert!(shed.wait_s >= 2 && shed.jitter.s <= shed.wait_s);
                shed.priority.word().to_owned()
            }
        })
    };
    assert_eq!(enter(&["x-seller=s"]), Ok(false));
    gate.set_overload(LEVEL_MAX);
    assert_eq!(enter(&[]), Err("seller".to_owned()));
    assert_eq!(enter(&["x-seller=s"]), Err("normal".to_owned()));
    assert_eq!(enter(&["x-seller=s", "x-priority=background"]), Err("background".to_owned()));
    assert_eq!(enter(&["x-seller=s", "x-priority=critical"]), Ok(false));
    assert_eq!(enter(&["x-priority=critical"]), Ok(false), "its limit answers 401");
    // A browser sends a preflight before each request that it may, without credentials.
    let preflight = headers(&["x-priority=background"]);
    let preflight = Facts { is_free_preflight: true, ..facts(&preflight) };
    assert!(matches!(gate.enter(&live, &[], &preflight, false, gate.clock.now()), Ok(false)));
    gate.set_overload(1000);
    assert_eq!(enter(&["x-seller=s"]), Ok(false));
    assert_eq!(enter(&["x-seller=s", "x-priority=background"]), Err("background".to_owned()));
    gate.set_overload(500);
    let shed = (0..1000).filter(|_| enter(&["x-seller=s", "x-priority=background"]).is_err()).count();
    assert!((420..580).contains(&shed), "{shed} of 1000 at one half");
}
