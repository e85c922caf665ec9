//! Paths that a service takes for the same are one path to limits, lists, routes and keys, and reach it as sent.

use crate::routes::{route, upstream};
use crate::support::{Client, Upstream, Weir};

const EXPRESS: &str = "paths = { ignore_case = true, ignore_trailing_slash = true, ignore_params = true }";

fn get(weir: &Weir, path: &str) -> u16 {
    Client::connect(weir.address()).get(path).status
}

/// Spellings of `/login`, if everything is ignored.
const SPELLINGS: [&str; 8] =
    ["/login", "/LOGIN", "/login/", "/%4cogin", "/Login;a=b", "/login/;c/", "//loGin//", "/;x/login"];

#[test]
fn spellings_share_a_bucket_and_are_forwarded_as_sent() {
    let limits = "[[limit]]\nname = \"login\"\nkey = []\nrate = \"100/h\"\nmatch = { path = \"/Login\" }\n\
        cost = { default = 1, paths = [{ path = \"/lOgin\", units = 10 }] }\n\
        [[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"1000/h\"\noverrides = { \"/login\" = \"500/h\" }\n";
    let service = Upstream::start();
    let weir = Weir::start_with(&service, EXPRESS, limits);
    for (count, path) in SPELLINGS.iter().enumerate() {
        let answer = Client::connect(weir.address()).get(path);
        let left = (100 - 10 * (count + 1)).to_string();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some(&*left)), "{path}");
    }
    assert_eq!(weir.metric("weir_keys{limit=\"each\"}"), 1.0);
    let forwarded = ["/login", "/LOGIN", "/login/", "/Login", "/Login;a=b", "/login/;c/", "/loGin/", "/;x/login"];
    assert_eq!(service.targets(), forwarded);

    let plain = Weir::start(&service, limits);
    let limit_of =
        |path: &str| Client::connect(plain.address()).get(path).header("x-ratelimit-limit").map(str::to_owned);
    assert_eq!(limit_of("/LOGIN").as_deref(), Some("1000"));
    assert_eq!(limit_of("/login/").as_deref(), Some("1000"));
}

#[test]
fn lists_see_all_spellings() {
    let access = "[access]\ndeny.path = [\"/login\", \"/Users/{*rest}\", \"/items:purge\"]\nallow.path = \"/users/me\"\n\
        require = [{ path = \"/pro/{id}\", plan = \"pro\" }]\n[plans]\nfrom = \"header:x-plan\"\n";
    let service = Upstream::start();
    let weir = Weir::start_with(&service, EXPRESS, access);
    let denied = ["/users/7", "/USERS/7/", "/users", "/users;a/7", "/items:purge", "/items%3apurge", "/Pro/7/"];
    for path in SPELLINGS.iter().chain(&denied) {
        assert_eq!(get(&weir, path), 403, "{path}");
    }
    for path in ["/users/ME/", "/other", "/login/x"] {
        assert_eq!(get(&weir, path), 200, "{path}");
    }
    // Without the options only what every framework decodes is the same.
    let plain = Weir::start(&service, access);
    for (path, status) in
        [("/login", 403), ("/%6cogin", 403), ("/items%3apurge", 403), ("/LOGIN", 200), ("/users/7", 200)]
    {
        assert_eq!(get(&plain, path), status, "{path}");
    }
}

#[test]
fn routes_take_all_spellings_and_strip_what_was_sent() {
    let (api, web) = (Upstream::start(), Upstream::start());
    let routes = route("path = \"/Api/{*rest}\"", "api", "rewrite = { strip = \"/api\", add = \"/v1\" }");
    let config =
        format!("{}{}{routes}{}", upstream("api", &[&api], ""), upstream("web", &[&web], ""), route("", "web", ""));
    let weir = Weir::start_as(&Weir::text(&config).replace("workers = 2", &format!("workers = 2\n{EXPRESS}")));
    for path in ["/api/A", "/API;x/b/", "/aPi", "/%61pi/", "/apis"] {
        assert_eq!(get(&weir, path), 200, "{path}");
    }
    assert_eq!(api.targets(), ["/v1/A", "/v1/b/", "/v1", "/v1/"]);
    assert_eq!(web.targets(), ["/apis"]);
}
