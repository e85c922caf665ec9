//! Sections that listen on different addresses, which are one in Weir.

use super::import;
use crate::import::Kind;

/// Checks the addresses of Weir, the lines of the report about addresses with the first word of their reason, and
/// whether requests reach the service `admin`.
fn check(format: &str, text: &str, addresses: &str, report: &[(usize, Kind, &str)], reaches_admin: bool) {
    let imported = import(format, text);
    let listen = imported.config.lines().find(|line| line.starts_with("listen = ")).unwrap_or_default();
    assert_eq!(listen, format!("listen = [{addresses}]"), "{text}: {}", imported.config);
    let about = |why: &&str| ["this section listens", "Weir serves it"].iter().any(|start| why.starts_with(start));
    let findings = imported.findings.iter().filter(|finding| about(&&*finding.why));
    let said: Vec<_> = findings.map(|one| (one.line, one.kind, one.why.split(' ').next().unwrap())).collect();
    assert_eq!(said, report, "{text}: {:#?}", imported.findings);
    let is_exact = imported.findings.iter().all(|finding| finding.kind == Kind::NotNeeded);
    assert!(report.is_empty() || !is_exact);
    assert_eq!(imported.config.contains("127.0.0.1:9"), reaches_admin, "{text}: {}", imported.config);
    assert!(imported.config.contains("127.0.0.1:8\""), "{text}: {}", imported.config);
}

const LEFT_OUT: (Kind, &str) = (Kind::LeftOut, "this");
const MORE: (Kind, &str) = (Kind::Differs, "Weir");

fn at(line: usize, (kind, why): (Kind, &'static str)) -> (usize, Kind, &'static str) {
    (line, kind, why)
}

#[test]
fn servers_of_nginx() {
    let site = |listens: &str, service: &str| {
        format!("server {{ {listens}\nlocation / {{ proxy_pass http://127.0.0.1:{service}; }} }}\n")
    };
    let pair = |public: &str, admin: &str| {
        format!("{}{}", site(public, "8"), site(&format!("{admin} server_name admin.local;"), "9"))
    };
    let both = "\"0.0.0.0:80\", \"0.0.0.0:81\"";
    for (public, admin, addresses, report, reaches_admin) in [
        ("listen 80;", "listen 127.0.0.1:81;", "\"0.0.0.0:80\"", vec![at(3, LEFT_OUT)], false),
        ("listen 80;", "listen [::1]:81; listen localhost:82;", "\"0.0.0.0:80\"", vec![at(3, LEFT_OUT)], false),
        ("listen 80;", "listen unix:/run/a;", "\"0.0.0.0:80\"", vec![at(3, LEFT_OUT)], false),
        ("listen 80;", "listen 127.0.0.1:81; listen 81;", both, vec![at(1, MORE), at(3, MORE)], true),
        ("listen 127.0.0.1:80;", "listen 127.0.0.1:80;", "\"127.0.0.1:80\"", vec![], true),
        ("listen 80;", "listen 81;", both, vec![at(1, MORE), at(3, MORE)], true),
        ("listen 80; listen 81;", "listen 81;", both, vec![at(3, MORE)], true),
        ("listen 80; listen 443 ssl;", "listen 80; listen 443 ssl;", "\"0.0.0.0:80\"", vec![], true),
        ("listen 80; listen 443 ssl;", "listen 80;", "\"0.0.0.0:80\"", vec![at(3, MORE)], true),
        ("listen 80; listen [::]:80;", "listen 80;", "\"0.0.0.0:80\", \"[::]:80\"", vec![], true),
    ] {
        check("nginx", &pair(public, admin), addresses, &report, reaches_admin);
    }
    // Without a service, a server is no section of Weir.
    let redirect = "server { listen 80; server_name a; return 301 https://$host$request_uri; }\n";
    let text = format!("{redirect}{}", site("listen 81; listen 443 ssl;", "8"));
    check("nginx", &text, "\"0.0.0.0:81\"", &[], false);
    // A limit of the server that is left out is missing, too.
    let limited = "limit_conn_zone $remote_addr zone=a:1m;\n".to_owned()
        + &pair("listen 80;", "listen 127.0.0.1:81; limit_conn a 3;");
    check("nginx", &limited, "\"0.0.0.0:80\"", &[at(4, LEFT_OUT)], false);
    assert!(import("nginx", &limited).config.contains("mode = \"off\""));
}

#[test]
fn frontends_of_haproxy() {
    let pair = |public: &str, admin: &str| {
        format!(
            "frontend admin\n{admin}\nuse_backend admin if {{ path_beg /admin/ }}\nfrontend public\n{public}\n\
             default_backend web\nbackend admin\nserver a 127.0.0.1:9\nbackend web\nserver a 127.0.0.1:8\n"
        )
    };
    for (public, admin, addresses, report, reaches_admin) in [
        ("bind :80", "bind 127.0.0.1:81", "\"0.0.0.0:80\"", vec![at(2, LEFT_OUT), at(3, LEFT_OUT)], false),
        ("bind :80", "bind /run/a,[::1]:81", "\"0.0.0.0:80\"", vec![at(2, LEFT_OUT), at(3, LEFT_OUT)], false),
        (
            "bind :443 ssl\nbind 127.0.0.1:80",
            "bind 127.0.0.1:81",
            "\"127.0.0.1:80\"",
            vec![at(2, LEFT_OUT), at(3, LEFT_OUT)],
            false,
        ),
        ("bind :80", "bind :81", "\"0.0.0.0:80\", \"0.0.0.0:81\"", vec![at(2, MORE), at(5, MORE)], true),
        ("bind :80\nbind [::]:80 v6only", "bind *:80", "\"0.0.0.0:80\", \"[::]:80\"", vec![], true),
    ] {
        check("haproxy", &pair(public, admin), addresses, &report, reaches_admin);
    }
    let redirect = "frontend a\nbind :80\nhttp-request redirect scheme https\n\
        frontend b\nbind :81\nbind :443 ssl\ndefault_backend web\nbackend web\nserver a 127.0.0.1:8\n";
    check("haproxy", redirect, "\"0.0.0.0:81\"", &[], false);
}

#[test]
fn sites_of_caddy() {
    let site = |address: &str, service: &str, more: &str| {
        format!("{address} {{\n{more}\nreverse_proxy 127.0.0.1:{service}\n}}\n")
    };
    for (public, admin, bind, addresses, report, reaches_admin) in [
        ("http://", "http://a.local:81", "bind 127.0.0.1", "\"0.0.0.0:80\"", vec![at(5, LEFT_OUT)], false),
        ("http://:80", "http://:81", "bind ::1 unix//run/a", "\"0.0.0.0:80\"", vec![at(5, LEFT_OUT)], false),
        ("a.test, http://:80", "http://:81", "bind localhost", "\"0.0.0.0:80\"", vec![at(5, LEFT_OUT)], false),
        ("http://:80", "http://a.local:81", "", "\"0.0.0.0:80\", \"0.0.0.0:81\"", vec![at(1, MORE), at(5, MORE)], true),
        ("http://:80", "http://a.local:80", "bind 10.0.0.1", "\"0.0.0.0:80\"", vec![at(1, MORE), at(5, MORE)], true),
    ] {
        let text = site(public, "8", "") + &site(admin, "9", bind);
        check("caddy", &text, addresses, &report, reaches_admin);
    }
    let redirect = format!("http://a.test {{\nredir https://a.test\n}}\n{}", site("http://:81", "8", ""));
    check("caddy", &redirect, "\"0.0.0.0:81\"", &[], false);
}

#[test]
fn an_address_that_weir_cannot_have_leaves_the_others() {
    let text =
        "frontend a\nbind :80\nbind *:81-83\nbind web.local:84\ndefault_backend b\nbackend b\nserver a 127.0.0.1:8\n";
    let imported = import("haproxy", text);
    assert!(imported.config.contains("listen = [\"0.0.0.0:80\"]"), "{}", imported.config);
    let lines: Vec<_> = imported.findings.iter().map(|finding| (finding.line, &*finding.why)).collect();
    assert_eq!(
        lines,
        [
            (3, "`0.0.0.0:81-83` is no IP address with a port: set `server.listen` by hand"),
            (4, "`web.local:84` is no IP address with a port: set `server.listen` by hand"),
        ]
    );
}
