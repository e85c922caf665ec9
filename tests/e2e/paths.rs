//! Paths that a service treats as equal are one path to limits, lists, routes and keys, and are forwarded as sent.

use crate::routes::{route, upstream};
use crate::support::{Client, H2Service, NEVER, Upstream, Weir, over_h2};

const EXPRESS: &str = "paths = { ignore_case = true, ignore_trailing_slash = true, ignore_params = true }";

fn get(weir: &Weir, path: &str) -> u16 {
    Client::connect(weir.address()).get(path).status
}

/// Spellings of `/login` with all options.
const SPELLINGS: [&str; 8] =
    ["/login", "/LOGIN", "/login/", "/%4cogin", "/Login;a=b", "/login/;c/", "//loGin//", "/;x/login"];

#[test]
fn spellings_share_a_bucket_and_are_forwarded_as_sent() {
    let limits = "[[limit]]\nname = \"login\"\nkey = []\nrate = \"100/h\"\nmatch = { path = \"/Login\" }\n\
        cost = { default = 1, paths = [{ path = \"/lOgin\", units = 10 }] }\n\
        [[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"1000/day\"\noverrides = { \"/login\" = \"500/h\" }\n";
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
fn lists_match_all_spellings() {
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
    // Without options, only spellings that every framework decodes are equal.
    let plain = Weir::start(&service, access);
    for (path, status) in
        [("/login", 403), ("/%6cogin", 403), ("/items%3apurge", 403), ("/LOGIN", 200), ("/users/7", 200)]
    {
        assert_eq!(get(&plain, path), status, "{path}");
    }
}

#[test]
fn routes_match_all_spellings_and_strip_the_prefix() {
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

/// Targets, and their form at the service.
const RAW: [(&str, &str); 4] = [
    ("/é?q=é", "/%C3%A9?q=%C3%A9"),
    ("/a{b}\"|?q=\\^`{|}", "/a%7Bb%7D%22%7C?q=%5C%5E%60%7B%7C%7D"),
    ("/a%c3%a9:;?q=%c3%a9[]%&'", "/a%C3%A9:;?q=%c3%a9[]%&'"),
    ("/a?é=/../b", "/a?%C3%A9=/../b"),
];

/// Targets that the HTTP/2 client here cannot send; `attacks/h2_heads.rs` does.
const RAW_OVER_H1: [(&str, &str); 2] =
    [("/<é>`?q=\"<x>\"", "/%3C%C3%A9%3E%60?q=%22%3Cx%3E%22"), ("http://weir.test/é?q=\"x\"", "/%C3%A9?q=%22x%22")];

#[test]
fn raw_bytes_are_escaped_over_both_protocols() {
    let access = "[access]\ndeny.path = \"/no%C3%A9/{*rest}\"\n";
    let service = Upstream::start();
    let weir = Weir::start(&service, access);
    let mut expected = Vec::new();
    for (target, escaped) in RAW.iter().chain(&RAW_OVER_H1) {
        assert_eq!(get(&weir, target), 200, "{target}");
        expected.push(*escaped);
    }
    assert_eq!(get(&weir, "/noé/a"), 403);
    over_h2(weir.address(), async |mut h2, _| {
        for (target, escaped) in RAW {
            assert_eq!(h2.get(target).await.unwrap().status, 200, "{target}");
            expected.push(escaped);
        }
        assert_eq!(h2.get("/noé/a").await.unwrap().status, 403);
    });
    assert_eq!(service.targets(), expected);
    for target in ["/a?b c", "/a?b\tc", "/a?b\u{7f}", "/a b"] {
        assert_eq!(get(&weir, target), 400, "{target}");
    }

    let h2_service = H2Service::start(async |call| call.say("hello"));
    let weir = Weir::with(&h2_service.upstream(""));
    for (target, escaped) in RAW.iter().chain(&RAW_OVER_H1) {
        assert_eq!(get(&weir, target), 200, "{target}");
        let called = h2_service.called().pop().unwrap();
        assert!(called.uri.ends_with(escaped), "{} of {target}", called.uri);
    }
}

#[test]
fn raw_bytes_are_escaped_where_routes_rewrite() {
    let api = Upstream::start();
    let routes = route("path = \"/caf%C3%A9/{*rest}\"", "api", "rewrite = { strip = \"/caf%C3%A9\", add = \"/v1\" }");
    let weir = Weir::start_as(&Weir::text(&format!("{}{routes}", upstream("api", &[&api], ""))));
    assert_eq!(get(&weir, "/café/é?q=\"é\""), 200);
    assert_eq!(api.targets(), ["/v1/%C3%A9?q=%22%C3%A9%22"]);
}

#[test]
fn escaped_slashes_are_kept_on_request() {
    let access = "[access]\ndeny.path = [\"/admin/{*rest}\", \"/api/secret%2Fa\"]\n\
        [[limit]]\nname = \"project\"\nkey = [\"path\"]\nrate = \"2/h\"\nmatch = { path = \"/projects/{id}\" }\n";
    let service = Upstream::start();
    let weir = Weir::start_with(&service, "encoded_slashes = \"keep\"", access);
    let rows = [
        ("/projects/group%2fproject?a=%2f", 200),
        ("/projects/group%2Fproject", 200),
        ("/projects/%67roup%2Fproject", 429),
        ("/projects/group/project", 200),
        ("/projects/group%2Fother", 200),
        ("/api/secret%2fa", 403),
        ("/api/secret/a", 200),
        // Only a service that decodes it reads this as a path below `/admin/`.
        ("/admin%2Fkeys", 200),
        ("/admin/keys%2Fa", 403),
        ("/a%2F..", 400),
        ("/a%2f%2e%2e%2fb", 400),
        ("/..%2fa", 400),
        ("/a%5Cb", 400),
        ("/a\\b", 400),
    ];
    for (path, status) in rows {
        assert_eq!(get(&weir, path), status, "{path}");
    }
    let forwarded = [
        "/projects/group%2Fproject?a=%2f",
        "/projects/group%2Fproject",
        "/projects/group/project",
        "/projects/group%2Fother",
        "/api/secret/a",
        "/admin%2Fkeys",
    ];
    assert_eq!(service.targets(), forwarded);
    over_h2(weir.address(), async |mut h2, _| {
        for (path, status) in [("/projects/group%2fproject", 429), ("/b%2fc", 200), ("/a%2f..", 400), ("/a%5c", 400)] {
            assert_eq!(h2.get(path).await.unwrap().status, status, "{path}");
        }
    });
    assert_eq!(service.targets().last().unwrap(), "/b%2Fc");

    let plain = Weir::start(&service, NEVER);
    assert_eq!(get(&plain, "/projects/group%2Fproject"), 400);
}
