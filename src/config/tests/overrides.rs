//! Overrides set at run time: what goes before what, what is left out and why, and what of it is shown.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{UPSTREAM, brief, bucket};
use crate::config::overrides::place_in;
use crate::config::{
    self, Config, ConfigInForce, DEFAULT_LIMIT, Diagnostics, OverridesInForce, OverridesPlace, RunTimeOverrides,
};
use crate::engine::limit::Algorithm;
use crate::engine::policy::overrides::{Override, OverrideEdit, OverrideError};

const SECOND: u64 = 1_000_000_000;

const LIMITS: &str = r#"
[admin]
overrides = "set.toml"
[[limit]]
name = "clients"
key = ["ip"]
rate = "10/s"
overrides = { "192.0.2.1" = "20/s", "192.0.2.2" = "30/s" }
[[limit]]
name = "keys"
key = ["header:x-api-key"]
rate = "10/s"
cost = 2
[[limit]]
name = "several"
key = ["ip"]
rate = "10/s"
overrides = { "192.0.2.1" = ["20/s", "99/h"] }
"#;

/// A configuration, and a file beside it.
struct Place(TempDir);

impl Place {
    fn new(limits: &str, set: &str) -> Self {
        Self::of(&format!("{UPSTREAM}{limits}"), set)
    }

    fn of(configuration: &str, set: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("weir.toml"), configuration).unwrap();
        fs::write(place.path("set.toml"), set).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self) -> Result<Config, Diagnostics> {
        config::load(&self.path("weir.toml").as_path().into())
    }

    fn change(&self, edits: &[(&str, &str, Value)]) -> Result<config::Changed, OverrideError> {
        let edit = |(limit, text, to): &(&str, &str, Value)| OverrideEdit {
            limit: (*limit).to_owned(),
            key: (*text).to_owned(),
            allowance: Some(to.clone()).filter(|to| !to.is_null()),
            replaces: false,
        };
        config::change(&self.in_force(), &edits.iter().map(edit).collect::<Vec<_>>(), None)
    }

    /// The configuration on disk as the one in force.
    fn in_force(&self) -> ConfigInForce {
        let config = self.load().ok();
        let (files, overrides) = config.map(|config| (config.sources, config.run_time.kept)).unwrap_or_default();
        ConfigInForce { origin: self.path("weir.toml").as_path().into(), files, overrides }
    }

    /// What is said of what is left out.
    fn said(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// An override that is set at run time is divided among replicas like the limit itself.
#[test]
fn replicas_share_what_is_set() {
    let limits = "[fleet]\nstrategy = 'split'\nreplicas = 2\n[admin]\noverrides = 'set.toml'\n\
                  [[limit]]\nname = 'clients'\nkey = ['ip']\nrate = '10/s'\n";
    let place = Place::new(limits, "");
    let changed = place.change(&[("clients", "192.0.2.7", json!("40/s"))]).unwrap();
    let share = bucket(40, 2 * SECOND, 20);
    assert_eq!(allowed(&changed.config, "clients"), [("192.0.2.7".to_owned(), Some(share), true)]);
    assert!(place.change(&[("clients", "192.0.2.7", json!("1/s"))]).is_err(), "a share of nothing");
}

/// A store has to keep the debt of a limit under an override that is set at run time, too.
#[test]
fn a_store_keeps_the_debts_under_what_is_set() {
    let limits = "[fleet]\nstrategy = 'redis'\nsecret.file = 'secret'\nreplicas = 3\n\
                  [store.main]\nredis = 'redis://127.0.0.1'\n[admin]\noverrides = 'set.toml'\n\
                  [[limit]]\nname = 'clients'\nkey = ['ip']\nrate = '9/s'\nsettle = { by = 'elapsed_ms' }\n\
                  max_debt = 1000000\n";
    let place = Place::new(limits, "");
    fs::write(place.path("secret"), "5c6f1e0b7a9d4283bd01f6e2c4a85790").unwrap();
    place.change(&[("clients", "192.0.2.7", json!("8/s"))]).unwrap();
    let refused = place.change(&[("clients", "192.0.2.7", json!("9/h"))]).unwrap_err();
    let expected = "a store cannot keep a debt of 1000000 units under this override: it takes more than 104 days";
    assert!(format!("{refused:?}").contains(expected), "{refused:?}");
}

/// What a limit allows to single keys.
fn allowed(config: &Config, limit: &str) -> Vec<(String, Option<Algorithm>, bool)> {
    let limit = config.policy.limits().iter().find(|known| *known.name == *limit).unwrap();
    let all = limit.allowed.overrides.iter().enumerate();
    all.map(|(at, (text, rule))| (text.to_string(), rule.clone(), at >= limit.allowed.set_from)).collect()
}

/// What is left out of a file, and how that is said; what else there is applies.
fn left_out(limits: &str, set: &str) -> (usize, String) {
    let place = Place::new(limits, set);
    let config = place.load().unwrap();
    let problems = config.run_time.problems.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(!problems.contains("hunter2"), "{problems}");
    let said = config.run_time.overrides.iter().filter(|set| set.rejection.is_some()).count();
    assert!(said <= config.run_time.rejected_count);
    for set in config.run_time.overrides.iter().filter(|set| set.rejection.is_none()) {
        assert!(allowed(&config, &set.limit).iter().any(|(text, _, is_set)| **text == *set.key && *is_set), "{set:?}");
    }
    (config.run_time.rejected_count, place.said(&problems))
}

#[test]
fn what_is_set_goes_before_what_is_written() {
    let place = Place::new(
        LIMITS,
        "[clients]\n'192.0.2.2' = '40/s'\n'192.0.2.3' = 'unlimited'\n[clients.'192.0.2.4']\nrate = '5/s'\nburst = 9\n\
         [several]\n'192.0.2.1' = '7/s'\n'192.0.2.2' = ['8/s', '80/h']\n",
    );
    let config = place.load().unwrap();
    let text = |text: &str| text.to_owned();
    assert!(config.run_time.problems.is_none(), "{:?}", config.run_time.problems);
    assert_eq!(
        allowed(&config, "clients"),
        [
            (text("192.0.2.1"), Some(bucket(20, SECOND, 20)), false),
            (text("192.0.2.2"), Some(bucket(40, SECOND, 40)), true),
            (text("192.0.2.3"), None, true),
            (text("192.0.2.4"), Some(bucket(5, SECOND, 9)), true),
        ]
    );
    // All of its keys have several windows by what the configuration says, and keep them.
    let several = &config.policy.limits()[2].allowed;
    assert!(matches!(several.usual, Algorithm::Several(_)));
    assert!(several.overrides.iter().all(|(_, rule)| matches!(rule, Some(Algorithm::Several(_)))));
    assert!(config.sources.paths().any(|path| path == place.path("set.toml")));
    assert!(!config.sources.have_changed());
    fs::write(place.path("set.toml"), "").unwrap();
    assert!(config.sources.have_changed());
    let emptied = place.load().unwrap();
    assert!(emptied.sources.differ_only_in(&config.sources, Some(&place.path("set.toml"))));
    assert!(!emptied.sources.differ_only_in(&config.sources, Some(&place.path("weir.toml"))));
    fs::remove_file(place.path("set.toml")).unwrap();
    let absent = place.load().unwrap();
    assert_eq!((absent.run_time.rejected_count, absent.run_time.overrides.len()), (0, 0));
    assert!(absent.sources.paths().any(|path| path == place.path("set.toml")));
}

#[test]
fn the_default_limit_can_have_them_too() {
    let place = Place::new("[admin]\noverrides = 'set.toml'\n", "[per-path]\n'/a' = '5/min'\n'b' = '5/min'\n");
    let config = place.load().unwrap();
    assert_eq!(allowed(&config, "per-path"), [("/a".to_owned(), Some(bucket(5, 60 * SECOND, 5)), true)]);
    assert_eq!(config.run_time.rejected_count, 1);
}

#[test]
fn a_limit_that_cannot_be_read_is_not_the_default() {
    let of = |limits: &str, set: &str| {
        let rest = "[upstream]\nurl = 'http://a'\n[admin]\noverrides = 'set.toml'\n";
        Place::of(&format!("{limits}{rest}"), set)
    };
    let written = "[limit]\nname = 'a'\nkey = ['ip']\nrate = '1/s'\n";
    for limits in [written, "limit = 5\n", "limit = ['x', 5]\n", "limit = {}\n"] {
        let said = |set: &str| {
            let place = of(limits, set);
            place.said(&place.load().expect_err(limits).to_string())
        };
        assert!(said("").contains("`limit`: expected"), "{}", said(""));
        for set in ["[per-path]\n'/a' = '5/min'\n", "[a]\n'192.0.2.1' = '5/min'\n"] {
            assert_eq!(said(set), said(""));
        }
    }
    for limits in ["", "limit = []\n"] {
        assert_eq!(allowed(&of(limits, "[per-path]\n'/a' = '5/min'\n").load().unwrap(), "per-path").len(), 1);
    }
}

#[test]
fn what_does_not_fit_is_left_out() {
    insta::assert_snapshot!(left_out(LIMITS, "[client]\n'192.0.2.1' = '5/s'\n'192.0.2.2' = '5/s'\n").1, @r#"
    error: there is no limit `client`
    --> set.toml:2:1
     = help: did you mean `clients`?
    "#);
    insta::assert_snapshot!(left_out(LIMITS, "[clients]\n'192.0.2.9' = '5/s'\n'192.0.2.8' = '5/fortnight'\n").1, @r#"
    error: `limit.overrides.NAME`: unknown unit `fortnight`; units are ms, s, min, h, day, week, month
    --> set.toml:3:15
    "#);
    insta::assert_snapshot!(left_out(LIMITS, "[clients]\n'192.0.2.9' = 5\n'192.0.2.8' = { rte = '5/s' }\n").1, @r#"
    error: `limit.overrides.NAME`: expected rate, list of rates, factor, table, or `unlimited`
    --> set.toml:2:15
     = note: this is an integer
     = help: write `"5/s"`

    error: `limit.overrides.NAME.rate` is missing
    --> set.toml:3:15
     = help: expected rate, or list of 1 to 4 rates. As `limit.rate`.

    error: unknown key in `[limit.overrides.NAME]`
    --> set.toml:3:17
     = help: did you mean `rate`?
    "#);
    insta::assert_snapshot!(left_out(LIMITS, "[clients]\n'::ffff:192.0.2.1' = '5/s'\n'shop' = '5/s'\n").1, @r#"
    error: `limit.overrides.NAME`: this is not an address
    --> set.toml:3:1
     = help: an override applies to one address, as in "192.0.2.7"
    "#);
    insta::assert_snapshot!(left_out(LIMITS, "[keys]\nhunter2 = '5/s'\nhunter22 = '1/s'\n").1, @r#"
    error: `limit.cost`: a cost of 2 can never pass: the burst of this override is 1
    --> set.toml:3:1
    "#);
    insta::assert_snapshot!(left_out(LIMITS, "[clients]\n'192.0.2.9' = ['5/s', '9/h']\n[several]\n'192.0.2.9' = ['5/s', '9/h']\n").1, @r#"
    error: `limit.overrides.NAME`: must be one rate: several rates would reset all keys of this limit
    --> set.toml:2:1
     = help: an override can have several rates only if the limit, a plan or an override in the configuration has several
    "#);
    insta::assert_snapshot!(left_out(LIMITS, "hunter2 = 'hunter2'\n[clients]\n'192.0.2.9' = '5/s'\n").1, @r#"
    error: expected a table of overrides for each limit
    --> set.toml:1:1
     = help: write it like `[NAME]`, with the name of a limit
    "#);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let place = Place::of(&format!("\u{feff}{UPSTREAM}{LIMITS}"), "\u{feff}[clients]\n'192.0.2.2' = '5/s'\n");
    let config = place.load().unwrap();
    assert!(config.run_time.problems.is_none(), "{:?}", config.run_time.problems);
    assert_eq!(allowed(&config, "clients")[1], ("192.0.2.2".to_owned(), Some(bucket(5, SECOND, 5)), true));
    let changed = place.change(&[("clients", "192.0.2.3", json!("6/s"))]).unwrap();
    assert!(changed.text.ends_with("[clients]\n'192.0.2.2' = '5/s'\n\"192.0.2.3\" = \"6/s\"\n"), "{}", changed.text);
    insta::assert_snapshot!(left_out(LIMITS, "\u{feff}clients.'192.0.2.2' = 5\nclients.'192.0.2.3' = 6").1, @r#"
    error: `limit.overrides.NAME`: expected rate, list of rates, factor, table, or `unlimited`
    --> set.toml:1:26
     = note: this is an integer
     = help: write `"5/s"`

    error: `limit.overrides.NAME`: expected rate, list of rates, factor, table, or `unlimited`
    --> set.toml:2:23
     = note: this is an integer
     = help: write `"6/s"`
    "#);
    assert_eq!(left_out(LIMITS, "[clients]\n\u{feff}'192.0.2.2' = '5/s'\n").0, 1);
}

#[test]
fn a_path_has_the_slashes_that_requests_have() {
    let set = "[per-path]\n'/p//a' = '5/min'\n'/p/a' = '6/min'\n'/p/../a' = '7/min'\n";
    for (server, left_out_count) in [("", 2), ("[server]\nmerge_slashes = false\n", 1)] {
        let written = format!("{DEFAULT_LIMIT}overrides = {{ '/q/a' = '1/s' }}\n");
        for limits in ["", &written] {
            let place = Place::new(&format!("[admin]\noverrides = 'set.toml'\n{server}{limits}"), set);
            assert_eq!(place.load().unwrap().run_time.rejected_count, left_out_count, "{server}{limits}");
        }
        let itself = Place::new(&format!("{server}{}", written.replace("/q/a", "/q//a")), "");
        assert_eq!(itself.load().is_err(), server.is_empty());
    }
}

#[test]
fn a_path_has_escaped_slashes_if_they_are_kept() {
    let set = "[per-path]\n'/p%2Fa' = '5/min'\n'/p%2fa' = '5/min'\n'/p%2F..' = '5/min'\n";
    for (server, left_out_count) in [("", 3), ("encoded_slashes = 'refuse'\n", 3), ("encoded_slashes = 'keep'\n", 2)] {
        let place = Place::new(&format!("[admin]\noverrides = 'set.toml'\n[server]\n{server}"), set);
        assert_eq!(place.load().unwrap().run_time.rejected_count, left_out_count, "{server}");
    }
}

#[test]
fn a_path_is_written_as_it_is_matched() {
    let set = "[per-path]\n'/P' = '5/min'\n'/p' = '5/min'\n'/p/' = '6/min'\n'/p;a' = '7/min'\n'/p%3Aa' = '7/min'\n";
    for (paths, left_out_count) in [
        ("{}", 1),
        ("{ ignore_case = true }", 2),
        ("{ ignore_case = true, ignore_trailing_slash = true, ignore_params = true }", 4),
    ] {
        let place = Place::new(&format!("[admin]\noverrides = 'set.toml'\n[server]\npaths = {paths}\n"), set);
        assert_eq!(place.load().unwrap().run_time.rejected_count, left_out_count, "{paths}");
    }
    insta::assert_snapshot!(brief("[server.paths]\nignore_case = true\n[[limit]]\nname = 'a'\nkey = 'path'\nrate = '1/s'\noverrides = { '/Users' = '2/s' }\n"), @r"
    7:15 «'/Users'» `limit.overrides.NAME`: no path is `/Users`: Weir normalises paths before limits count them
      = did you mean `/users`?
    ");
}

#[test]
fn no_key_is_ever_shown() {
    let of_key = |key: &str| LIMITS.replace("\"header:x-api-key\"", key);
    let limits = [
        ("'ip'", "this is not an address"),
        ("'path'", "no request can have this path"),
        ("'host'", "this is not a host"),
        ("'method'", "this is not a method"),
        ("'ip', 'path'", "this has 1 parts"),
        ("", "all requests share one key"),
        ("'nobody'", ""),
    ];
    for (key, why) in limits {
        for text in ["sk-live-hunter2", "../%2f/sk-live-hunter2", "get-hunter2", "*.Hunter2", "1hunter2"] {
            let place = Place::new(&of_key(key), &format!("[keys]\n'{text}' = '5/s'\n"));
            let said = match place.load() {
                Ok(Config { run_time, .. }) => {
                    // Some texts are such a key.
                    let Some(why_not) = run_time.overrides[0].rejection.as_deref() else { continue };
                    assert!(why_not.contains(why), "{key} {text}: {why_not}");
                    format!("{why_not}{}", run_time.problems.unwrap())
                }
                Err(problems) => problems.to_string(),
            };
            assert!(!said.to_lowercase().contains("hunter2"), "{said}");
        }
    }
    let routes = of_key("'route'").replace("name = \"keys\"", "name = \"keys\"\nmatch.path = \"/hunter\"");
    insta::assert_snapshot!(left_out(&routes, "[keys]\n'/hunter2' = '5/s'\n").1, @r#"
    error: `limit.overrides.NAME`: this is not one of `match.path`
    --> set.toml:2:1
    "#);
    insta::assert_snapshot!(left_out(&of_key("'ip', 'path'"), "[keys]\n'hunter2|/' = '5/s'\n").1, @r#"
    error: `limit.overrides.NAME`: no request can have this part 1 of its key
    --> set.toml:2:1
    "#);
    insta::assert_snapshot!(left_out(&of_key("'ip'"), "[keys]\n'sk-live-hunter2' = '5/s'\n").1, @r#"
    error: `limit.overrides.NAME`: this is not an address
    --> set.toml:2:1
     = help: an override applies to one address, as in "192.0.2.7"
    "#);
}

#[test]
fn two_overrides_of_one_key_replace_nothing() {
    let set = "[clients]\n'::ffff:192.0.2.2' = '5/s'\n'192.0.2.2' = '6/s'\n'192.0.2.3' = '7/s'\n";
    let place = Place::new(LIMITS, set);
    let config = place.load().unwrap();
    let written = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(str::to_owned);
    assert_eq!(allowed(&config, "clients").into_iter().map(|(text, ..)| text).collect::<Vec<_>>(), written);
    assert_eq!(allowed(&config, "clients")[1], (written[1].clone(), Some(bucket(30, SECOND, 30)), false));
    insta::assert_snapshot!(left_out(LIMITS, set).1, @r#"
    error: `limit.overrides.NAME`: this key occurs twice
    --> set.toml:3:1
     = note: first here, at 2:1
    "#);
}

#[test]
fn nor_one_that_became_several() {
    for set in [
        "[keys]\nsk.hunter2 = '1/s'\n",
        "[keys.sk2.hunter2]\n",
        "[keys.sk2.hunter2]\nrate = '5/s'\n[keys.sk2.hunter22.hunter222]\n",
        "[keys]\nsk = { hunter2.a = 1, hunter2.b = 2 }\n",
        "[keys]\nhunter2.rate = '5/s'\nhunter2.burst = 0\n",
        "[keys]\nhunter2.a = '5/s'\nhunter2.b = '5/s'\n",
        "[[keys.hunter2]]\n[[keys.hunter2]]\n",
        "[[keys.hunter2]]\nrate = '5/s'\n[[keys.hunter2]]\nhunter2 = 'hunter2'\n",
        "[keys.sk]\nrate = [{ hunter2 = 1 }]\n",
        "[keys.sk]\nrate.hunter2 = 1\n",
        "[keys]\nsk = [{ hunter2 = 1 }]\n",
        "keys.hunter2.hunter2.hunter2 = '5/s'\n",
        "[keys]\nsk = '5/x' # hunter2\n",
    ] {
        let place = Place::new(LIMITS, set);
        let RunTimeOverrides { overrides, problems, .. } = place.load().unwrap().run_time;
        let said = problems.unwrap_or_else(|| panic!("{set}")).to_string();
        assert!(!said.contains("hunter2"), "{set}{said}");
        for Override { allowance, rejection, .. } in overrides {
            assert!(!format!("{allowance} {rejection:?}").contains("hunter2"), "{set}{allowance} {rejection:?}");
        }
    }
    insta::assert_snapshot!(left_out(LIMITS, "[keys]\nsk.hunter2 = '1/s'\n").1, @r#"
    error: `limit.overrides.NAME.rate` is missing
    --> set.toml:2:1
     = help: expected rate, or list of 1 to 4 rates. As `limit.rate`.

    error: unknown key in `[limit.overrides.NAME]`
    --> set.toml:2:4
     = help: `[limit.overrides.NAME]` can have rate, burst, max, plan
    "#);
    insta::assert_snapshot!(left_out(LIMITS, "[keys]\nhunter2.rate = '5/s'\nhunter2.burst = 0\n").1, @r#"
    error: `limit.overrides.NAME.burst`: expected whole number from 1
    --> set.toml:3:17
    "#);
}

#[test]
fn what_the_limit_cannot_have_is_left_out_for_it_alone() {
    let limits = LIMITS.replace("name = \"keys\"", "name = \"keys\"\non_full = \"sketch\"");
    let (count, said) = left_out(&limits, "[clients]\n'192.0.2.9' = '5/s'\n[keys]\nhunter2 = '5/s'\nb = '6/s'\n");
    assert_eq!(count, 2);
    insta::assert_snapshot!(said, @r#"
    error: `limit.on_full`: `sketch` needs a token bucket with the same rule for every key
    --> set.toml:4:1
     = help: remove `on_full`; the default is then `shared`

    error: `limit.on_full`: `sketch` needs a token bucket with the same rule for every key
    --> set.toml:5:1
     = help: remove `on_full`; the default is then `shared`
    "#);
}

#[test]
fn a_file_that_cannot_be_read_is_left_out_whole() {
    for set in
        ["[clients\nhunter2 = '5/s'", "hunter2 hunter2", "[keys]\n'hunter2' = '5/s'\n'hunter2' = '6/s'", "\0hunter2"]
    {
        let (count, said) = left_out(LIMITS, set);
        assert_eq!(count, 1, "{set}");
        assert!(said.contains("set.toml:") && said.contains("not valid TOML"), "{said}");
    }
    insta::assert_snapshot!(left_out(LIMITS, "[keys]\n'hunter2' = '5/s\n").1, @r#"
    error: not valid TOML: invalid literal string, expected `'`
    --> set.toml:2:17
     = help: until the file is corrected, a starting Weir applies no overrides, and a running Weir keeps its overrides
    "#);
    let place = Place::new(LIMITS, "");
    fs::write(place.path("set.toml"), b"[clients]\n'\xFF' = '1/s'").unwrap();
    assert_eq!(place.load().unwrap().run_time.rejected_count, 1);
    // A change begins with the text in force, and keeps a copy of the invalid file.
    let kept = OverridesInForce { text: Some("[keys]\na = '9/s'\n".into()), ..place.in_force().overrides };
    let in_force = ConfigInForce { overrides: kept, ..place.in_force() };
    let edit =
        OverrideEdit { limit: "clients".into(), key: "::1".into(), allowance: Some(json!("20/s")), replaces: false };
    let changed = config::change(&in_force, &[edit], None).unwrap();
    assert!(changed.text.ends_with("[keys]\na = '9/s'\n\n[clients]\n\"::1\" = \"20/s\"\n"), "{}", changed.text);
    assert_eq!(changed.copy_to, Some(place.path("set.invalid")));
    fs::remove_file(place.path("set.toml")).unwrap();
    fs::create_dir(place.path("set.toml")).unwrap();
    assert!(matches!(place.change(&[("clients", "::1", json!("1/s"))]), Err(OverrideError::InvalidOnDisk(_))));
    let config = place.load().unwrap();
    insta::assert_snapshot!(place.said(&config.run_time.problems.unwrap().to_string()), @r#"
    error: `set.toml` is a directory, not a file
     |
     = help: until the file is corrected, a starting Weir applies no overrides, and a running Weir keeps its overrides
    "#);
}

/// The files of the configuration in force count for a change, and the file of overrides on disk.
#[test]
fn a_change_is_of_the_configuration_in_force() {
    let jwt =
        "[identity.seller.jwt]\nclaim = \"sub\"\nalgorithms = [\"HS256\"]\nkeys = [{ secret = { file = \"key\" } }]\n";
    let place = Place::new("", "");
    fs::write(place.path("key"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::write(place.path("weir.toml"), format!("{UPSTREAM}{LIMITS}{jwt}")).unwrap();
    let in_force = place.in_force();
    fs::write(place.path("weir.toml"), "[upstream").unwrap();
    fs::remove_file(place.path("key")).unwrap();
    fs::write(place.path("set.toml"), "[clients]\n'192.0.2.7' = '20/s'\n").unwrap();
    let edit = OverrideEdit {
        limit: "clients".into(),
        key: "192.0.2.8".into(),
        allowance: Some(json!("30/s")),
        replaces: false,
    };
    let changed = config::change(&in_force, std::slice::from_ref(&edit), None).unwrap();
    assert_eq!(changed.config.run_time.overrides.len(), 2);
    let file = place.path("set.toml");
    assert!(changed.config.sources.differ_only_in(&in_force.files, Some(&file)));
    let loaded = config::load_in_force(&in_force).unwrap();
    assert_eq!(loaded.run_time.overrides.len(), 1);
    assert!(loaded.sources.has_changed(&place.path("key")) && !loaded.sources.has_changed(&file));
}

#[test]
fn the_configuration_s_own_problems_are_its_own() {
    let limits = LIMITS.replace("rate = \"10/s\"\ncost", "rate = \"10/fortnight\"\ncost");
    let place = Place::new(&limits, "[clients]\n'192.0.2.9' = '5/s'\n'192.0.2.8' = 'x'\n[gone]\na = '1/s'\n");
    let problems = place.load().unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems.to_string().contains("unknown unit `fortnight`") && !problems.to_string().contains("set.toml"));
    assert!(problems.sources().paths().any(|path| path == place.path("set.toml")));
    assert!(matches!(place.change(&[("clients", "::1", json!("1/s"))]), Err(OverrideError::InvalidOnDisk(_))));
}

#[test]
fn the_file_is_one_of_its_own() {
    for (admin, said) in [
        ("overrides = 5", "expected string (file, `memory`, or `off`)"),
        ("overrides = ''", "must not be empty"),
        ("overrides = 'folder/'", "is a folder; name a file in it"),
        ("overrides = 'weir.toml'", "is the configuration file"),
        ("overrides = './weir.toml'", "is the configuration file"),
    ] {
        let problems = Place::new(&format!("[admin]\n{admin}\n"), "").load().unwrap_err().to_string();
        assert!(problems.contains(said), "{admin}: {problems}");
    }
    let none = Place::new("[admin]\noverrides = 'off'\n", "[clients]\n");
    assert_eq!(none.load().unwrap().run_time.kept.place, OverridesPlace::Off);
    assert_eq!(none.change(&[("per-path", "/a", json!("1/s"))]).unwrap_err(), OverrideError::Off);
}

#[test]
fn overrides_have_a_place_by_default() {
    let place = Place::new("", "");
    let in_file = place.load().unwrap().run_time.kept;
    assert_eq!(in_file.place, OverridesPlace::File(place.path("weir.overrides.toml")));
    assert!(!place.path("weir.overrides.toml").exists());
    let changed = place.change(&[("per-path", "/a", json!("1/s"))]).unwrap();
    assert_eq!(changed.config.run_time.kept.place, in_file.place);

    // Without a folder or a file of the configuration, they are in memory.
    let load = |own: &str, kept: Option<&OverridesInForce>| {
        let table = toml::de::DeTable::parse("").unwrap();
        let own = Some(std::path::Path::new(own)).filter(|own| *own != std::path::Path::new(""));
        place_in(table.get_ref(), std::path::Path::new(""), own, kept)
    };
    let memory = |reason: &str| OverridesPlace::Memory { no_file: Some(reason.into()) };
    let nowhere = memory("the folder `/nowhere` does not exist");
    assert_eq!(load("/nowhere/weir.toml", None), nowhere);
    assert_eq!(load("", None), memory("the configuration is not from a file"));
    // They stay there if there is a folder later, and go with the option.
    let kept = OverridesInForce { place: nowhere.clone(), text: Some("".into()) };
    let own = place.path("weir.toml");
    assert_eq!(load(own.to_str().unwrap(), Some(&kept)), nowhere);
    let named = Place::new("[admin]\noverrides = 'set.toml'\n", "");
    let loaded = config::load_after(&named.path("weir.toml").as_path().into(), Some(&kept)).unwrap();
    assert_eq!(loaded.run_time.kept.place, OverridesPlace::File(named.path("set.toml")));
}

/// Overrides in memory are those of the text in force, and have a bound.
#[test]
fn overrides_can_be_in_memory() {
    let place = Place::new(&LIMITS.replace("set.toml", "memory"), "");
    let (origin, in_memory) = (place.path("weir.toml").as_path().into(), OverridesPlace::Memory { no_file: None });
    assert_eq!(place.load().unwrap().run_time.kept.place, in_memory);
    let kept = OverridesInForce { place: in_memory, text: Some("[clients]\n'192.0.2.7' = '40/s'\n".into()) };
    let config = config::load_after(&origin, Some(&kept)).unwrap();
    assert_eq!(config.run_time.overrides.len(), 1);
    let edit = |text: &str| OverrideEdit {
        limit: "clients".into(),
        key: text.into(),
        allowance: Some(json!("50/s")),
        replaces: false,
    };
    let in_force = ConfigInForce { overrides: kept.clone(), ..place.in_force() };
    let changed = config::change(&in_force, &[edit("192.0.2.8")], None).unwrap();
    assert_eq!(changed.config.run_time.overrides.len(), 2);
    assert_eq!(changed.config.run_time.kept.text.as_deref(), Some(&*changed.text));
    let long = OverridesInForce { text: Some("#".repeat(2 << 20).into()), ..kept };
    let in_force = ConfigInForce { overrides: long, ..in_force };
    let error = config::change(&in_force, &[edit("192.0.2.8")], None).unwrap_err().to_string();
    assert!(error.contains("longer than 2 MiB"), "{error}");
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 2, "the configuration and `set.toml`");
}

#[test]
fn edits_become_a_file() {
    let file = "# by hand\n[keys] # of shops\n# the first\nold = '9/s'\n[gone]\na = '1/s' # left\n\
        # moved\n[clients]\n# two\n'192.0.2.2' = { rate = '5/s', burst = 7 } # until May\n\
        # three\n'192.0.2.3' = '1/s' # ended\n[several.'2001:db8::2']\nrate = '5/s'\n# end\n";
    let place = Place::new(LIMITS, file);
    let changed = place
        .change(&[
            ("clients", "192.0.2.1", json!({ "rate": "5/s", "burst": 7 })),
            ("keys", "a \"b\"\n", json!("unlimited")),
            ("several", "::1", json!(["5/s", "50/h"])),
            ("keys", "old", Value::Null),
            ("keys", "none", Value::Null),
            ("none", "none", Value::Null),
            ("clients", "192.0.2.2", json!("6/s")),
            ("clients", "192.0.2.3", Value::Null),
            ("several", "2001:db8::2", json!("5/s")),
        ])
        .unwrap();
    let two = json!({ "rate": "5/s", "burst": 7 });
    let several = json!({ "rate": "5/s" });
    let before = [None, None, None, Some(json!("9/s")), None, None, Some(two), Some(json!("1/s")), Some(several)];
    assert_eq!(changed.before, before);
    insta::assert_snapshot!(changed.text, @r#"
    # Overrides set at run time. Weir adds, changes and removes overrides in this file, and keeps comments.
    # Edits by hand apply like those of the configuration.

    # by hand
    [keys] # of shops
    "a \"b\"\n" = "unlimited"
    [gone]
    a = '1/s' # left
    # moved
    [clients]
    # two
    '192.0.2.2' = "6/s" # until May
    "192.0.2.1" = { burst = 7, rate = "5/s" }

    [several]
    "2001:db8::2" = "5/s"
    "::1" = ["5/s", "50/h"]
    # end
    "#);
    assert_eq!(allowed(&changed.config, "clients")[0], ("192.0.2.2".to_owned(), Some(bucket(6, SECOND, 6)), true));
    assert_eq!(allowed(&changed.config, "keys"), [("a \"b\"\n".to_owned(), None, true)]);
    // What it read is what it would find.
    assert!(changed.config.sources.have_changed());
    fs::write(place.path("set.toml"), &changed.text).unwrap();
    assert!(!changed.config.sources.have_changed());
    let again = place.change(&[("keys", "a \"b\"\n", Value::Null), ("several", "::1", Value::Null)]).unwrap();
    assert_eq!(again.before, [Some(json!("unlimited")), Some(json!(["5/s", "50/h"]))]);
    assert!(!again.text.contains("unlimited") && again.text.contains("gone"), "{}", again.text);
}

#[test]
fn edits_that_do_not_fit() {
    let limits = LIMITS.replace("name = \"keys\"", "name = \"keys\"\non_full = \"sketch\"");
    let place = Place::new(&limits, "[clients]\n'2001:db8::1' = '5/s'\n[gone]\na = '1/s'\n");
    for (limit, text, to, why) in [
        ("clients", "::1", json!("5/fortnight"), "`limit.overrides.NAME`: unknown unit `fortnight`"),
        ("clients", "::1", json!("unlimitd"), "unlimited"),
        ("clients", "::1", json!(5), "expected rate, list of rates, factor, table, or `unlimited`"),
        ("clients", "::1", json!(1.5), "expected rate"),
        ("clients", "::1", json!(u64::MAX), "too large"),
        ("clients", "::1", json!([null]), "`null` stands alone"),
        ("clients", "::1", json!([]), "must not be empty"),
        ("clients", "::1", json!({ "max": 5 }), "`limit.overrides.NAME.max` belongs to `concurrency`"),
        ("clients", "::1", json!(["5/s", "9/h"]), "must be one rate"),
        ("clients", "hunter2", json!("5/s"), "this is not an address"),
        // Those of one network are one, which is the other way round in the order of the file.
        ("clients", "2001:db8::", json!("5/s"), "this key occurs twice"),
        ("keys", "hunter2", json!("5/s"), "`limit.on_full`: `sketch` needs a token bucket"),
        ("other", "a", json!("5/s"), "there is no limit `other`"),
    ] {
        let edits = [("clients", "192.0.2.9", json!("1/s")), (limit, text, to.clone())];
        match place.change(&edits).unwrap_err() {
            OverrideError::Invalid { index: at, reason: found } => {
                assert!(found.contains(why) && !found.contains("hunter2"), "{to}: {found}");
                assert!(at.is_none_or(|at| at == 1), "{to}: {at:?}");
            }
            other => panic!("{to}: {other:?}"),
        }
    }
    let of_keys = Place::new(LIMITS, "").change(&[("keys", "hunter2", json!("1/s"))]).unwrap_err();
    assert!(
        matches!(of_keys, OverrideError::Invalid { index: Some(0), reason: why } if why.contains("can never pass") && !why.contains("hunter2"))
    );
}

#[test]
fn there_is_an_end_to_what_is_said() {
    let many = |count: usize| (0..count).map(|at| format!("k{at} = '5/s'\n")).collect::<Vec<_>>().concat();
    let (count, said) = left_out(LIMITS, &format!("[clients]\n{}", many(16_000)));
    assert_eq!((count, said.matches("error: ").count()), (16_000, 20));
    assert!(said.ends_with("\n\nand 15980 more") && said.len() < 10_000, "{said}");
    for (count, is_all) in [(20, true), (21, false)] {
        let (_, said) = left_out(LIMITS, &format!("[clients]\n{}", many(count)));
        assert_eq!((said.matches("error: ").count(), said.contains("more")), (20, !is_all), "{said}");
    }
    let of_main = Place::new(&many(21), "").load().unwrap_err();
    assert!(of_main.len() == 21 && of_main.to_string().ends_with("\n\nand 1 more"), "{of_main}");
}

#[test]
fn there_is_an_end_to_looking_for_what_does_not_fit() {
    let many = (0..70_000).map(|at| format!("k{at} = '5/s'")).collect::<Vec<_>>().join("\n");
    let config = Place::new(LIMITS, &format!("[clients]\n'192.0.2.9' = '5/s'\n[keys]\n{many}")).load().unwrap();
    assert_eq!((config.run_time.rejected_count, allowed(&config, "clients").len()), (70_000, 3));
}

const SEVERAL: &str = r#"
admin.overrides = "set.toml"

[[limit]]
name = "windows"
key = ["ip"]
rate = ["10/s", "60/min"]
plans = { gold = "x10", flat = "20/s" }

[[limit]]
name = "burst"
key = ["ip"]
rate = "4/s"
burst = 9
cost = 2

[[limit]]
name = "flight"
key = ["ip"]
algorithm = "concurrency"
max = 5
"#;

/// A factor is of each window, of the burst and of `max`.
#[test]
fn factors_are_of_all_numbers_of_the_limit() {
    let place = Place::of(&format!("{SEVERAL}{UPSTREAM}"), "");
    let set = |limit: &str, to: &str| {
        let changed = place.change(&[(limit, "192.0.2.7", json!(to))]);
        changed.map(|changed| allowed(&changed.config, limit)[0].1.clone().unwrap())
    };
    let windows = |one, other| Algorithm::Several([bucket(one, SECOND, one), bucket(other, 60 * SECOND, other)].into());
    assert_eq!(set("windows", "x2").unwrap(), windows(20, 120));
    assert_eq!(set("windows", "x0.5").unwrap(), windows(5, 30));
    assert_eq!(set("burst", "x0.5").unwrap(), bucket(2, SECOND, 4));
    assert_eq!(set("flight", "x1.5").unwrap().capacity(), 7);
    let config = place.load().unwrap();
    let limit = config.policy.limits().iter().find(|limit| &*limit.name == "windows").unwrap();
    assert_eq!(limit.allowed.plans[0].1, Some(windows(100, 600)));
    for (limit, to, why) in [
        ("windows", "2x", "write it like \"x2\""),
        ("windows", "x10000000", "write it like \"x2\""),
        ("burst", "x0.2", "a cost of 2 can never pass"),
        ("flight", "x0.1", "no number of requests in flight"),
    ] {
        let error = set(limit, to).unwrap_err().to_string();
        assert!(error.contains(why), "{limit} {to}: {error}");
    }
}

/// A value that drops a window is refused unless the edit asks for that. Files from before apply as ever.
#[test]
fn windows_are_not_dropped_unasked() {
    let place = Place::of(&format!("{SEVERAL}{UPSTREAM}"), "[windows]\n'192.0.2.1' = '20/s'\n");
    let config = place.load().unwrap();
    assert_eq!((config.run_time.rejected_count, allowed(&config, "windows").len()), (0, 1));
    let warnings = config.warnings.to_string();
    assert!(
        warnings.contains("warning[dropped_window]: `limit.plans.NAME`: drops `60/min` of the limit"),
        "{warnings}"
    );
    assert!(warnings.contains("write `[\"20/s\", \"60/min\"]`, or a factor such as \"x2\""));
    for (to, why) in [
        (json!("20/s"), Some("drops `60/min` of the limit; write `[\"20/s\", \"60/min\"]`")),
        (json!({ "rate": "99/min" }), Some("write `[\"99/min\", \"10/s\"]`")),
        (json!(["1/s", "100/h"]), Some("drops `60/min`")),
        (json!({ "plan": "flat" }), Some("this plan drops `60/min` of the limit; `replace` (`--replace`) allows it")),
        (json!({ "plan": "gold" }), None),
        (json!(["20/s", "90/min"]), None),
        (json!(["20/1000ms", "90/60s"]), None),
        (json!("x2"), None),
        (json!("unlimited"), None),
        (Value::Null, None),
    ] {
        let edit = |replaces| OverrideEdit {
            limit: "windows".into(),
            key: "192.0.2.7".into(),
            allowance: Some(to.clone()).filter(|to| !to.is_null()),
            replaces,
        };
        let said = config::change(&place.in_force(), &[edit(false)], None).err().map(|error| error.to_string());
        assert_eq!(said.is_some(), why.is_some(), "{to}: {said:?}");
        assert!(why.is_none_or(|why| said.as_ref().unwrap().contains(why)), "{to}: {said:?}");
        config::change(&place.in_force(), &[edit(true)], None).unwrap();
    }
}

/// An override with an end applies until then. The next change removes what has ended.
#[test]
fn overrides_end() {
    let set = "[clients]\n# a reason\n'192.0.2.5' = { to = '5/s', until = '2020-01-01T00:00:00Z' }\n\
        '192.0.2.6' = { to = ['6/s'], until = '2200-01-01T00:00:00Z' }\n'192.0.2.8' = '8/s'\n";
    let place = Place::new(LIMITS, set);
    let run_time = place.load().unwrap().run_time;
    assert!(run_time.has_ended && run_time.rejected_count == 0);
    let shown: Vec<_> = run_time.overrides.iter().map(|one| (&*one.key, &one.allowance, one.until.is_some())).collect();
    assert_eq!(shown, [("192.0.2.6", &json!(["6/s"]), true), ("192.0.2.8", &json!("8/s"), false)]);
    let changed = place.change(&[("clients", "192.0.2.6", json!("7/s"))]).unwrap();
    let timed = |to: Value, until: &str| json!({ "to": to, "until": until });
    assert_eq!(changed.before, [Some(timed(json!(["6/s"]), "2200-01-01T00:00:00Z"))]);
    let [ended] = &*changed.ended else { panic!("{:?}", changed.ended) };
    assert_eq!(
        (&*ended.limit, &*ended.key, &ended.allowance),
        ("clients", "192.0.2.5", &timed(json!("5/s"), "2020-01-01T00:00:00Z"))
    );
    assert!(!changed.text.contains("192.0.2.5") && changed.text.contains("192.0.2.8"), "{}", changed.text);
    assert!(!changed.config.run_time.has_ended);
    for wrong in [
        "{ to = '5/s', until = 'soon' }",
        "{ until = '2200-01-01T00:00:00Z' }",
        "{ to = '5/s', until = 5 }",
        "{ rate = '5/s', until = '2200-01-01T00:00:00Z' }",
        "{ to = '5/s', until = '2200-01-01T00:00:00Z', rate = '1/s' }",
    ] {
        let (count, said) = left_out(LIMITS, &format!("[clients]\n'192.0.2.5' = {wrong}\n"));
        assert!(count == 1 && said.contains("an override with an end is written like"), "{wrong}: {said}");
    }
}

proptest! {
    #[test]
    fn no_text_stops_a_start(text in "(\\[clients\\]|\\[keys\\]|'192.0.2.1'|\"::1\"|'5/s'|rate|[\\[\\]{}=,.'\"#\n\r é1-])*") {
        let place = Place::new(LIMITS, "");
        fs::write(place.path("set.toml"), &text).unwrap();
        let config = place.load().unwrap();
        let said = config.run_time.problems.map(|problems| problems.to_string());
        prop_assert_eq!(said.is_some(), config.run_time.rejected_count > 0);
    }
}
