//! `[snapshot]`, and which limits are kept.

use std::time::Duration;

use super::{brief, compile};

const PLACE: &str = "[snapshot]\npath = 'state'\n";

#[test]
fn a_place_is_relative_to_the_file() {
    let snapshot = |text: &str| {
        let text = format!("{text}\n[upstream]\nurl = 'http://127.0.0.1:9000'");
        compile(&text).unwrap().snapshot
    };
    assert_eq!(snapshot(""), None);
    let found = snapshot(PLACE).unwrap();
    assert_eq!((found.path.to_str(), found.every), (Some("config/state"), Duration::from_mins(1)));
    let found = snapshot("[snapshot]\npath = '/var/lib/weir/state'\ninterval = '5s'").unwrap();
    assert_eq!((found.path.to_str(), found.every), (Some("/var/lib/weir/state"), Duration::from_secs(5)));
}

#[test]
fn what_lasts_an_hour_is_kept() {
    let rows = [
        ("rate = '100/min'", false),
        ("rate = '100/h'", true),
        ("rate = '100/59min'", false),
        ("rate = ['100/min', '1000/day']", true),
        // An empty bucket takes an hour to fill.
        ("rate = '1/s'\nburst = 3600", true),
        ("rate = '1/s'\nburst = 3599", false),
        ("rate = '100/min'\nplans = { big = '1000/day' }", true),
        ("rate = '100/min'\noverrides = { x = 'unlimited' }", false),
        ("rate = '100/min'\nban = { after = '5/min', for = '10min' }", true),
        ("rate = '100/min'\nban = { after = '5/min', for = '1min', for_max = '59min' }", false),
        ("rate = '1/month'\nalgorithm = 'fixed_window'", true),
        ("rate = '10/h'\nalgorithm = 'sliding_log'", true),
        ("max = 10\nalgorithm = 'concurrency'", false),
        ("rate = '100/min'\npersist = true", true),
        ("rate = '100/day'\npersist = false", false),
    ];
    for (rule, kept) in rows {
        let text = format!(
            "{PLACE}[plans]\nfrom = 'header:x-plan'\n[[limit]]\nname = 'a'\nkey = ['query:a']\n{rule}\n\
             [upstream]\nurl = 'http://127.0.0.1:9000'"
        );
        assert_eq!(compile(&text).unwrap().policy.limits()[0].persist, kept, "{rule}");
    }
}

#[test]
fn what_cannot_be_kept() {
    insta::assert_snapshot!(brief("[snapshot]\ninterval = '0s'"), @r"
    1:1 «[snapshot]» `snapshot.path` is missing
      = expected string (file). File with the state of limits, and with the secret that keys are hashed under.
    2:12 «'0s'» `snapshot.interval`: must be longer than zero
    ");
    insta::assert_snapshot!(brief("[snapshot]\npath = '/var/lib/weir/'\n"), @"2:8 «'/var/lib/weir/'» `snapshot.path`: is a folder; name a file in it");
    insta::assert_snapshot!(brief("[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\npersist = true"), @r"
    5:11 «true» `limit.persist`: the configuration names no file for the state
      = add `[snapshot]` with the `path` of a file
    ");
    let concurrency = "[[limit]]\nname = 'a'\nkey = []\nalgorithm = 'concurrency'\nmax = 3\npersist = true";
    insta::assert_snapshot!(brief(&format!("{PLACE}{concurrency}")), @"8:11 «true» `limit.persist`: requests in flight end with the process, so there is no state to save");
}
