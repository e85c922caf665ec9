//! Replicas that find each other through etcd.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::{KEY, config, shown_limit, start, until_limit};
use crate::ops::count_lines;
use crate::support::{Answer, Client, Etcd, Link, Relay, Upstream, Weir, free_port, poll};

const REPLICAS: &str = "weir_fleet_replicas";
const SECRET: &str = "5c6f1e0b7a9d4283bd01f6e2c4a85790";

/// Starts a replica that registers itself in etcd.
fn replica(upstream: &Upstream, etcd: &Etcd) -> Weir {
    replica_with(upstream, &[etcd.address()], "")
}

/// Starts a replica with addresses of etcd and options of `[admin]`.
fn replica_with(upstream: &Upstream, etcd: &[SocketAddr], admin: &str) -> Weir {
    let etcd: Vec<_> = etcd.iter().map(|address| format!("http://{address}")).collect();
    let fleet = format!(
        "[fleet]\nstrategy = \"local\"\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\nlisten = \"127.0.0.1:{}\"\n\
         members = {{ etcd = {etcd:?}, prefix = \"/eu/weir\" }}\nleave_after = \"1s\"\n\
         [[limit]]\nname = \"all\"\nkey = [\"ip\"]\nrate = \"1000/s\"\n",
        free_port()
    );
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(upstream, "", &fleet).replace("[admin]\n", &format!("[admin]\n{admin}\n"));
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in_env(folder, &[("WEIR_FLEET_SECRET", SECRET)])
}

#[test]
fn members_follow_etcd_and_stay_without_it() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    let mut weirs: Vec<Weir> = (0..3).map(|_| replica(&upstream, &etcd)).collect();
    for weir in &weirs {
        weir.wait_for_metric(REPLICAS, |replicas| replicas == 3.0);
    }
    let keys = etcd.keys("/eu/weir/members/");
    assert!(keys.len() == 3 && keys.iter().all(|key| key.starts_with("/eu/weir/members/127.0.0.1:")), "{keys:?}");

    etcd.kill();
    let gone = weirs.pop().unwrap();
    let key: serde_json::Value = serde_json::from_str(&gone.wait_for_line("registered in etcd")).unwrap();
    drop(gone);
    for weir in &weirs {
        weir.wait_for_line("the last known ones stay");
    }
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        assert!(weirs.iter().all(|weir| weir.metric(REPLICAS) == 3.0), "longer than `leave_after`");
        std::thread::sleep(Duration::from_millis(20));
    }
    etcd.restart();
    for weir in &weirs {
        weir.wait_for_lines("registered in etcd", 2);
    }
    // As if its lease were over.
    etcd.call(&["del", key["key"].as_str().unwrap()]);
    for weir in &weirs {
        weir.wait_for_metric(REPLICAS, |replicas| replicas == 2.0);
    }
    // A living replica whose key is removed registers again.
    etcd.call(&["del", "--prefix", "/eu/weir/members/"]);
    weirs[0].wait_until("both are there again", || etcd.keys("/eu/weir/members/").len() == 2);
}

/// Sets the rate of an address, or removes its override.
fn set(admin: SocketAddr, ip: &str, to: &str) -> Answer {
    let edit = format!(r#"{{"limit":"all","key":{{"ip":"{ip}"}},"to":{to}}}"#);
    let head = "POST /v1/overrides HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    Client::connect(admin).send(format!("{head}content-length: {}\r\n\r\n{edit}", edit.len())).answer()
}

#[test]
fn overrides_hold_on_all_replicas_and_outlive_each() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    let weirs: Vec<Weir> = (0..5).map(|_| replica(&upstream, &etcd)).collect();
    for weir in &weirs {
        until_limit(weir, "1000");
    }
    for rate in [7, 8, 9] {
        assert_eq!(set(weirs[0].admin(), "127.0.0.1", &format!("\"{rate}/s\"")).status, 200);
        let shown = rate.to_string();
        poll(|| weirs.iter().all(|weir| shown_limit(weir).as_deref() == Some(&*shown)).then_some(()));
    }

    // Changes at the same time are all made.
    std::thread::scope(|scope| {
        for (number, admin) in weirs.iter().map(Weir::admin).enumerate() {
            scope.spawn(move || {
                for address in 0..3 {
                    let answer = set(admin, &format!("192.0.2.{}", 10 * number + address), "\"5/s\"");
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
        }
    });
    let text = etcd.get("/eu/weir/overrides/text");
    assert_eq!(text.matches("5/s").count(), 15, "{text}");
    for weir in &weirs {
        weir.wait_until("a copy of all", || {
            let copy = std::fs::read_to_string(weir.folder().join("weir.overrides.toml")).unwrap();
            copy.trim_end() == text
        });
    }

    // A replica without a folder for a copy has it in memory.
    let memory = replica_with(&upstream, &[etcd.address()], "overrides = \"memory\"");
    until_limit(&memory, "9");
    let answer = set(memory.admin(), "192.0.2.1", "\"6/s\"");
    assert_eq!((answer.status, answer.text().contains("not_kept")), (200, false), "{}", answer.text());

    // Each replica may be lost, and all of them.
    drop((weirs, memory));
    let weir = replica(&upstream, &etcd);
    until_limit(&weir, "9");
    etcd.kill();
    let answer = set(weir.admin(), "127.0.0.1", "\"6/s\"");
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("nothing is changed"), "{}", answer.text());
    assert_eq!(shown_limit(&weir).as_deref(), Some("9"));
    etcd.restart();
    assert_eq!(set(weir.admin(), "127.0.0.1", "null").status, 200);
    until_limit(&weir, "1000");
    assert_eq!(etcd.get("/eu/weir/overrides/text").matches("127.0.0.1").count(), 0);
}

/// An override with an end ends on all replicas, also while etcd is away. One replica removes it from etcd, and has its
/// line in the audit log.
#[test]
fn overrides_end_on_all_replicas() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    let weirs: Vec<Weir> = (0..2).map(|_| replica(&upstream, &etcd)).collect();
    let set_timed = || {
        let answer = set(weirs[0].admin(), "127.0.0.1", "\"7/s\",\"for\":\"8s\"");
        assert!(answer.status == 200 && answer.text().contains("\"until\""), "{}", answer.text());
        for weir in &weirs {
            until_limit(weir, "7");
        }
    };
    let is_removed = |etcd: &Etcd| !etcd.get("/eu/weir/overrides/text").contains("127.0.0.1");
    let lines = || weirs.iter().map(|weir| count_lines(weir, "ended by itself")).sum::<usize>();
    set_timed();
    for weir in &weirs {
        until_limit(weir, "1000");
    }
    weirs[0].wait_until("etcd has it no more", || is_removed(&etcd));
    poll(|| (lines() == 1).then_some(()));

    set_timed();
    etcd.kill();
    for weir in &weirs {
        until_limit(weir, "1000");
    }
    etcd.restart();
    weirs[0].wait_until("etcd has it no more", || is_removed(&etcd));
    poll(|| (lines() == 2).then_some(()));
}

const OVERRIDES: &str = "/eu/weir/overrides/text";

#[test]
fn a_change_that_one_replica_cannot_keep_is_reported_as_such() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let [one, other] = [replica(&upstream, &etcd), replica(&upstream, &etcd)];
    assert_eq!(set(one.admin(), "127.0.0.1", "\"7/s\"").status, 200);
    until_limit(&other, "7");
    let copy = one.folder().join("weir.overrides.toml");
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir(&copy).unwrap();
    let answer = set(one.admin(), "127.0.0.1", "\"8/s\"");
    assert!(answer.status == 500 && answer.text().contains("other replicas apply it"), "{}", answer.text());
    until_limit(&other, "8");
    assert!(etcd.get(OVERRIDES).contains("8/s"));
    let lines = one.wait_for_lines("changed by an operator", 2);
    assert!(lines[1].contains("7/s") && lines[1].contains("8/s"), "{}", lines[1]);
    std::fs::remove_dir(&copy).unwrap();
    until_limit(&one, "8");
    assert_eq!(set(one.admin(), "127.0.0.1", "\"9/s\"").status, 200);
    for weir in [&one, &other] {
        until_limit(weir, "9");
    }
}

/// An edit by hand that is not TOML changes nothing, also at a replica that starts meanwhile.
#[test]
fn an_invalid_text_in_etcd_is_not_copied() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("overrides.toml");
    let start = || replica_with(&upstream, &[etcd.address()], &format!("overrides = {file:?}"));
    let weir = start();
    assert_eq!(set(weir.admin(), "127.0.0.1", "\"7/s\"").status, 200);
    let good = etcd.get(OVERRIDES);
    etcd.put(OVERRIDES, good.replace("\"7/s\"", "\"7/s"));
    let failed = "the overrides of the fleet in etcd cannot be read";
    let line = weir.wait_for_line(failed);
    assert!(line.contains(&format!("\"key\":\"{OVERRIDES}\"")), "{line}");
    let answer = set(weir.admin(), "127.0.0.1", "\"8/s\"");
    assert!(answer.status == 409 && answer.text().contains(OVERRIDES), "{}", answer.text());
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), good);
    drop(weir);

    let weir = start();
    weir.wait_for_line(failed);
    assert_eq!(shown_limit(&weir).as_deref(), Some("7"));
    etcd.put(OVERRIDES, good.replace("7/s", "8/s"));
    until_limit(&weir, "8");
}

#[test]
fn a_copy_that_cannot_be_written_is_tried_again() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let text = || std::fs::read_to_string(at("folder").join("overrides.toml")).unwrap();
    // The path of the file has a link to its folder. A file replaces the link, which also stops root, and a new link
    // replaces that file.
    let set_link = || {
        std::os::unix::fs::symlink("folder", at("new")).unwrap();
        std::fs::rename(at("new"), at("link")).unwrap();
    };
    let break_link = || {
        std::fs::write(at("new"), "").unwrap();
        std::fs::rename(at("new"), at("link")).unwrap();
    };
    std::fs::create_dir(at("folder")).unwrap();
    set_link();
    let admin = format!("overrides = {:?}", at("link").join("overrides.toml"));
    let one = replica_with(&upstream, &[etcd.address()], &admin);
    let other = replica(&upstream, &etcd);
    assert_eq!(set(other.admin(), "127.0.0.1", "\"7/s\"").status, 200);
    until_limit(&one, "7");

    break_link();
    assert_eq!(set(other.admin(), "127.0.0.1", "\"8/s\"").status, 200);
    let failed = "the overrides of the fleet cannot be written";
    one.wait_for_line(failed);
    until_limit(&other, "8");
    assert_eq!(shown_limit(&one).as_deref(), Some("7"));
    set_link();
    until_limit(&one, "8");
    assert!(text().contains("8/s"), "{}", text());
    assert_eq!((one.wait_for_lines("written to their file again", 1).len(), count_lines(&one, failed)), (1, 1));

    // A clean stop does not wait for the next attempt.
    break_link();
    assert_eq!(set(other.admin(), "127.0.0.1", "\"9/s\"").status, 200);
    one.wait_for_lines(failed, 2);
    set_link();
    one.signal("TERM");
    assert_eq!(one.wait(), Some(0));
    assert!(text().contains("9/s"), "{}", text());
}

#[test]
fn a_change_whose_answer_is_lost_has_its_line() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let relay = Relay::to(etcd.address());
    let [one, other] = [replica_with(&upstream, &[relay.address()], ""), replica(&upstream, &etcd)];
    assert_eq!(set(one.admin(), "127.0.0.1", "\"7/s\"").status, 200);
    for weir in [&one, &other] {
        until_limit(weir, "7");
    }
    // etcd makes the change, and cannot be asked about it.
    relay.lose_answers("8/s", Link::Reset);
    let answer = set(one.admin(), "127.0.0.1", "\"8/s\"");
    assert!(answer.status == 503 && answer.text().contains("or not"), "{}", answer.text());
    let line = one.wait_for_line("\"outcome\":\"unknown\"");
    assert!(line.contains("changed by an operator") && line.contains("7/s") && line.contains("8/s"), "{line}");
    relay.set(Link::Clear);
    for weir in [&one, &other] {
        until_limit(weir, "8");
    }
    // etcd makes the change, and can be asked about it. A slow one may not have made it yet.
    poll(|| {
        relay.lose_answers("9/s", Link::Clear);
        (set(one.admin(), "127.0.0.1", "\"9/s\"").status == 200).then_some(())
    });
    for weir in [&one, &other] {
        until_limit(weir, "9");
    }
}

#[test]
fn overrides_stay_when_their_key_is_removed() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let weirs = [replica(&upstream, &etcd), replica(&upstream, &etcd)];
    assert_eq!(set(weirs[0].admin(), "127.0.0.1", "\"7/s\"").status, 200);
    for weir in &weirs {
        until_limit(weir, "7");
    }
    for (index, changed) in weirs.iter().enumerate() {
        etcd.call(&["del", OVERRIDES]);
        for weir in &weirs {
            weir.wait_for_lines("were removed from etcd", index + 1);
        }
        // The next change begins with the overrides of its replica, so it shows whether that has kept them.
        let address = format!("192.0.2.{index}");
        assert_eq!(set(changed.admin(), &address, "\"5/s\"").status, 200);
        let text = etcd.get(OVERRIDES);
        assert!(text.contains("7/s") && text.contains(&address), "{text}");
        for weir in &weirs {
            let copy = weir.folder().join("weir.overrides.toml");
            weir.wait_until("the change", || std::fs::read_to_string(&copy).unwrap().contains(&address));
            assert_eq!(shown_limit(weir).as_deref(), Some("7"));
        }
    }
}

/// A server that accepts connections and does not answer costs time only: another one is asked.
#[test]
fn changes_and_starts_need_one_server_that_answers() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = [silent.local_addr().unwrap(), etcd.address()];
    let weir = replica_with(&upstream, &servers, "");
    until_limit(&weir, "1000");
    let answer = set(weir.admin(), "127.0.0.1", "\"7/s\"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    until_limit(&weir, "7");
    etcd.put(KEY, config(&upstream, 2000));
    let weir = start(&format!("etcd://{},{}{KEY}", servers[0], servers[1]), &[]);
    assert_eq!(shown_limit(&weir).as_deref(), Some("2000"));
}
