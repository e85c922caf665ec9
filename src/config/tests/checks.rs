//! `[check]`: the listener for other proxies, with and without a service behind Weir.

use super::{UPSTREAM, brief, compile, said};
use crate::transport::net::ListenAddress;
use crate::transport::proxy::settings::CheckHeaders;

/// The configuration of a listener for checks.
const CHECK: &str = "[server]\ntrusted_proxies = ['10.0.0.0/24']\n[check]\nlisten = '127.0.0.1:8082'\n";

#[test]
fn without_a_service_there_is_no_other_listener() {
    let config = compile(CHECK).unwrap();
    assert!(config.fixed.listen.is_empty() && config.proxy.upstreams.is_empty() && config.proxy.routes.is_none());
    let listener = config.check_listener.unwrap();
    assert_eq!(listener.listen, ListenAddress::Tcp("127.0.0.1:8082".parse().unwrap()));
    assert_eq!(listener.max_connections, 1000);
    let check = config.proxy.check.unwrap();
    assert_eq!((check.headers, check.tls.is_none()), (CheckHeaders::XForwarded, true));
    // The address of the default listener is free then.
    assert!(compile(&CHECK.replace("8082", "8080")).is_ok());
    let more = compile(&format!("{CHECK}headers = 'x-original'\nmax_connections = 5\n{UPSTREAM}")).unwrap();
    assert_eq!((more.fixed.listen.len(), more.proxy.upstreams.len()), (1, 1));
    assert_eq!(more.check_listener.unwrap().max_connections, 5);
    assert_eq!(more.proxy.check.unwrap().headers, CheckHeaders::XOriginal);
    let none = compile(UPSTREAM).unwrap();
    assert!(none.check_listener.is_none() && none.proxy.check.is_none());
}

#[test]
fn a_service_is_missing_where_it_is_meant() {
    for more in
        ["[server]\nlisten = '127.0.0.1:8080'\n", "[[route]]\nupstream = 'a'\n", "[upstream]\n", "[upstreams]\n"]
    {
        let text = CHECK.replace("[server]\n", "");
        let text = match more.strip_prefix("[server]") {
            Some(option) => format!("[server]{option}{text}"),
            None => format!("[server]\n{text}{more}"),
        };
        assert!(compile(&text).is_err(), "{text}");
    }
}

#[test]
fn wrong_checks() {
    for empty in ["", "[server]\ntrusted_proxies = []\n"] {
        let said = said(&format!("[check]\nlisten = '127.0.0.1:8082'\n{empty}"));
        insta::allow_duplicates! {
            insta::assert_snapshot!(said.lines().take(7).collect::<Vec<_>>().join("\n"), @r#"
            error: `check.listen`: without `server.trusted_proxies` nobody may ask
             --> weir.toml:2:10
              |
            2 | listen = '127.0.0.1:8082'
              |          ^^^^^^^^^^^^^^^^
              |
              = help: add the addresses of the proxies that ask, as in `trusted_proxies = ["10.0.0.0/24"]`
            "#);
        }
    }
    insta::assert_snapshot!(brief("[check]"), @r"
    1:1 «[check]» `check.listen` is missing
      = expected string (address and port, or `unix:` and a path). Address at which other proxies and services ask whether a request may pass; they are `server.trusted_proxies`.
    ");
    insta::assert_snapshot!(brief(&CHECK.replace("8082", "8080")), @"
    4:10 «'127.0.0.1:8080'» `check.listen` and `server.listen` have an address in common
      = the default of `server.listen` is `127.0.0.1:8080`
    ");
    insta::assert_snapshot!(brief(&format!("{CHECK}[admin]\nlisten = '127.0.0.1:8082'\n")), @"6:10 «'127.0.0.1:8082'» `admin.listen` and `check.listen` have an address in common [also 4:10 «'127.0.0.1:8082'» here]");
    insta::assert_snapshot!(brief(&format!("{CHECK}headers = 'forwarded'\nmax_connections = 0\ntls = {{}}")), @r"
    5:11 «'forwarded'» `check.headers`: `forwarded` is not one of `x-forwarded`, `x-original`
      = did you mean `x-forwarded`?
    6:19 «0» `check.max_connections`: expected whole number from 1 to 1000000
    7:7 «{}» `check.tls.certificates` is missing
      = expected non-empty list of tables (`cert` and `key` each). As `server.tls.certificates`, for proxies and services that ask.
    ");
}
