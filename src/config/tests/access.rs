//! What is wrong with `[access]` and `[plans]`, and what they become.

use super::*;
use crate::base::fields::FieldBuf;
use crate::engine::policy::PlanSource;
use crate::engine::policy::Principal;
use crate::engine::policy::access::{Access, AccessRule, DenialReason};
use crate::engine::policy::testing::facts;

#[test]
fn access_entries() {
    insta::assert_snapshot!(said(r#"[access]
deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
allow = { ip = ["203.0.113.7/32", "::ffff:198.51.100.0/120", 5], path = ["/a/{z}", "/a/{*z}"], paths = "/b" }"#), @r#"
    error: `access.deny.ip`: `198.51.100.1/24` has bits set beyond its prefix
     --> weir.toml:2:35
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                                   ^^^^^^^^^^^^^^^^^
      |
      = help: did you mean `198.51.100.0/24`?

    error: `access.deny.ip`: `lan` is neither an address nor a network
     --> weir.toml:2:54
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                                                      ^^^^^
      |
      = help: write it like "192.0.2.7" or "10.0.0.0/8"

    error: `access.deny.ip`: `198.51.100.0/24` occurs twice
     --> weir.toml:2:61
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                ----------------- first here                 ^^^^^^^^^^^^^^^^^

    error: `access.deny.path`: `internal`: a path pattern begins with `/`
     --> weir.toml:2:104
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                                                                                                        ^^^^^^^^^^
      |
      = help: did you mean `/internal`?

    error: `access.deny.path`: `/a/{y}` occurs twice
     --> weir.toml:2:126
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                                                                                                                    --------  ^^^^^^^^
      |                                                                                                                    |
      |                                                                                                                    first here

    error: `access.allow.ip`: `203.0.113.7/32` is both denied and allowed
     --> weir.toml:3:17
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                                                                                ------------- first here
    3 | allow = { ip = ["203.0.113.7/32", "::ffff:198.51.100.0/120", 5], path = ["/a/{z}", "/a/{*z}"], paths = "/b" }
      |                 ^^^^^^^^^^^^^^^^

    error: `access.allow.ip`: `198.51.100.0/24` is both denied and allowed
     --> weir.toml:3:35
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                ----------------- first here
    3 | allow = { ip = ["203.0.113.7/32", "::ffff:198.51.100.0/120", 5], path = ["/a/{z}", "/a/{*z}"], paths = "/b" }
      |                                   ^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `access.allow.ip`: expected non-empty list of strings (address or network) or of `{ file = "PATH" }`
     --> weir.toml:3:62
      |
    3 | allow = { ip = ["203.0.113.7/32", "::ffff:198.51.100.0/120", 5], path = ["/a/{z}", "/a/{*z}"], paths = "/b" }
      |                                                              ^ this is an integer

    error: `access.allow.path`: `/a/{z}` is both denied and allowed
     --> weir.toml:3:74
      |
    2 | deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
      |                                                                                                                    -------- first here
    3 | allow = { ip = ["203.0.113.7/32", "::ffff:198.51.100.0/120", 5], path = ["/a/{z}", "/a/{*z}"], paths = "/b" }
      |                                                                          ^^^^^^^^

    error: unknown key `paths` in `[access.allow]`
     --> weir.toml:3:96
      |
    3 | allow = { ip = ["203.0.113.7/32", "::ffff:198.51.100.0/120", 5], path = ["/a/{z}", "/a/{*z}"], paths = "/b" }
      |                                                                                                ^^^^^
      |
      = help: did you mean `path`?
    "#);
    insta::assert_snapshot!(said(r#"[access]
deny = { identity = { seler = ["1"], seller = ["hunter2", "hunter2", "", 7] } }
allow = { identity = { seller = ["hunter2"], ip = "hunter2", partner = [] } }
[identity.seller]
header = "x-seller"
[identity.partner]
header = "x-partner""#), @r#"
    error: `access.deny.identity.seler`: `seler` is not an identity
     --> weir.toml:2:23
      |
    2 | deny = { identity = { seler = [***], seller = [*********, *********, **, *] } }
      |                       ^^^^^
      |
      = help: did you mean `seller`?

    error: `access.deny.identity.seller`: this value occurs twice
     --> weir.toml:2:59
      |
    2 | deny = { identity = { seler = [***], seller = [*********, *********, **, *] } }
      |                                                ---------  ^^^^^^^^^
      |                                                |
      |                                                first here

    error: `access.deny.identity.seller`: must not be empty
     --> weir.toml:2:70
      |
    2 | deny = { identity = { seler = [***], seller = [*********, *********, **, *] } }
      |                                                                      ^^

    error: `access.deny.identity.seller`: expected non-empty list of strings (value) or of `{ file = "PATH" }`
     --> weir.toml:2:74
      |
    2 | deny = { identity = { seler = [***], seller = [*********, *********, **, *] } }
      |                                                                          ^ this is an integer

    error: `access.allow.identity.seller`: this value is both denied and allowed
     --> weir.toml:3:34
      |
    2 | deny = { identity = { seler = [***], seller = [*********, *********, **, *] } }
      |                                                --------- first here
    3 | allow = { identity = { seller = [*********], ip = *********, partner = [] } }
      |                                  ^^^^^^^^^

    error: `access.allow.identity.ip`: `ip` is not an identity
     --> weir.toml:3:46
      |
    3 | allow = { identity = { seller = [*********], ip = *********, partner = [] } }
      |                                              ^^
      |
      = help: there are seller, partner

    error: `access.allow.identity.partner`: an empty list has no effect; remove it
     --> weir.toml:3:72
      |
    3 | allow = { identity = { seller = [*********], ip = *********, partner = [] } }
      |                                                                        ^^
    "#);
    insta::assert_snapshot!(said(r#"[access]
deny = "192.0.2.1"
allow = { ip = [], identity = ["hunter2"] }
alow = { identity = { seller = "hunter2" } }
require = []"#), @r#"
    error: `access.deny`: expected table
     --> weir.toml:2:8
      |
    2 | deny = "192.0.2.1"
      |        ^^^^^^^^^^^ this is a string
      |
      = help: write `deny = { ip = ["192.0.2.7"] }`

    error: `access.allow.ip`: an empty list has no effect; remove it
     --> weir.toml:3:16
      |
    3 | allow = { ip = [], identity = [*********] }
      |                ^^

    error: `access.allow.identity`: expected table
     --> weir.toml:3:31
      |
    3 | allow = { ip = [], identity = [*********] }
      |                               ^^^^^^^^^^^ this is a list

    error: unknown key `alow` in `[access]`
     --> weir.toml:4:1
      |
    4 | alow = { identity = { seller = ********* } }
      | ^^^^
      |
      = help: did you mean `allow`?

    error: `access.require`: an empty list has no effect; remove it
     --> weir.toml:5:11
      |
    5 | require = []
      |           ^^
    "#);
    insta::assert_snapshot!(said(r#"[access]
deny = { identity = { seller = ["1"] } }"#), @r#"
    error: `access.deny.identity.seller`: `seller` is not an identity
     --> weir.toml:2:23
      |
    2 | deny = { identity = { seller = [***] } }
      |                       ^^^^^^
      |
      = help: there is no `[identity.NAME]`
    "#);
    insta::assert_snapshot!(said(r#"[access.deny]
identity = { api_key = ["hunter2", "broken }
ip = "192.0.2.1""#), @r#"
    error: not valid TOML: invalid basic string, expected `"`
     --> weir.toml:2:45
      |
    2 | identity = { ******* = [*********, *********
      |                                             ^

    error: not valid TOML: missing comma between array elements, expected `,`
     --> weir.toml:3:1
      |
    3 | ** = ***********
      | ^

    error: not valid TOML: missing comma between array elements, expected `,`
     --> weir.toml:4:1
      |
    4 | [********]
      | ^

    error: not valid TOML: missing comma between array elements, expected `,`
     --> weir.toml:5:1
      |
    5 | *** = ***********************
      | ^
    "#);
}

#[test]
fn access_requirements() {
    insta::assert_snapshot!(said(r#"[access]
require = [{ path = "/pro/{*rest}", plan = "premium" }, { path = "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans = "b" }]
[plans]
from = "header:x-plan""#), @r#"
    error: this entry requires nothing
     --> weir.toml:2:57
      |
    2 | require = [{ path = "/pro/{*rest}", plan = "premium" }, { path = "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans =...
      |                                                         ^^^^^^^^^^^^^^^
      |
      = help: name identities or plans, as in `identity = ["seller"]`

    error: `access.require.plan`: must not be empty
     --> weir.toml:2:84
      |
    2 | require = [{ path = "/pro/{*rest}", plan = "premium" }, { path = "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans =...
      |                                                                                    ^^

    error: `access.require`: expected table
     --> weir.toml:2:91
      |
    2 | require = [{ path = "/pro/{*rest}", plan = "premium" }, { path = "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans =...
      |                                                                                           ^ this is an integer

    error: `access.require.path`: `y`: a path pattern begins with `/`
     --> weir.toml:2:103
      |
    2 | require = [{ path = "/pro/{*rest}", plan = "premium" }, { path = "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans =...
      |                                                                                                       ^^^
      |
      = help: did you mean `/y`?

    error: `access.require.plan`: `a` occurs twice
     --> weir.toml:2:121
      |
    2 | require = [{ path = "/pro/{*rest}", plan = "premium" }, { path = "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans =...
      |                                                                                                                    ---  ^^^
      |                                                                                                                    |
      |                                                                                                                    first here

    error: unknown key `plans` in `[access.require]`
     --> weir.toml:2:127
      |
    2 | ... "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans = "b" }]
      |                                                                  ^^^^^
      |
      = help: did you mean `plan`?
    "#);
    insta::assert_snapshot!(said(r#"[access]
require = [{ path = "/pro", plan = "premium" }]"#), @r#"
    error: `access.require.plan` needs `[plans]`, or a limit with `plans`
     --> weir.toml:2:12
      |
    2 | require = [{ path = "/pro", plan = "premium" }]
      |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: without them no request has a plan; set the source of plans, as in `[plans] from = "seller.plan"`
    "#);
    insta::assert_snapshot!(said(r#"[access]
require = { path = "/pro", plan = "premium" }
[plan]
from = "header:x-plan""#), @r#"
    error: `access.require`: expected list of tables, as in `[[access.require]]`
     --> weir.toml:2:11
      |
    2 | require = { path = "/pro", plan = "premium" }
      |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ this is a table

    error: unknown key `plan` in the file
     --> weir.toml:3:2
      |
    3 | [plan]
      |  ^^^^
      |
      = help: did you mean `plans`?
    "#);
}

#[test]
fn where_plans_are() {
    insta::assert_snapshot!(said(r#"[plans]"#), @r#"
    error: `plans.from` is missing
     --> weir.toml:1:1
      |
    1 | [plans]
      | ^^^^^^^
      |
      = help: expected string (`IDENTITY.CLAIM` or `header:NAME`). Source of the plan's name: another claim of the token of an identity, `IDENTITY.plan` of API keys, or a header.
    "#);
    insta::assert_snapshot!(said(r#"[plans]
from = "plan""#), @r#"
    error: `plans.from`: `plan` is neither a claim nor a header
     --> weir.toml:2:8
      |
    2 | from = "plan"
      |        ^^^^^^
      |
      = help: write it like "seller.plan", for the claim `plan` of the identity `seller`, or "header:x-plan"
    "#);
    insta::assert_snapshot!(said(r#"[plans]
from = "seller.""#), @r#"
    error: `plans.from`: `seller.` is neither a claim nor a header
     --> weir.toml:2:8
      |
    2 | from = "seller."
      |        ^^^^^^^^^
      |
      = help: write it like "seller.plan", for the claim `plan` of the identity `seller`, or "header:x-plan"
    "#);
    insta::assert_snapshot!(said(r#"[plans]
from = "seler.plan"
[identity.seller]
header = "x-seller""#), @r#"
    error: `plans.from`: `seler` is not an identity
     --> weir.toml:2:8
      |
    2 | from = "seler.plan"
      |        ^^^^^^^^^^^^
      |
      = help: did you mean `seller.plan`?
    "#);
    insta::assert_snapshot!(said(r#"[plans]
from = "seller.plan"
[identity.seller]
header = "x-seller""#), @r#"
    error: `plans.from`: `seller` is a header, and headers have no claims
     --> weir.toml:2:8
      |
    2 | from = "seller.plan"
      |        ^^^^^^^^^^^^^
      |
      = help: take the plan from an identity with `jwt`, or from a header of its own: "header:x-plan"
    "#);
    insta::assert_snapshot!(said(r#"[plans]
from = "nobody.plan""#), @r#"
    error: `plans.from`: `nobody` is not an identity
     --> weir.toml:2:8
      |
    2 | from = "nobody.plan"
      |        ^^^^^^^^^^^^^
      |
      = help: there is no `[identity.NAME]`
    "#);
    insta::assert_snapshot!(said(r#"[plans]
from = "header:x plan"
premium = {}"#), @r#"
    error: `plans.from`: `x plan` is not a header name
     --> weir.toml:2:8
      |
    2 | from = "header:x plan"
      |        ^^^^^^^^^^^^^^^

    error: unknown key `premium` in `[plans]`
     --> weir.toml:3:1
      |
    3 | premium = {}
      | ^^^^^^^
      |
      = help: `[plans]` can have from
    "#);
}

const SELLER: &str = "[identity.seller.jwt]\nclaim = \"sub\"\nalgorithms = [\"HS256\"]\n\
    keys = [{ secret = { env = \"WEIR_JWT_SECRET\" } }]\n";

#[test]
fn what_is_not_written_is_not_there() {
    let policy = compile(UPSTREAM).unwrap().policy;
    assert!(policy.access.is_none() && policy.plans.is_none());
}

#[test]
fn plans_come_from_where_it_says() {
    for (from, source) in [
        ("header:X-Plan", PlanSource::Header(http::HeaderName::from_static("x-plan"))),
        ("seller.plan", PlanSource::Claim(1)),
        ("seller.https://a.example/plan", PlanSource::Claim(1)),
    ] {
        let other = "[identity.other]\nheader = \"x-other\"\n";
        let policy = compile(&format!("{UPSTREAM}{other}{SELLER}[plans]\nfrom = \"{from}\"")).unwrap().policy;
        assert_eq!(policy.plans, Some(source), "{from}");
    }
}

#[test]
fn access_becomes_what_it_says() {
    let text = r#"
        [access]
        deny = { ip = ["198.51.100.0/24", "2001:db8::/32"], path = "/internal/{*rest}", identity = { seller = "13" } }
        [access.allow]
        ip = ["198.51.100.7"]
        path = ["/internal/health"]
        identity.seller = ["7", "8"]
        [[access.require]]
        path = ["/pro/{*rest}", "/reports"]
        plan = ["premium", "internal"]
        [plans]
        from = "seller.plan""#;
    let policy = compile(&format!("{UPSTREAM}{SELLER}{text}")).unwrap().policy;
    let access: &Access = policy.access.as_deref().unwrap();
    for (ip, path, expected) in [
        ("198.51.100.1", "/", Err(DenialReason::Address)),
        ("198.51.100.7", "/", Ok(true)),
        ("2001:db8::1", "/", Err(DenialReason::Address)),
        ("192.0.2.1", "/", Ok(false)),
        ("192.0.2.1", "/internal/x", Err(DenialReason::Path)),
        ("192.0.2.1", "/internal/health", Ok(true)),
    ] {
        assert_eq!(access.on_arrival(ip.parse().unwrap(), path), expected, "{ip} {path}");
    }
    for (value, rule) in
        [("13", Some(AccessRule::Deny)), ("7", Some(AccessRule::Allow)), ("8", Some(AccessRule::Allow)), ("9", None)]
    {
        assert_eq!(access.by_identity(0, &Principal::Claim(value.into())), rule, "{value}");
    }
    let none = FieldBuf::default();
    let plans = |path: &str| -> Vec<_> {
        access.required(&facts("a", path, &none)).iter().map(|one| one.plans.clone()).collect()
    };
    for path in ["/pro/x", "/reports"] {
        assert_eq!(plans(path), [[Box::<str>::from("premium"), "internal".into()]]);
    }
    assert!(plans("/pro").is_empty());
}
