//! Bans that replicas share: by operators and by limits, over losses of replicas and of links.

use serde_json::{Value, json};

use super::{Replicas, balance_at, view};
use crate::fleet_stream::TOGETHER;
use crate::support::{Client, Link, Upstream, Weir, poll};

/// Two units a day for each client, and a ban after two refusals.
const LIMIT: &str = "rate = \"2/day\"\nban = { after = \"2/h\", for = \"10min\", for_max = \"1h\" }\n\
                     [[limit]]\nname = \"sellers\"\nkey = [\"seller\"]\nrate = \"1000/s\"\nstrategy = \"local\"\n\
                     [identity.seller]\nheader = \"x-seller\"\non_missing = \"anonymous\"";

fn status(weir: &Weir, seller: &str) -> u16 {
    let head = format!("GET /free HTTP/1.1\r\nhost: a\r\nx-seller: {seller}\r\n\r\n");
    Client::connect(weir.address()).send(head).answer().status
}

/// The numbers of bans by operators and by limits.
fn bans(weir: &Weir) -> (usize, usize) {
    let bans: Value = serde_json::from_str(&weir.ask_admin("GET", "/v1/bans", &Value::Null).text()).unwrap();
    let by = |by: &str| bans["bans"].as_array().unwrap().iter().filter(|ban| ban["by"] == by).count();
    (by("operator"), by("limit"))
}

#[track_caller]
fn until_banned(replicas: &Replicas, count: (usize, usize)) {
    for weir in &replicas.fleet.weirs {
        weir.wait_until("the bans are heard", || bans(weir) == count);
    }
}

fn start(upstream: &Upstream, options: &str) -> Replicas {
    Replicas::start(3, upstream, options, &format!("match = {{ path = \"/limited\" }}\n{LIMIT}"))
}

#[test]
fn a_ban_by_an_operator_holds_everywhere_and_outlives_each_replica() {
    let upstream = Upstream::start();
    let mut replicas = start(&upstream, TOGETHER);
    for index in 0..3 {
        let seller = format!("shop-{index}");
        let ban =
            json!({ "limit": "sellers", "key": { "seller": seller }, "for": "forever", "reason": "scrapes prices" });
        assert_eq!(replicas.fleet.weirs[index].ask_admin("POST", "/v1/bans", &ban).status, 200);
        poll(|| replicas.fleet.weirs.iter().all(|weir| status(weir, &seller) == 403).then_some(()));
    }
    let network = json!({ "address": "192.0.2.0/24", "for": "1h" });
    assert_eq!(replicas.fleet.weirs[0].ask_admin("POST", "/v1/bans", &network).status, 200);
    until_banned(&replicas, (4, 0));

    // Lifted at another replica.
    let target = "/v1/bans?limit=sellers&key=shop-0";
    assert_eq!(replicas.fleet.weirs[2].ask_admin("DELETE", target, &Value::Null).status, 200);
    until_banned(&replicas, (3, 0));
    assert!(replicas.fleet.weirs.iter().all(|weir| status(weir, "shop-0") == 200 && status(weir, "shop-1") == 403));

    // Each replica is killed once, and begins without a file of bans.
    for _ in 0..3 {
        replicas.restart(0);
        until_banned(&replicas, (3, 0));
    }
    assert_eq!(status(&replicas.fleet.weirs[0], "shop-2"), 403);
    assert_eq!(status(&replicas.fleet.weirs[0], "shop-0"), 200, "that a ban was lifted is known, too");
}

#[test]
fn a_ban_that_was_set_behind_a_partition_counts_afterwards() {
    let upstream = Upstream::start();
    let replicas = start(&upstream, "");
    let ban = |address: &str| json!({ "address": address, "for": "forever" });
    assert_eq!(replicas.fleet.weirs[0].ask_admin("POST", "/v1/bans", &ban("192.0.2.1")).status, 200);
    until_banned(&replicas, (1, 0));
    replicas.set_links(2, Link::Reset);
    replicas.fleet.weirs[2].wait_for_line("replicas do not hear this one");
    assert_eq!(replicas.fleet.weirs[2].ask_admin("POST", "/v1/bans", &ban("192.0.2.2")).status, 200);
    assert_eq!(replicas.fleet.weirs[0].ask_admin("DELETE", "/v1/bans?address=192.0.2.1", &Value::Null).status, 200);
    assert_eq!(replicas.fleet.weirs[1].ask_admin("POST", "/v1/bans", &ban("192.0.2.3")).status, 200);
    replicas.set_links(2, Link::Clear);
    replicas.wait_until_met();
    for weir in &replicas.fleet.weirs {
        // The replica behind the partition had two bans as well.
        weir.wait_until("it has the bans of both sides", || {
            let shown = weir.ask_admin("GET", "/v1/bans", &Value::Null).text();
            shown.contains("192.0.2.2") && shown.contains("192.0.2.3") && !shown.contains("192.0.2.1")
        });
        let file = weir.folder().join("weir.bans.jsonl");
        weir.wait_until("the bans are in the file", || {
            std::fs::read_to_string(&file).is_ok_and(|text| text.contains("192.0.2.2") && text.contains("192.0.2.3"))
        });
    }

    // Then no replica hears another one.
    for replica in [0, 1] {
        replicas.set_links(replica, Link::Reset);
    }
    for (index, weir) in replicas.fleet.weirs.iter().enumerate() {
        weir.wait_until("it is isolated", || view(weir)["isolated"] == true);
        assert_eq!(weir.ask_admin("POST", "/v1/bans", &ban(&format!("198.51.100.{index}"))).status, 200);
    }
    for replica in [0, 1] {
        replicas.set_links(replica, Link::Clear);
    }
    until_banned(&replicas, (5, 0));
}

#[test]
fn a_ban_by_a_limit_holds_everywhere_and_is_lifted_everywhere() {
    let upstream = Upstream::start();
    let mut replicas = start(&upstream, TOGETHER);
    let mut client = Client::connect(replicas.fleet.weirs[0].address());
    // The states of others may be late, so more than two requests can pass in the fleet, but not here.
    let statuses: Vec<u16> = (0..5).map(|_| client.get("/limited").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 403]);
    until_banned(&replicas, (0, 1));
    replicas.restart(0);
    until_banned(&replicas, (0, 1));
    let lifted = replicas.fleet.weirs[1].ask_admin("DELETE", "/v1/bans?limit=all", &Value::Null);
    assert_eq!(lifted.status, 200, "{}", lifted.text());
    until_banned(&replicas, (0, 0));
}

/// One refusal each by two replicas bans on all three.
#[test]
fn refusals_are_counted_over_the_fleet() {
    let upstream = Upstream::start();
    let replicas = start(&upstream, TOGETHER);
    let weirs = &replicas.fleet.weirs;
    let get = |index: usize| Client::connect(weirs[index].address()).get("/limited").status;
    assert_eq!([get(0), get(0), get(0)], [200, 200, 429]);
    weirs[1].wait_until("it knows that nothing is left", || balance_at(&weirs[1], "/limited") <= 0);
    assert_eq!(bans(&weirs[1]), (0, 0));
    assert_eq!(get(1), 429);
    until_banned(&replicas, (0, 1));
    assert_eq!(get(2), 403);
}
