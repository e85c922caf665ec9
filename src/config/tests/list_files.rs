//! Files that list networks and values, and what is wrong with them.

use super::*;
use crate::base::fields::FieldBuf;
use crate::engine::policy::access::{AccessRule, DenialReason};
use crate::engine::policy::testing::facts;
use crate::engine::policy::{Facts, Match, Principal};

/// Compiles `text` beside these files.
fn beside(files: &[(&str, &str)], text: &str) -> Result<Config, Diagnostics> {
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in files {
        std::fs::write(folder.path().join(name), rows).unwrap();
    }
    super::super::compile(&format!("{text}\n{UPSTREAM}"), "weir.toml", folder.path(), &|_| None)
}

/// A limit with these conditions.
fn limit(rest: &str) -> String {
    format!("[[limit]]\nname = 'a'\nkey = ['ip']\nrate = '1/s'\n{rest}\n")
}

#[test]
fn rows_are_entries() {
    let rows = "\u{feff}# The office.\n\n192.0.2.0/24\r\n  2001:db8::/32 # all\n10.0.0.0/8\t# private\n10.0.0.0/8\n10.1.0.0/16\n";
    let text = limit(
        "match = { ip = [{ file = 'office' }, '203.0.113.7', '10.0.0.0/8'], header = { x-key = { file = 'keys' } } }\n\
         except.ip = { file = 'office' }",
    );
    let config = beside(&[("office", rows), ("keys", "gold#1\nsilver # old\n")], &text).unwrap();
    let limit = &config.policy.limits()[0];
    let shown: Vec<_> = limit.matches.networks.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "192.0.2.0/24", "203.0.113.7/32", "2001:db8::/32"]);
    assert_eq!(limit.except.networks.iter().len(), 3);
    let matches = Match { networks: Networks::default(), ..limit.matches.clone() };
    for (values, fits) in [
        (&["gold#1"][..], true),
        (&[" silver "], true),
        (&["iron", "silver"], true),
        (&["gold"], false),
        (&["silver # old"], false),
        (&[], false),
    ] {
        let headers: FieldBuf = values.iter().map(|value| ("x-key", value)).collect();
        assert_eq!(matches.fits(&Facts { ..facts("a", "/", &headers) }), fits, "{values:?}");
    }
}

#[test]
fn access_lists_read_files() {
    let files =
        [("bad", "198.51.100.0/24\n198.51.100.7\n198.51.100.7\n"), ("good", ""), ("sellers", "13 # fraud\n14\n")];
    let text = "[identity.seller]\nheader = 'x-seller'\non_missing = 'ip'\n[access]\n\
        deny = { ip = [{ file = 'bad' }, '198.51.100.7'], identity = { seller = { file = 'sellers' } } }\n\
        allow = { ip = { file = 'good' } }\n";
    let access = beside(&files, text).unwrap().policy.access.unwrap();
    assert_eq!(access.on_arrival("198.51.100.9".parse().unwrap(), "/"), Err(DenialReason::Address));
    assert_eq!(access.on_arrival("198.51.101.9".parse().unwrap(), "/"), Ok(false));
    assert_eq!(access.by_identity(0, &Principal::Bytes(b"14")), Some(AccessRule::Deny));
    assert_eq!(access.by_identity(0, &Principal::Bytes(b"15")), None);
}

#[test]
fn what_is_wrong_with_files() {
    let files = [("lan", "10.0.0.0/8\nlan\n10.0.0.1/8 # bits\n"), ("empty", "# none\n"), ("both", "192.0.2.7\n")];
    let text =
        "[access]\ndeny.ip = { file = 'both' }\nallow.ip = [{ file = 'both' }, { file = 'none' }, { path = 'x' }]\n"
            .to_owned()
            + &limit(
                "match = { ip = { file = 'lan' }, header = { a = {}, b = { file = 'empty' }, c = { file = 'x', regex = 'x' } } }",
            )
            + &limit("match.ip = { file = 'empty' }\nexcept.path = { file = 'both' }").replace("'a'", "'b'");
    let said = beside(&files, &text).unwrap_err().to_string();
    let errors: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    let none = errors.iter().position(|error| error.contains("cannot read")).unwrap();
    assert!(
        errors[none].starts_with("`access.allow.ip`: cannot read `") && errors[none].contains("/none`: "),
        "{said}"
    );
    insta::assert_snapshot!([&errors[..none], &errors[none + 1..]].concat().join("\n"), @r#"
    `access.allow.ip`: `192.0.2.7/32` is both denied and allowed
    `access.allow.ip`: expected non-empty list of strings (address or network) or of `{ file = "PATH" }`
    `limit.match.ip`: `lan`, line 2: neither an address nor a network
    `limit.match.ip`: `lan`, line 3: a network with bits set beyond its prefix
    `limit.match.header`: needs either `regex` or `file`
    `limit.match.header.NAME.file`: the file has no row, so no request would match
    `limit.match.header`: needs either `regex` or `file`
    `limit.match.ip`: the file has no row, so every client would match
    `limit.except.path`: expected non-empty list of strings (path pattern)
    "#);
}

/// Operators may check a configuration that names any file.
#[test]
fn messages_have_no_text_of_files() {
    let files =
        [("private", "hunter2\nhunter2=\n10.0.0.0/hunter2\n203.0.113.7 hunter2\n"), ("control", "hunter2\u{1}\n")];
    let a_service = "[upstreams.a]\nurl = 'http://127.0.0.1:1'\n[[route]]\nupstream = 'a'\n";
    for text in [
        "[access]\ndeny.ip = { file = 'private' }".to_owned(),
        "[access]\nallow.ip = [{ file = 'private' }]".to_owned(),
        limit("match.ip = { file = 'private' }"),
        limit("except.ip = { file = 'private' }"),
        limit("match.header.a = { file = 'control' }"),
        format!("{a_service}match.ip = {{ file = 'private' }}"),
    ] {
        let said = beside(&files, &text).unwrap_err();
        assert!(said.to_string().contains("line 1: ") && !format!("{said:?}").contains("hunter2"), "{text}: {said}");
    }
}

/// Many rows compile in time, and each lookup is a search.
#[test]
fn a_hundred_thousand_rows() {
    let networks: Vec<_> =
        (0..100_000_u32).map(|n| format!("{}/28\n", std::net::Ipv4Addr::from_bits(0x0B00_0000 | n << 5))).collect();
    let keys: Vec<_> = (0..100_000).map(|n| format!("key-{n}\n")).collect();
    let text = "[access]\ndeny.ip = { file = 'networks' }\n".to_owned()
        + &limit("match = { ip = { file = 'networks' }, header = { x-key = { file = 'keys' } } }")
        + &limit("except.ip = { file = 'networks' }").replace("'a'", "'b'");
    let config = beside(&[("networks", &networks.concat()), ("keys", &keys.concat())], &text).unwrap();
    let matches = &config.policy.limits()[0].matches;
    assert_eq!(matches.networks.iter().len(), 100_000);
    for (ip, is_in) in [("11.0.0.15", true), ("11.0.0.16", false), ("11.48.211.224", true), ("11.48.212.0", false)] {
        assert_eq!(matches.networks.find(ip.parse().unwrap()).is_some(), is_in, "{ip}");
    }
}
