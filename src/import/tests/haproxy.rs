//! `HAProxy`.

use super::{check, import};

/// Lines of its configurations.
pub(super) const LINES: &str = "frontend web\nbackend app\nbackend t\nlisten all\ndefaults\nglobal\n\
    stick-table type ip size 1m store http_req_rate(10s),conn_cur,gpc0\n\
    stick-table type string store http_req_rate(99999999999999999999d),http_err_rate(1m)\n\
    http-request track-sc0 src\nhttp-request track-sc0 src table t if { path_beg /a }\n\
    http-request track-sc1 hdr(x-key) table t unless office\nhttp-request track-sc1 src,ipmask(99) table all\n\
    tcp-request connection track-sc2 src table t\nacl office src 10.0.0.0/8 ::1\nacl office path /x\n\
    acl fast sc_http_req_rate(0) gt 100\nacl fast src_conn_cur(t) ge 5\nacl fast sc0_http_req_rate ge 1\n\
    http-request deny if fast !office\nhttp-request deny deny_status 429 if fast or !fast office\n\
    http-request deny if { sc_conn_cur(1) gt 18446744073709551615 } || { sc_conn_cur(2) gt 3 } { method POST }\n\
    http-request tarpit unless { sc_http_req_rate(1) le 3 } !{ hdr(host) -i a.test }\nhttp-request deny if { } or\n\
    tcp-request connection reject if { src_conn_cur ge 9 }\ntcp-request content reject if fast\nbind :80\n\
    bind [::]:80 v4v6\nbind /run/a,unix@x\nbind :443 ssl crt /a\nuse_backend app if { path_beg /a /b/ }\n\
    use_backend t if office\nuse_backend %[x]\ndefault_backend app\ndefault_backend t\nserver a 127.0.0.1:9000\n\
    server a /run/s check\nserver b ::1\nbalance hdr(x)\nbalance source\nmode tcp\nmode http\ntimeout client 1s";

const SERVICE: &str = "[upstream]\nurl = \"http://127.0.0.1:9000\"\n";

/// Checks the limits of a frontend whose tables are `t` and `u`.
fn limits(rules: &str, limits: &str, report: &str) {
    let tables = "backend t\nstick-table type ip size 1m expire 10m store http_req_rate(10s),conn_cur,gpc0\n\
        backend u\nstick-table type string len 64 size 1m expire 1m store http_req_rate(1m),http_err_rate(10s)\n";
    let text = format!("{tables}frontend web\ndefault_backend app\n{rules}\nbackend app\nserver a 127.0.0.1:9000\n");
    check("haproxy", &text, &format!("{SERVICE}{limits}"), report);
}

const GOES_ON: &str =
    "Differs HAProxy counts refused requests too, so a client that goes on stays refused; Weir does not";

#[test]
fn rates_of_requests_are_windows() {
    let track = "http-request track-sc0 src table t\n";
    let limit = |more: &str, rate: &str| {
        format!(
            "[[limit]]\nname = \"t\"\nstage = \"arrival\"\n{more}key = [\"ip\"]\nalgorithm = \"sliding_window\"\n\
             rate = \"{rate}\""
        )
    };
    for condition in [
        "if { sc_http_req_rate(0) gt 100 }",
        "if { sc0_http_req_rate gt 100 }",
        "if { sc_http_req_rate(0,t) ge 101 }",
        "if { src_http_req_rate(t) gt 100 }",
        "if !{ sc_http_req_rate(0) le 100 }",
        "unless { sc_http_req_rate(0) le 100 }",
        "if fast\nacl fast sc_http_req_rate(0) gt 100",
    ] {
        let rules = format!("{track}http-request deny deny_status 429 {condition}");
        limits(&rules, &limit("", "100/10s"), &format!("8 {GOES_ON}"));
    }
    let except = "acl office src 10.0.0.0/8 192.0.2.1\n";
    let rules = format!("{track}http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 9 }} !office\n{except}");
    let more = "except = { ip = [\"10.0.0.0/8\", \"192.0.2.1/32\"] }\n";
    limits(&rules, &limit(more, "9/10s"), &format!("8 {GOES_ON}"));
    let allow = "acl office src 10.0.0.0/8 192.0.2.1\nhttp-request allow if office\n";
    let rules = format!("{allow}{track}http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 9 }} !office");
    limits(&rules, &limit(more, "9/10s"), &format!("10 {GOES_ON}"));
    let before = "http-request deny deny_status 429 if { src_http_req_rate(t) gt 100 }\n";
    limits(&format!("{before}{track}"), &limit("", "101/10s"), "");
    let after = format!("{before}{track}http-request deny if {{ path /a }}\n");
    let report = format!("7 {GOES_ON}\n9 LeftOut set `[access]` by hand: Weir refuses nothing for it");
    limits(&after, &limit("", "101/10s"), &report);
    let path = "http-request track-sc0 src table t if { path_beg /api/ }\n";
    let rules = format!("{path}http-request tarpit if {{ sc_http_req_rate(0) gt 5 }} {{ path_beg /api/ }}");
    let report = format!("8 {GOES_ON}\n8 Differs Weir refuses requests with 429 at once");
    limits(&rules, &limit("match = { path = [\"/api/{*rest}\"] }\n", "5/10s"), &report);
    let rules = format!("{track}http-request deny if {{ sc_http_req_rate(0) gt 429 }}");
    limits(&rules, &limit("", "429/10s"), &format!("8 {GOES_ON}\n8 Differs Weir refuses requests with 429"));
    let rules = format!("{track}http-request return status 200 if {{ sc_http_req_rate(0) gt 50 }}");
    let none = "[[limit]]\nname = \"none\"\nmode = \"off\"\nkey = []\nrate = \"1/s\"";
    limits(&rules, none, "7 LeftOut no translated rule uses its counters\n8 LeftOut Weir has no such action");
}

#[test]
fn counters_in_use_are_requests_or_connections() {
    let request = "http-request track-sc0 src table t\nhttp-request deny deny_status 429 if { sc_conn_cur(0) gt 7 }";
    limits(request, "[[limit]]\nname = \"t\"\nkey = [\"ip\"]\nalgorithm = \"concurrency\"\nmax = 7", "");
    let connection = "tcp-request connection track-sc0 src table t\n\
        tcp-request connection reject if { src_conn_cur(t) ge 7 }";
    let text = format!(
        "backend t\nstick-table type ip size 1m store conn_cur\nlisten web\nserver a 127.0.0.1:9000\n{connection}"
    );
    let none = "[[limit]]\nname = \"none\"\nmode = \"off\"\nkey = []\nrate = \"1/s\"";
    let report = "6 Differs Weir answers 429 in place of closing the connection";
    check("haproxy", &text, &format!("max_connections_per_ip = 6\n{SERVICE}{none}"), report);
}

#[test]
fn keys_are_samples() {
    for (sample, key, report) in [
        ("src,ipmask(24,64)", r#"key = ["ip/24/64"]"#, ""),
        ("path", r#"key = ["path"]"#, ""),
        ("base32+src", r#"key = ["host", "path", "ip"]"#, ""),
        ("req.hdr(X-Key)", "match = { header = { \"x-key\" = \"*\" } }\nkey = [\"header:x-key\"]", ""),
        ("url_param(k)", r#"key = ["query:k"]"#, "7 Differs requests without this value share one budget"),
        ("int(1)", "key = []", ""),
    ] {
        let rules = format!(
            "http-request track-sc1 {sample} table u\n\
             http-request deny deny_status 429 if {{ sc_http_req_rate(1) gt 20 }}"
        );
        let limit = format!(
            "[[limit]]\nname = \"u\"\nstage = \"arrival\"\n{key}\nalgorithm = \"sliding_window\"\nrate = \"20/min\""
        );
        limits(&rules, &limit, &format!("{report}\n8 {GOES_ON}"));
    }
}

#[test]
fn rules_without_a_limit_are_reported() {
    for (rule, why) in [
        ("deny if { sc_gpc0(0) gt 0 }", "Weir has no general counters; see `ban` for clients that go on"),
        (
            "deny if { sc_http_req_rate(0) gt 9 } { path /a }",
            "HAProxy counts more requests than it refuses; Weir counts what a limit matches",
        ),
        ("deny if { path_reg ^/a }", "set `[access]` by hand: Weir refuses nothing for it"),
        ("deny if { sc_http_req_rate(2) gt 9 }", "no translated rule counts for it"),
        ("deny if { sc_http_req_rate(0) gt 9 } { sc_conn_cur(0) gt 1 }", "its condition has several counters"),
        ("set-header x-a b", "Weir has no such action"),
        ("deny if unknown", "there is no ACL `unknown`"),
    ] {
        let text = format!(
            "frontend t\nstick-table type ip size 1m store http_req_rate(10s),gpc0,conn_cur\n\
             http-request track-sc0 src\nhttp-request {rule}"
        );
        let imported = import("haproxy", &text);
        let whys: Vec<_> = imported.findings.iter().filter(|finding| finding.line == 4).map(|one| &one.why).collect();
        assert_eq!(whys, [why], "{rule}");
        assert!(imported.config.contains("mode = \"off\""), "{}", imported.config);
    }
}

#[test]
fn backends_are_services_of_routes() {
    let text = "defaults
        mode http
        timeout client 1m
        frontend web
        bind :80
        bind :443 ssl crt /a
        acl api path_beg /api/
        acl new hdr(host) -i new.test
        use_backend api if api METH_GET or new
        use_backend api if api !new
        use_backend api if new
        default_backend app
        backend app
        balance source
        server a 10.0.0.1:81 check
        server b unix@/run/b
        backend api
        server a 10.0.0.3:80
        http-request deny if { src_http_req_rate gt 9 }
        listen stats
        bind :82
        stats enable";
    check(
        "haproxy",
        text,
        r#"listen = ["0.0.0.0:80"]
        [upstreams.api]
        endpoints = ["http://10.0.0.3:80"]
        [upstreams.app]
        endpoints = ["http://10.0.0.1:81", "unix:/run/b"]
        balance = "hash"
        hash_by = "ip"
        [[route]]
        match = { host = ["new.test"] }
        upstream = "api"
        [[route]]
        upstream = "app"
        [[limit]]
        name = "none"
        mode = "off"
        key = []
        rate = "1/s""#,
        "3 LeftOut set `[timeouts]` by hand
        6 LeftOut set `server.tls` and `server.listen` by hand
        9 LeftOut Weir has no such condition of a route
        10 LeftOut Weir has no such condition of a route
        15 Differs `check`: set `health` and other options of the upstream by hand
        19 LeftOut only a part of the requests reaches this backend
        21 LeftOut this section has no service and no limit
        22 LeftOut this section has no service and no limit",
    );
}

#[test]
fn networks_may_be_exempt_and_frontends_share_limits() {
    let rules = "stick-table type ip size 1m store http_req_rate(10s)\nhttp-request allow if { src 10.0.0.0/8 }\n\
        http-request track-sc0 src table one\nhttp-request deny deny_status 429 if { sc_http_req_rate(0) gt 9 }";
    let text = format!("frontend one\n{rules}\nfrontend two\n{rules}\nfrontend three\n{rules}\n");
    let imported = import("haproxy", &text);
    let limits: Vec<_> =
        imported.config.lines().filter(|line| line.starts_with("name") || line.starts_with("except")).collect();
    assert_eq!(limits, ["name = \"one\"", "except = { ip = [\"10.0.0.0/8\"] }"]);
    let other = text.replacen("gt 9", "gt 8", 1);
    let said =
        import("haproxy", &other).findings.iter().filter(|finding| finding.why.contains("all frontends")).count();
    assert_eq!(said, 2);
}

/// The only frontend of a backend: its rules and its ACLs are read.
#[test]
fn an_acl_of_a_backend_is_that_of_its_rules() {
    let text = "frontend web\ndefault_backend app\nbackend app\nserver a 127.0.0.1:9000\n\
        stick-table type ip size 1m store http_req_rate(1h)\nacl api path_beg /api/\nacl other path /x\n\
        http-request track-sc0 src if api\nhttp-request deny deny_status 429 if { sc_http_req_rate(0) gt 3 }";
    let imported = import("haproxy", text);
    let left_out: Vec<_> = imported.findings.iter().filter(|one| one.kind == crate::import::Kind::LeftOut).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
    assert!(imported.findings.iter().any(|one| one.line == 7 && one.why == "no rule uses it"));
    assert!(imported.config.contains("match = { path = [\"/api/{*rest}\"] }"), "{}", imported.config);
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("frontend a\nbind \"b", "original:2: a quoted text has no end"),
        ("bind a\\", "original:1: a line ends with `\\`"),
    ] {
        assert_eq!(super::error("haproxy", text), error, "{text}");
    }
}
