//! `[identity]`, and the files that it names.

use super::*;

/// A credential stays masked, and a claim is never masked.
#[test]
fn values_are_shown_whole_by_choice() {
    for (source, show, fault) in [
        ("header = 'x-a'", "plain", None),
        ("header = 'x-a'", "masked", None),
        ("header = 'Authorization'", "masked", None),
        ("header = 'Authorization'", "plain", Some("this header has credentials")),
        ("header = 'proxy-authorization'", "plain", Some("this header has credentials")),
        ("header = 'cookie'", "plain", Some("this header has credentials")),
        (
            "jwt = { claim = 's', algorithms = ['ES256'], keys = [{ jwks_url = 'https://a/b' }] }",
            "plain",
            Some("the claims of tokens are always shown whole"),
        ),
        ("header = 'x-a'", "all", Some("`all` is not one of `masked`, `plain`")),
    ] {
        let compiled = compile(&format!("[identity.a]\n{source}\nshow = '{show}'\n{UPSTREAM}"));
        let problems = compiled.err().map(|problems| problems.to_string());
        let expected = fault.map(|fault| format!("`identity.NAME.show`: {fault}"));
        let is_as_expected = match (&problems, &expected) {
            (Some(problems), Some(expected)) => problems.contains(&**expected),
            (problems, expected) => problems.is_none() && expected.is_none(),
        };
        assert!(is_as_expected, "{source} {show}: {problems:?}");
    }
}

#[test]
fn identities() {
    insta::assert_snapshot!(brief(r#"[identity.ip]
header = "x-a"
[identity.Shop]
header = "x a""#), @r#"
    1:11 «ip» `ip` is a built-in part of keys; choose another name for the identity
    3:11 «Shop» `Shop` is not a valid identity name: use only `a-z 0-9 _ -`
    4:10 «"x a"» `identity.NAME.header`: `x a` is not a header name
    "#);
    insta::assert_snapshot!(brief(r#"[identity.a]
header = "x-a"
jwt = {}
[identity.b]
on_missing = "rejct""#), @r#"
    1:11 «a» identity `a` has both `header` and `jwt`
      = an identity needs exactly one of them
    4:11 «b» identity `b` has none of `header`, `tls`, `jwt` and `api_keys`
      = an identity needs exactly one of them
    5:14 «"rejct"» `identity.NAME.on_missing`: `rejct` is not one of `reject`, `anonymous`, `ip`
      = did you mean `reject`?
    "#);
    insta::assert_snapshot!(brief(r#"[identity.a]
jwt = { claim = "sub", algorithms = ["HS265"], keys = [] }"#), @r#"
    2:38 «"HS265"» `identity.NAME.jwt.algorithms`: `HS265` is not one of `HS256`, `RS256`, `ES256`, `EdDSA`
      = did you mean `HS256`?
    2:55 «[]» `identity.NAME.jwt.keys`: Weir needs at least one key to verify tokens
    "#);
    insta::assert_snapshot!(said(r#"[identity.a]
jwt = { claim = "", algorithms = [], keys = "k" }"#), @r#"
    error: `identity.NAME.jwt.claim`: must not be empty
     --> weir.toml:2:17
      |
    2 | jwt = { claim = "", algorithms = [], keys = *** }
      |                 ^^

    error: `identity.NAME.jwt.algorithms`: must not be empty
     --> weir.toml:2:34
      |
    2 | jwt = { claim = "", algorithms = [], keys = *** }
      |                                  ^^

    error: `identity.NAME.jwt.keys`: expected list of tables, as in `[[identity.NAME.jwt.keys]]`
     --> weir.toml:2:45
      |
    2 | jwt = { claim = "", algorithms = [], keys = *** }
      |                                             ^^^ this is a string
    "#);
    insta::assert_snapshot!(said(r#"[identity.a.jwt]
claim = "sub"
algorithms = ["HS256"]
keys = [
  { secret = "hunter2" },
  { secret = { env = "SHORT" } },
  { secret = { env = "UNSET" } },
  { secret = { env = "EMPTY" } },
  { secret = { env = "hunter2!" } },
  { secret = {} },
  { secret = { file = "none" } },
  { jwks = "none.json" },
  { jwks = "{hunter2}" },
  { jwks = "keys/sellers.jwks.json", pem = "keys/sellers.pem" },
  { jwk = "hunter2" },
]"#), @r#"
    error: a secret must not be written into the configuration
     --> weir.toml:5:14
      |
    5 |   { secret = ********* },
      |              ^^^^^^^^^
      |
      = help: use `{ env = "NAME" }` or `{ file = "path" }`

    error: this secret has 7 bytes; HS256 needs at least 32
     --> weir.toml:6:22
      |
    6 |   { secret = { env = "SHORT" } },
      |                      ^^^^^^^

    error: `identity.NAME.jwt.keys.secret.env`: this environment variable is not set, or not UTF-8
     --> weir.toml:7:22
      |
    7 |   { secret = { env = "UNSET" } },
      |                      ^^^^^^^

    error: this secret is empty
     --> weir.toml:8:22
      |
    8 |   { secret = { env = "EMPTY" } },
      |                      ^^^^^^^

    error: `identity.NAME.jwt.keys.secret.env`: is not the name of an environment variable
     --> weir.toml:9:22
      |
    9 |   { secret = { env = ********** } },
      |                      ^^^^^^^^^^
      |
      = help: a name has only letters, digits and `_`

    error: a secret is exactly one of `env` and `file`
      --> weir.toml:10:14
       |
    10 |   { secret = {} },
       |              ^^

    error: `identity.NAME.jwt.keys.secret.file`: cannot read `config/none`: No such file or directory (os error 2)
      --> weir.toml:11:23
       |
    11 |   { secret = { file = "none" } },
       |                       ^^^^^^

    error: `identity.NAME.jwt.keys.jwks`: cannot read `config/none.json`: No such file or directory (os error 2)
      --> weir.toml:12:12
       |
    12 |   { jwks = "none.json" },
       |            ^^^^^^^^^^^

    error: `identity.NAME.jwt.keys.jwks`: must be the name of a file, not its content
      --> weir.toml:13:12
       |
    13 |   { jwks = *********** },
       |            ^^^^^^^^^^^

    error: a key is exactly one of `jwks`, `jwks_url`, `pem` and `secret`
      --> weir.toml:14:3
       |
    14 |   { jwks = "keys/sellers.jwks.json", pem = "keys/sellers.pem" },
       |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: a key is exactly one of `jwks`, `jwks_url`, `pem` and `secret`
      --> weir.toml:15:3
       |
    15 |   { jwk = ********* },
       |   ^^^^^^^^^^^^^^^^^^^

    error: unknown key `jwk` in `[identity.NAME.jwt.keys]`
      --> weir.toml:15:5
       |
    15 |   { jwk = ********* },
       |     ^^^
       |
       = help: did you mean `jwks`?
    "#);
}

#[test]
fn a_file_that_cannot_be_read() {
    let problems = crate::config::load(&Path::new("config/none.toml").into()).unwrap_err();
    insta::assert_snapshot!(problems, @r#"error: cannot read `config/none.toml`: No such file or directory (os error 2)"#);
    assert_eq!(problems.len(), 1);
}

#[test]
fn a_file_that_is_no_key() {
    let keys = "{ jwks = 'keys/sellers.jwks.json' }, { jwks = 'minimal.toml' }";
    let text = format!("{UPSTREAM}[identity.a]\njwt = {{ claim = 'sub', algorithms = ['RS256'], keys = [{keys}] }}");
    let problems = compile(&text).unwrap_err();
    assert!(problems.iter().all(|title| title.starts_with("`identity.NAME.jwt.keys`: ")), "{problems}");
    assert!(problems.to_string().contains("weir.toml:4:93"), "{problems}");
}

#[test]
fn a_file_by_its_path() {
    let path = Path::new("config/minimal.toml");
    let overrides = Path::new("config/minimal.overrides.toml");
    assert_eq!(crate::config::load(&path.into()).unwrap().sources.paths().collect::<Vec<_>>(), [path, overrides]);
}

/// What is said about API keys, for each text of their identity and of their file.
#[test]
fn api_keys() {
    const LIMIT: &str = "[[limit]]\nname = 'l'\nkey = ['partner']\nrate = '1/s'\nplans = { premium = '2/s' }\n";
    let folder = tempfile::tempdir().unwrap();
    let said = |text: &str, file: &str| {
        std::fs::write(folder.path().join("keys.toml"), file).unwrap();
        let text = format!("{text}\n{LIMIT}{UPSTREAM}");
        let compiled = super::super::compile(&text, "weir.toml", folder.path(), &|_| None);
        compiled.map_or_else(|problems| problems.to_string(), |config| config.warnings.to_string())
    };
    let with = "[plans]\nfrom = 'partner.plan'\n[identity.partner]\n";
    for (text, file, expected) in [
        ("api_keys = { file = 'keys.toml' }", "", ""),
        ("api_keys = { file = 'keys.toml', header = 'Authorization', forward = true }", "[ACME]\nplan = 'premium'", ""),
        ("api_keys = { file = 'keys.toml' }\non_missing = 'ip'", "[ACME]", ""),
        ("api_keys = { }", "", "`identity.NAME.api_keys.file` is missing"),
        ("api_keys = { file = 'none.toml' }", "", "none.toml`: No such file"),
        ("api_keys = { file = 'none.toml' }", "", "`weir apikeys new --name NAME` makes the file with a first key"),
        ("api_keys = { file = 'keys.toml' }", "[ACME", "file`: `keys.toml` is not valid TOML at line 1"),
        ("api_keys = { file = 'keys.toml' }", "{}", "`keys.toml` is JSON"),
        ("api_keys = { file = 'keys.toml', header = 'x y' }", "", "header`: `x y` is not a header name"),
        ("api_keys = { file = 'keys.toml', header = 'host' }", "", "the field `host` may contain another"),
        ("api_keys = { file = 'keys.toml', key = 'weir_1' }", "", "unknown key `key` in `[identity.NAME.api_keys]`"),
        (
            "api_keys = { file = 'keys.toml' }\nheader = 'x-a'",
            "",
            "identity `partner` has both `header` and `api_keys`",
        ),
        (
            "api_keys = { file = 'keys.toml' }\nseveral = 'first'",
            "",
            "only a `header` without `jwt` may occur several times",
        ),
        ("api_keys = { file = 'keys.toml' }\nshow = 'plain'", "", "the names of API keys are always shown whole"),
        (
            "api_keys = { file = 'keys.toml' }",
            "[ACME]\nplan = 'gold'",
            "warning[unknown_plan]: no limit has the plan `gold` of the API key of `ACME`",
        ),
    ] {
        let said = said(&format!("{with}{text}"), file);
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{text} {file}: {said}");
        assert!(!said.contains("weir_1"), "{said}");
    }
    let without = "[identity.partner]\napi_keys.file = 'keys.toml'\n";
    for (text, file, expected) in [
        (without.to_owned(), "[ACME]\nplan = 'premium'", "the plans of the API keys of `partner` apply to nothing"),
        (
            format!("{without}[plans]\nfrom = 'partner.tier'"),
            "",
            "`partner` has API keys, whose plan is `partner.plan`",
        ),
    ] {
        let said = said(&text, file);
        assert!(said.contains(expected), "{text}: {said}");
    }
}
