//! What is wrong with `[access]` and `[plans]`, and what they become.

use super::*;
use crate::base::fields::FieldBuf;
use crate::engine::policy::PlanSource;
use crate::engine::policy::Principal;
use crate::engine::policy::access::{Access, AccessRule, DenialReason};
use crate::engine::policy::testing::facts;

#[test]
fn access_entries() {
    insta::assert_snapshot!(brief(r#"[access]
deny = { ip = ["198.51.100.0/24", "198.51.100.1/24", "lan", "198.51.100.0/24", "203.0.113.7"], path = ["internal", "/a/{x}", "/a/{y}"] }
allow = { ip = ["203.0.113.7/32", "::ffff:198.51.100.0/120", 5], path = ["/a/{z}", "/a/{*z}"], paths = "/b" }"#), @r#"
    2:35 «"198.51.100.1/24"» `access.deny.ip`: `198.51.100.1/24` has bits set beyond its prefix
      = did you mean `198.51.100.0/24`?
    2:54 «"lan"» `access.deny.ip`: `lan` is neither an address nor a network
      = write it like "192.0.2.7" or "10.0.0.0/8"
    2:61 «"198.51.100.0/24"» `access.deny.ip`: `198.51.100.0/24` occurs twice [also 2:16 «"198.51.100.0/24"» first here]
    2:104 «"internal"» `access.deny.path`: `internal`: a path pattern begins with `/`
      = did you mean `/internal`?
    2:126 «"/a/{y}"» `access.deny.path`: `/a/{y}` occurs twice [also 2:116 «"/a/{x}"» first here]
    3:17 «"203.0.113.7/32"» `access.allow.ip`: `203.0.113.7/32` is both denied and allowed [also 2:80 «"203.0.113.7"» first here]
    3:35 «"::ffff:198.51.100.0/120"» `access.allow.ip`: `198.51.100.0/24` is both denied and allowed [also 2:16 «"198.51.100.0/24"» first here]
    3:62 «5» `access.allow.ip`: expected non-empty list of strings (address or network) or of `{ file = "PATH" }` [this is an integer]
    3:74 «"/a/{z}"» `access.allow.path`: `/a/{z}` is both denied and allowed [also 2:116 «"/a/{x}"» first here]
    3:96 «paths» unknown key `paths` in `[access.allow]`
      = did you mean `path`?
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
    insta::assert_snapshot!(brief(r#"[access]
require = [{ path = "/pro/{*rest}", plan = "premium" }, { path = "/x" }, { plan = [""] }, 5, { path = "y", plan = ["a", "a"], plans = "b" }]
[plans]
from = "header:x-plan""#), @r#"
    2:57 «{ path = "/x" }» this entry requires nothing
      = name identities or plans, as in `identity = ["seller"]`
    2:84 «""» `access.require.plan`: must not be empty
    2:91 «5» `access.require`: expected table [this is an integer]
    2:103 «"y"» `access.require.path`: `y`: a path pattern begins with `/`
      = did you mean `/y`?
    2:121 «"a"» `access.require.plan`: `a` occurs twice [also 2:116 «"a"» first here]
    2:127 «plans» unknown key `plans` in `[access.require]`
      = did you mean `plan`?
    "#);
    insta::assert_snapshot!(brief(r#"[access]
require = [{ path = "/pro", plan = "premium" }]"#), @r#"
    2:12 «{ path = "/pro", plan = "premium" }» `access.require.plan` needs `[plans]`, or a limit with `plans`
      = without them no request has a plan; set the source of plans, as in `[plans] from = "seller.plan"`
    "#);
    insta::assert_snapshot!(brief(r#"[access]
require = { path = "/pro", plan = "premium" }
[plan]
from = "header:x-plan""#), @r#"
    2:11 «{ path = "/pro", plan = "premium" }» `access.require`: expected list of tables, as in `[[access.require]]` [this is a table]
    3:2 «plan» unknown key `plan` in the file
      = did you mean `plans`?
    "#);
}

#[test]
fn where_plans_are() {
    insta::assert_snapshot!(brief(r#"[plans]"#), @r"
    1:1 «[plans]» `plans.from` is missing
      = expected string (`IDENTITY.CLAIM` or `header:NAME`). Source of the plan's name: another claim of the token of an identity, `IDENTITY.plan` of API keys, or a header.
    ");
    insta::assert_snapshot!(brief(r#"[plans]
from = "plan""#), @r#"
    2:8 «"plan"» `plans.from`: `plan` is neither a claim nor a header
      = write it like "seller.plan", for the claim `plan` of the identity `seller`, or "header:x-plan"
    "#);
    insta::assert_snapshot!(brief(r#"[plans]
from = "seller.""#), @r#"
    2:8 «"seller."» `plans.from`: `seller.` is neither a claim nor a header
      = write it like "seller.plan", for the claim `plan` of the identity `seller`, or "header:x-plan"
    "#);
    insta::assert_snapshot!(brief(r#"[plans]
from = "seler.plan"
[identity.seller]
header = "x-seller""#), @r#"
    2:8 «"seler.plan"» `plans.from`: `seler` is not an identity
      = did you mean `seller.plan`?
    "#);
    insta::assert_snapshot!(brief(r#"[plans]
from = "seller.plan"
[identity.seller]
header = "x-seller""#), @r#"
    2:8 «"seller.plan"» `plans.from`: `seller` is a header, and headers have no claims
      = take the plan from an identity with `jwt`, or from a header of its own: "header:x-plan"
    "#);
    insta::assert_snapshot!(brief(r#"[plans]
from = "nobody.plan""#), @r#"
    2:8 «"nobody.plan"» `plans.from`: `nobody` is not an identity
      = there is no `[identity.NAME]`
    "#);
    insta::assert_snapshot!(brief(r#"[plans]
from = "header:x plan"
premium = {}"#), @r#"
    2:8 «"header:x plan"» `plans.from`: `x plan` is not a header name
    3:1 «premium» unknown key `premium` in `[plans]`
      = `[plans]` can have from
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
