//! `[admin]` beyond this machine.

use super::{UPSTREAM, brief, compile, said};
use crate::admin::Role;

#[test]
fn what_may_be_reached_from_where() {
    let token = "token = { env = 'WEIR_JWT_SECRET' }";
    let rows = [
        ("", true),
        ("listen = '127.0.0.2:9'", true),
        ("listen = '[::1]:9'", true),
        ("listen = '[::ffff:127.0.0.1]:9'", true),
        ("listen = 'off'", true),
        ("insecure = true", true),
        ("listen = '0.0.0.0:9'", false),
        ("listen = '[::]:9'", false),
        ("listen = '[::ffff:10.0.0.1]:9'", false),
        ("listen = '10.0.0.1:9'\ninsecure = true", false),
        ("listen = '10.0.0.1:9'\ntoken = { env = 'WEIR_JWT_SECRET' }", false),
        ("listen = '10.0.0.1:9'\ninsecure = true\ntoken = { env = 'WEIR_JWT_SECRET' }", true),
    ];
    for (lines, is_right) in rows {
        let compiled = compile(&format!("{UPSTREAM}[admin]\n{lines}\n"));
        assert_eq!(compiled.is_ok(), is_right, "{lines}: {:?}", compiled.err());
    }
    let config = compile(&format!("{UPSTREAM}[admin]\n{token}\n")).unwrap();
    assert!(config.admin.tokens.len() == 1 && config.admin.tls.is_none());
    assert!(!format!("{config:?}").contains("0123456789"));
}

#[test]
fn what_is_wrong_with_it() {
    insta::assert_snapshot!(brief("[admin]\nlisten = '0.0.0.0:9901'"), @r#"
    2:10 «'0.0.0.0:9901'» `admin.listen`: other machines can reach this address without TLS
      = add `[admin.tls]`, or `insecure = true` if that network is trusted
    2:10 «'0.0.0.0:9901'» `admin.listen`: other machines can reach this address without a token
      = add `token = { env = "NAME" }` or `token = { file = "path" }`
    "#);
    insta::assert_snapshot!(said("[admin]\ntoken = 'hunter2'"), @r#"
    error: a secret must not be written into the configuration
     --> weir.toml:2:9
      |
    2 | token = *********
      |         ^^^^^^^^^
      |
      = help: use `{ env = "NAME" }` or `{ file = "path" }`
    "#);
    insta::assert_snapshot!(brief("[admin]\ntoken = { env = 'SHORT' }"), @"2:17 «'SHORT'» a token needs at least 16 bytes, all of them visible ASCII");
    insta::assert_snapshot!(brief("[admin]\ntoken = { env = 'A', file = 'b' }\ntls = { client_auth = 'optional' }"), @r"
    2:9 «{ env = 'A', file = 'b' }» a secret is exactly one of `env` and `file`
    3:7 «{ client_auth = 'optional' }» `admin.tls.certificates` is missing
      = expected non-empty list of tables (`cert` and `key` each). As `server.tls.certificates`, for operators.
    3:23 «'optional'» `admin.tls.client_auth`: has no effect without `client_ca`
    ");
    insta::assert_snapshot!(said("[admin]\ntoken = hunter2"), @r#"
    error: not valid TOML: string values must be quoted, expected literal string
     --> weir.toml:2:9
      |
    2 | token =********
      |         ^^^^^^^
    "#);
}

#[test]
fn tokens_have_names_and_roles() {
    let token = "token = { env = 'WEIR_JWT_SECRET' }";
    let other = "token = { env = 'WEIR_FLEET_SECRET' }";
    let config = compile(&format!(
        "{UPSTREAM}[admin]\n{token}\ntokens = [{{ name = 'grafana', role = 'read', {other} }}]\naudit = 'audit.jsonl'\n"
    ));
    let admin = config.unwrap().admin;
    let tokens: Vec<_> = admin.tokens.iter().map(|token| (&*token.name, token.role)).collect();
    assert_eq!(tokens, [("admin", Role::Write), ("grafana", Role::Read)]);
    assert!(admin.audit.is_some_and(|file| file.ends_with("audit.jsonl")));
    for (lines, expected) in [
        (format!("{token}\ntokens = [{{ name = 'admin', role = 'read', {other} }}]"), "another token has this name"),
        (format!("{token}\ntokens = [{{ name = 'a', role = 'read', {token} }}]"), "two names have the same token"),
        (format!("tokens = [{{ name = 'a b', role = 'read', {other} }}]"), "is no name"),
        (format!("tokens = [{{ name = 'a', role = 'root', {other} }}]"), "admin.tokens.role"),
        (format!("tokens = [{{ name = 'a', {other} }}]"), "`admin.tokens.role` is missing"),
        (format!("tokens = [{{ role = 'read', {other} }}]"), "`admin.tokens.name` is missing"),
        ("tokens = [{ name = 'a', role = 'read' }]".to_owned(), "`admin.tokens.token` is missing"),
        ("tokens = [{ name = 'a', role = 'read', token = 'hunter2' }]".to_owned(), "must not be written into"),
        ("audit = 'a/'".to_owned(), "is a folder"),
    ] {
        let said = said(&format!("[admin]\n{lines}"));
        assert!(said.contains(expected) && !said.contains("hunter2"), "{lines}: {said}");
    }
}
