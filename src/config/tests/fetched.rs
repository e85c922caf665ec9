//! `jwks_url`.

use super::{UPSTREAM, brief, compile, said};

fn jwt(algorithms: &str, keys: &str) -> String {
    format!("[identity.a.jwt]\nclaim = 'sub'\nalgorithms = [{algorithms}]\nkeys = [{keys}]\n")
}

#[test]
fn where_keys_may_be() {
    for (url, is_right) in [
        ("https://issuer.example/keys", true),
        ("https://issuer.example", true),
        ("https://issuer.example:8443/keys?a=b", true),
        ("https://192.0.2.1/keys", true),
        ("http://localhost:9000/keys", true),
        ("http://127.0.0.1:9000/keys", true),
        ("http://[::1]:9000/keys", true),
        ("http://issuer.example/keys", false),
        ("http://localhost.example/keys", false),
        ("http://127.0.0.1.example/keys", false),
        ("ftp://issuer.example/keys", false),
        ("issuer.example/keys", false),
        ("/keys", false),
        ("https://", false),
        ("https://issuer.example/keys#a", false),
        ("", false),
    ] {
        let text = format!("{UPSTREAM}{}", jwt("'RS256'", &format!("{{ jwks_url = '{url}' }}")));
        assert_eq!(compile(&text).is_ok(), is_right, "{url}");
    }
    let both = jwt("'RS256'", "{ jwks_url = 'https://issuer.example' }, { pem = 'keys/sellers.pem' }");
    let config = compile(&format!("{UPSTREAM}{both}")).unwrap();
    let urls: Vec<_> = config.policy.fetched_keys().map(|(name, keys)| (name, keys.url().to_string())).collect();
    assert_eq!(urls, [("a", "https://issuer.example/".to_owned())]);
}

#[test]
fn what_is_wrong_with_it() {
    let url = "{ jwks_url = 'https://issuer.example' }";
    insta::assert_snapshot!(brief(&jwt("'RS256'", "{ jwks_url = 'http://issuer.example/keys' }")), @"4:22 «'http://issuer.example/keys'» `identity.NAME.jwt.keys.jwks_url`: must be `https`: an attacker who can change the fetched keys can sign tokens");
    insta::assert_snapshot!(said(&jwt("'RS256'", "{ jwks_url = 'https://a:hunter2@issuer.example' }")), @r#"
    error: `identity.NAME.jwt.keys.jwks_url`: must not contain a user or a password
     --> weir.toml:4:22
      |
    4 | keys = [{ jwks_url = ********************************** }]
      |                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(brief(&jwt("'HS256'", url)), @"4:22 «'https://issuer.example'» `identity.NAME.jwt.keys.jwks_url`: fetched keys are public, and HS256 needs a secret key");
    insta::assert_snapshot!(brief(&jwt("'RS256'", &format!("{url}, {url}"))), @"4:50 «{ jwks_url = 'https://issuer.example' }» a second `jwks_url`: an identity has one at most [also 4:9 «{ jwks_url = 'https://issuer.example' }» the first]");
    insta::assert_snapshot!(brief(&jwt("'RS256'", "{ jwks_url = 'https://a.example', pem = 'keys/sellers.pem' }")), @"4:9 «{ jwks_url = 'https://a.example', pem = 'keys/sellers.pem' }» a key is exactly one of `jwks`, `jwks_url`, `pem` and `secret`");
}
