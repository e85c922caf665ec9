//! nginx.

use super::{check, import};

/// Directives of its configurations, and the starts of blocks.
pub(super) const DIRECTIVES: &str = r#"limit_req_zone $binary_remote_addr zone=a:10m rate=10r/s
    limit_req_zone $m zone=b:1m rate=7r/m
    limit_req_zone $server_name zone=c rate=99999999999r/s
    limit_conn_zone $http_x_key$g zone=d:1m
    limit_req zone=a burst=20 nodelay
    limit_req zone=a burst=20 delay=8
    limit_req zone=b burst=18446744073709551615
    limit_req zone=b burst=18446744073709551615 delay=3
    limit_req zone=c
    limit_conn d 10
    limit_conn d 0
    limit_req_dry_run on
    limit_req_status 503
    10.0.0.0/8 ""
    ::1 1
    default 1
    default $remote_addr
    POST $remote_addr
    ~a "b"
    server_name a.example.com *.example.com .b.test ä
    server_name _
    server_name ~x
    listen 80 default_server
    listen [::]:80
    listen unix:/a
    listen 127.0.0.1
    listen 443 ssl
    server 10.0.0.1:80 weight=2
    server unix:/run/a
    server "a b"
    least_conn
    hash $x
    proxy_pass http://127.0.0.1:9000
    proxy_pass http://u/b/
    proxy_pass https://u
    proxy_pass http://unix:/a:/b/
    proxy_pass http://0.0.0.0:80
    proxy_pass http://$host
    proxy_set_header Host $host
    client_max_body_size 10m
    client_max_body_size x
    set_real_ip_from 10.0.0.1
    set_real_ip_from unix:
    real_ip_header X-Forwarded-For
    return 301 /
    include /nowhere/*.conf"#;
pub(super) const BLOCKS: &str = "http\nserver\nlocation /\nlocation /a\nlocation /a/\nlocation /a/b\nlocation = /a/\n\
    location ^~ /a/\nlocation ~ ^/b/\nlocation ~ \\.php$\nlocation @n\nlocation /../a\nupstream u\ngeo $g\nmap $g $m\n\
    map $request_method $m\nmap $m $g\nif ($a)\ntypes";

const SERVICE: &str = "[upstream]\nurl = \"http://127.0.0.1:9000\"\nhost = \"upstream\"\n";

#[test]
fn numbers_of_requests_are_those_of_nginx() {
    for (options, rule) in [
        ("", "rate = \"10/s\"\nburst = 1"),
        ("nodelay", "rate = \"10/s\"\nburst = 1"),
        ("burst=20 nodelay", "rate = \"10/s\"\nburst = 21"),
        ("burst=20", "algorithm = \"leaky_bucket\"\nrate = \"10/s\"\nburst = 20\non_limit = \"hold\""),
        (
            "burst=20 delay=8",
            "rate = \"10/s\"\nburst = 9\non_limit = \"hold\"\nhold = { max_wait = \"1200ms\", max_waiting = 12 }",
        ),
        ("burst=20 delay=20", "rate = \"10/s\"\nburst = 21"),
    ] {
        let text = format!(
            "limit_req_zone $binary_remote_addr zone=one:1m rate=10r/s;\n\
             location / {{ proxy_pass http://127.0.0.1:9000; limit_req zone=one {options}; }}"
        );
        let limit = "[[limit]]\nname = \"one\"\nstage = \"arrival\"\nkey = [\"ip\"]\n";
        check("nginx", &text, &format!("{SERVICE}{limit}{rule}"), "");
    }
}

/// Checks the limits of a configuration with a service.
fn limits(text: &str, limits: &str, report: &str) {
    let text = format!("{text}\nserver {{ location / {{ proxy_pass http://127.0.0.1:9000; }} }}");
    check("nginx", &text, &format!("{SERVICE}{limits}"), report);
}

#[test]
fn rates_a_minute_are_rounded_down_as_in_nginx() {
    for (rate, written) in [("30r/m", "30/min"), ("10r/m", "166/1000s"), ("1r/m", "16/1000s"), ("90r/m", "90/min")] {
        limits(
            &format!("limit_req_zone $uri zone=a:1m rate={rate}; limit_req zone=a;"),
            &format!(
                "[[limit]]\nname = \"a\"\nstage = \"arrival\"\nkey = [\"path\"]\nrate = \"{written}\"\nburst = 1\n"
            ),
            "",
        );
    }
}

#[test]
fn a_written_status_is_that_of_refusals() {
    let limit = "[[limit]]\nname = \"a\"\nstage = \"arrival\"\nkey = [\"path\"]\nrate = \"9/s\"\nburst = 1\n";
    let zone = "limit_req_zone $uri zone=a:1m rate=9r/s; limit_req zone=a;\n";
    limits(&format!("{zone}limit_req_status 418;"), &format!("{limit}status = 418\n"), "");
    let closed = "2 Differs Weir answers 429 in place of closing the connection";
    limits(&format!("{zone}limit_req_status 444;"), limit, closed);
    let zone = "limit_conn_zone $uri zone=a:1m; limit_conn a 3;\n";
    let limit = "[[limit]]\nname = \"a\"\nkey = [\"path\"]\nalgorithm = \"concurrency\"\nmax = 3\n";
    limits(&format!("{zone}limit_conn_status 444;"), limit, closed);
}

/// The first expression of the file that matches has a request, but an exact location and `^~` go before it.
#[test]
fn expressions_keep_their_order() {
    let zones = "limit_req_zone $remote_addr zone=a:1m rate=1r/s; limit_req_zone $remote_addr zone=b:1m rate=2r/s;";
    let around = "its requests meet the limits of the paths around it";
    let unused = "LeftOut it belongs to a block that is left out";
    let never = |line| format!("LeftOut nginx takes the expression of line {line}; {around}");
    let none =
        format!("LeftOut Weir does not translate regular expressions; write `match.path_regex` by hand; {around}");
    let files = "Differs nginx serves files here, and Weir forwards to the service around it";
    for (locations, limited, report) in [
        (
            "location ~ ^/api/ { limit_req zone=a; }\nlocation ~ ^/api/search$ { limit_req zone=b; }\n\
             location ~ ^/api/export/ { }",
            "match = { path = [\"/api/{*rest}\"] }",
            format!("2 {files}\n3 {unused}\n3 {}\n4 {}", never(2), never(2)),
        ),
        (
            "location ~ ^/api/search$ { }\nlocation ~ ^/api/ { limit_req zone=a; }",
            "match = { path = [\"/api/{*rest}\"] }\nexcept = { path = [\"/api/search\"] }",
            format!("2 {files}\n3 {files}"),
        ),
        (
            "location ~* ^/b/ { }\nlocation ~ ^/b/c/ { }\nlocation ~ ^/api/ { limit_req zone=a; }",
            "match = { path = [\"/api/{*rest}\"] }",
            format!("2 {none}\n3 {}\n4 {files}", never(2)),
        ),
        (
            "location ~ ^/api/ { limit_req zone=a; }\nlocation = /api/health { }\nlocation ^~ /api/static/ { }\n\
             location ^~ /images/ { }",
            "match = { path = [\"/api/{*rest}\"] }\n\
             except = { path = [\"/api/health\", \"/api/static/{*rest}\"] }",
            format!("2 {files}\n3 {files}\n4 {files}\n5 {files}"),
        ),
        (
            "location ~ ^/api/v1/ { }\nlocation ~ ^/x$ { }\nlocation = /x { }\n\
             location ^~ /api/ { limit_req zone=a; }\nlocation /b/c/ { limit_req zone=a; }\nlocation ~ ^/b/ { }",
            "match = { path = [\"/api/{*rest}\", \"/b/c/{*rest}\"] }",
            format!("2 {none}\n3 {none}\n4 {files}\n5 {files}\n6 {files}\n7 {none}"),
        ),
    ] {
        let text = format!("{zones}\n{locations}\nlocation / {{ proxy_pass http://127.0.0.1:9000; }}");
        let limit = format!(
            "[[limit]]\nname = \"a\"\nstage = \"arrival\"\n{limited}\nkey = [\"ip\"]\nrate = \"1/s\"\nburst = 1\n"
        );
        check("nginx", &text, &format!("{SERVICE}{limit}"), &report);
    }
}

#[test]
fn keys_are_variables_geo_and_map() {
    let limited = |key: &str, more: &str, report: &str| {
        let text = format!("{more}\nlimit_conn_zone {key} zone=a:1m; limit_conn a 3;");
        let (matches, key) = match report.split_once("=>") {
            Some(parts) => parts,
            None => ("", report),
        };
        let (key, report) = key.split_once("!!").unwrap_or((key, ""));
        let rule = format!("{key}\nalgorithm = \"concurrency\"\nmax = 3\n");
        limits(&text, &format!("[[limit]]\nname = \"a\"\n{matches}\n{rule}"), report);
    };
    for (key, report) in [
        ("$binary_remote_addr", r#"key = ["ip"]"#),
        ("$server_name", "key = []!!2 Differs nginx limits nothing in a server without `server_name`, Weir does"),
        ("all", "key = []"),
        ("$host$uri", r#"key = ["host", "path"]"#),
        ("$http_x_key", r#"match = { header = { "x-key" = "*" } } => key = ["header:x-key"]"#),
        ("$remote_addr$http_x_key", r#"key = ["ip", "header:x-key"]"#),
        ("${arg_k}", r#"key = ["query:k"]!!2 Differs requests without the values of the key share one budget"#),
        ("$cookie_s$remote_addr", r#"key = ["cookie:s", "ip"]"#),
        ("$request_uri", r#"key = ["uri"]!!2 Differs the part `uri` has the normalised path"#),
    ] {
        limited(key, "", report);
    }
    let geo = "geo $g { default 1; 10.0.0.0/8 0; 192.0.2.7 0; 198.51.100.0/24 1; }";
    let map = "map $g $m { 0 \"\"; 1 $binary_remote_addr; }";
    let except = "except = { ip = [\"10.0.0.0/8\", \"192.0.2.7/32\"] }\nkey = [\"ip\"]";
    limited("$m", &format!("{geo} {map}"), except);
    let map = "map $request_method $m { default \"\"; POST $remote_addr; PUT $remote_addr; }";
    limited("$m", map, "match = { method = [\"POST\", \"PUT\"] } => key = [\"ip\"]");
}

#[test]
fn keys_without_a_part_are_reported() {
    for (key, why) in [
        ("$remote_user", "Weir has no part of a key for `$remote_user`"),
        ("\"\"", "an empty key limits nothing"),
        ("$m", "Weir has no such condition as a `map` of `$http_x`"),
        ("$e", "its `map` has a regular expression"),
        ("$g", "Weir cannot limit only the networks that it names"),
        ("$t", "it has other keys for some networks"),
        ("$n", "it limits a part of a network without limits"),
    ] {
        let text = format!(
            "limit_req_zone {key} zone=a:1m rate=1r/s; limit_req zone=a;\n\
             map $http_x $m {{ default $remote_addr; secret \"\"; }} map $http_x $e {{ ~a $remote_addr; }}\n\
             geo $g {{ 10.0.0.0/8 1; }} geo $t {{ default 1; 10.0.0.0/8 2; }}\n\
             geo $n {{ default 1; 10.0.0.0/8 \"\"; 10.1.0.0/16 1; }}"
        );
        let imported = import("nginx", &text);
        assert!(!imported.is_exact() && imported.config.contains("mode = \"off\""), "{}", imported.config);
        let whys: Vec<_> = imported.findings.iter().filter(|finding| finding.line == 1).map(|one| &one.why).collect();
        assert_eq!(whys, [&format!("the limit is missing: {why}"), "the zone `a` is not translated"]);
    }
}

#[test]
fn the_innermost_level_decides() {
    let text = "limit_req_zone $remote_addr zone=a:1m rate=1r/s;
        limit_req_zone $remote_addr zone=b:1m rate=2r/s;
        limit_conn_zone $remote_addr zone=c:1m;
        limit_req zone=a burst=5 nodelay;
        server {
            limit_conn c 9;
            location /login/ { limit_req zone=b nodelay; }
            location = /exact { limit_req zone=b nodelay; }
            location /free/ { limit_req_dry_run on; }
            location /more/ { limit_conn c 9; gzip off; }
        }";
    check(
        "nginx",
        text,
        r#"[upstream]
        url = "http://127.0.0.1:9000"
        [[limit]]
        name = "a"
        stage = "arrival"
        except = { path = ["/login/{*rest}", "/exact", "/free/{*rest}"] }
        key = ["ip"]
        rate = "1/s"
        burst = 6
        [[limit]]
        name = "a-2"
        stage = "arrival"
        mode = "shadow"
        match = { path = ["/free/{*rest}"] }
        key = ["ip"]
        rate = "1/s"
        burst = 6
        [[limit]]
        name = "b"
        stage = "arrival"
        match = { path = ["/login/{*rest}", "/exact"] }
        key = ["ip"]
        rate = "2/s"
        burst = 1
        [[limit]]
        name = "c"
        key = ["ip"]
        algorithm = "concurrency"
        max = 9"#,
        "0 LeftOut there is no service to forward to; set `upstream.url`
        5 Differs the limits of the zone `a` share no budget in Weir
        10 LeftOut Weir has no option for it",
    );
}

#[test]
fn servers_are_hosts_and_proxies_are_routes() {
    let text = "limit_req_zone $server_name zone=s:1m rate=5r/s; # a comment with } and \"
        upstream app { server 10.0.0.1; server 10.0.0.2:81; server unix:/run/a down; least_conn; }
        server {
            listen 80; server_name www.a.test .b.test;
            limit_req zone=s;
            location / { proxy_pass http://app; proxy_set_header Host $host; }
            location /v1/ { proxy_pass http://app/api/; proxy_set_header Host $host; }
            location ~ ^/one\\.x$ { proxy_pass https://other:9443; }
            location ~ \\.php$ { fastcgi_pass 127.0.0.1:9; }
        }
        server { listen 80; server_name *.c.test; location /c/ { limit_req zone=s; proxy_pass http://app; } }
        server { listen 81; return 301 https://$host$request_uri; }";
    check(
        "nginx",
        text,
        r#"listen = ["0.0.0.0:80"]
        [upstreams.other-9443]
        endpoints = ["https://other:9443"]
        host = "upstream"
        [upstreams.app]
        endpoints = ["http://10.0.0.1", "http://10.0.0.2:81"]
        balance = "least_connections"
        [upstreams.app-2]
        endpoints = ["http://10.0.0.1", "http://10.0.0.2:81"]
        host = "upstream"
        balance = "least_connections"
        [[route]]
        match = { host = ["www.a.test", "b.test", "*.b.test"], path = ["/one.x"] }
        upstream = "other-9443"
        [[route]]
        match = { host = ["www.a.test", "b.test", "*.b.test"], path = ["/v1/{*rest}"] }
        upstream = "app"
        rewrite = { strip = "/v1", add = "/api" }
        [[route]]
        match = { host = ["www.a.test", "b.test", "*.b.test"] }
        upstream = "app"
        [[route]]
        match = { host = ["*.c.test"], path = ["/c/{*rest}"] }
        upstream = "app-2"
        [[limit]]
        name = "s"
        stage = "arrival"
        match = { host = ["www.a.test", "b.test", "*.b.test"] }
        key = []
        rate = "5/s"
        burst = 1
        [[limit]]
        name = "s-2"
        stage = "arrival"
        match = { host = ["*.c.test"], path = ["/c/{*rest}"] }
        key = []
        rate = "5/s"
        burst = 1"#,
        "3 Differs nginx also gives requests for unknown hosts to this server; Weir answers 404
        9 LeftOut Weir does not translate regular expressions; write `match.path_regex` by hand; its requests meet the limits of the paths around it
        9 LeftOut it belongs to a block that is left out
        12 LeftOut Weir only forwards requests to services
        12 LeftOut this server has no service and no limit",
    );
}

/// The hosts of each route, and the lines of the report about hosts.
fn hosts(text: &str) -> (Vec<String>, Vec<String>) {
    let imported = import("nginx", text);
    let is_route = |line: &&str| line.starts_with("[[route]]") || line.starts_with("[upstream]");
    let matched = |at: usize| imported.config.lines().skip(at + 1).find(|line| !line.starts_with('#'));
    let lines = imported.config.lines().enumerate().filter(|(_, line)| is_route(line));
    let hosts = lines.map(|(at, _)| {
        let line = matched(at).unwrap().strip_prefix("match = { host = [\"").unwrap_or("*\"");
        line.split('"').next().unwrap().to_owned()
    });
    let said = imported.findings.iter().filter(|finding| finding.why.contains("hosts") || finding.why.contains("404"));
    let said = said.map(|finding| format!("{} {:?} {}", finding.line, finding.kind, finding.why));
    (hosts.collect(), said.collect())
}

#[test]
fn only_the_default_server_has_unknown_hosts() {
    let site =
        |lines: &str| format!("server {{ listen 80; {lines} location / {{ proxy_pass http://127.0.0.1:9; }} }}\n");
    let (a, b, any) = (site("server_name a.test;"), site("server_name b.test;"), site("server_name _;"));
    let refuses = |listen: &str| format!("server {{ listen {listen}; server_name _; return 403; }}\n");
    let also = "nginx also gives requests for unknown hosts to this server; Weir";
    let only = "LeftOut only the default server has requests for unknown hosts in Weir";
    for (text, routes, report) in [
        (a.clone(), vec!["*"], vec![]),
        (format!("{a}{b}"), vec!["a.test", "b.test"], vec![format!("1 Differs {also} answers 404")]),
        (format!("{}{a}", refuses("80 default_server")), vec!["a.test"], vec!["1 Differs Weir answers 404".to_owned()]),
        (format!("{a}{}", refuses("80")), vec!["*"], vec![]),
        (format!("{}{a}", refuses("81 default_server")), vec!["*"], vec![]),
        (format!("{any}{a}{b}"), vec!["a.test", "b.test", "*"], vec![]),
        (format!("{a}{any}"), vec!["*"], vec![format!("2 {only}")]),
        (
            format!("{a}{b}{any}"),
            vec!["a.test", "b.test"],
            vec![format!("1 Differs {also} answers 404"), format!("3 {only}")],
        ),
        (
            format!("{a}{b}{}", any.replace("80;", "81;")),
            vec!["a.test", "b.test", "*"],
            vec![format!("1 Differs {also} gives them to another one")],
        ),
        (format!("{any}{}", any.replace("80;", "81;")), vec!["*"], vec![format!("2 {only}")]),
        (
            format!(
                "server {{ listen 80; server_name b.test; return 404; }}\n{}",
                a.replace("80;", "80 default_server;")
            ),
            vec!["a.test"],
            vec!["1 NotNeeded Weir answers 404, too".to_owned(), format!("2 Differs {also} answers 404")],
        ),
    ] {
        let routes: Vec<_> = routes.into_iter().map(str::to_owned).collect();
        assert_eq!(hosts(&text), (routes, report), "{text}");
    }
}

#[test]
fn refusals_are_denied_or_reported() {
    const OPEN: &str = "LeftOut set `[access]` by hand: Weir refuses nothing for it";
    let deny = |paths: &str| format!("deny = {{ path = [{paths}] }}");
    let [proxy, other] = ["proxy_pass http://127.0.0.1:9000;", "proxy_pass http://127.0.0.1:9001;"];
    for (locations, denied, report) in [
        ("location = /a { return 403; }".to_owned(), deny("\"/a\""), ""),
        ("location /a/ { return 444; }".to_owned(), deny("\"/a/{*rest}\""), "2 Differs Weir answers 403"),
        (format!("location /a/ {{ internal; {other} }}"), deny("\"/a/{*rest}\""), "2 Differs Weir answers 403"),
        (format!("location /a/ {{ return 403; }}\nlocation /a/b/ {{ {other} }}"), String::new(), &format!("2 {OPEN}")),
        ("location /a/ { deny all; }".to_owned(), String::new(), &format!("2 {OPEN}")),
        (
            "location ~ /\\.git { return 404; }".to_owned(),
            String::new(),
            "2 LeftOut Weir does not translate regular expressions; write `match.path_regex` by hand; its requests meet the limits of the paths around it; \
             set `[access]` by hand: Weir refuses nothing for it\n2 LeftOut it belongs to a block that is left out",
        ),
        (
            "location /a/ { gzip on; }".to_owned(),
            String::new(),
            "2 LeftOut Weir has no option for it\n\
             2 Differs nginx serves files here, and Weir forwards to the service around it",
        ),
    ] {
        let text = format!("location / {{ {proxy} }}\n{locations}");
        let imported = import("nginx", &text);
        let found = imported.config.lines().find(|line| line.starts_with("deny")).unwrap_or_default();
        assert_eq!(found, denied, "{text}");
        let findings = imported.findings.iter().filter(|finding| finding.kind != crate::import::Kind::NotNeeded);
        let said: Vec<_> = findings.map(|one| format!("{} {:?} {}", one.line, one.kind, one.why)).collect();
        assert_eq!(said.join("\n"), report, "{text}");
        assert_eq!(imported.config.contains("\"http://127.0.0.1:9001\""), text.contains("/a/b/"), "{text}");
    }
    // A path without a route is 404, unless another server has its requests.
    let site = |hosts: &str| {
        format!(
            "server {{ listen 80; server_name {hosts};\nlocation /a/ {{ {proxy} }}\nlocation / {{ return 404; }}\n}}\n"
        )
    };
    for (text, said) in [
        (site("a.test"), vec![]),
        (site("a.test") + &site("b.test"), vec![]),
        (site("a.test") + &site("*.test"), vec![(3, OPEN)]),
        (site("a.test") + "server { listen 81; server_name a.test; return 403; }", vec![(5, OPEN)]),
        (site("a.test") + "server { listen 80; server_name b.test; location / { return 403; } }", vec![]),
        (
            site("a.test") + &site("_").replace("80;", "81;") + "server { location / { return 403; } }",
            vec![(3, OPEN), (9, OPEN)],
        ),
        ("location / { return 403; }".to_owned(), vec![(1, OPEN)]),
        ("server { return 403; }".to_owned(), vec![(1, OPEN)]),
    ] {
        let findings = import("nginx", &text).findings;
        let found = findings.iter().filter(|finding| OPEN.ends_with(&finding.why));
        assert_eq!(found.map(|one| (one.line, OPEN)).collect::<Vec<_>>(), said, "{text}");
    }
}

#[test]
fn one_zone_has_the_smallest_burst_and_delays_alone() {
    let zones = "limit_req_zone $remote_addr zone=a:1m rate=1r/s; limit_req_zone $uri zone=b:1m rate=1r/s;\n";
    let imported = import(
        "nginx",
        &format!("{zones}location /a/ {{ limit_req zone=a burst=9; }}\nlocation /b/ {{ limit_req zone=a burst=5; }}"),
    );
    assert!(imported.config.contains("burst = 6\n") && !imported.config.contains("hold"), "{}", imported.config);
    let imported = import("nginx", &format!("{zones}limit_req zone=a burst=9; limit_req zone=b burst=5;"));
    assert!(imported.config.contains("burst = 10\n") && !imported.config.contains("hold"), "{}", imported.config);
    assert!(!imported.is_exact());
    let zone = "limit_conn_zone $remote_addr zone=a:1m;\n";
    let imported =
        import("nginx", &format!("{zone}location /a/ {{ limit_conn a 9; }}\nlocation /b/ {{ limit_conn a 5; }}"));
    assert!(imported.config.contains("max = 5\n"), "{}", imported.config);
    let said = imported.findings.iter().filter(|one| one.why.starts_with("Weir has one number of connections"));
    assert_eq!(said.map(|one| one.line).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn settings_of_single_places_hold_for_no_others() {
    let trust = "set_real_ip_from 10.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on;";
    for (text, trusts) in [
        (trust.to_owned(), true),
        (format!("server {{ limit_req zone=a; {trust} }}"), true),
        (format!("server {{ location / {{ {trust} }} }}"), false),
        (format!("server {{ limit_req zone=a; {trust} }} server {{ limit_req zone=a; }}"), false),
        ("set_real_ip_from 10.0.0.1; real_ip_recursive on;".to_owned(), false),
    ] {
        assert_eq!(import("nginx", &text).config.contains("trusted_proxies = [\"10.0.0.1\"]"), trusts, "{text}");
    }
}

#[test]
fn files_are_included_beside_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("nginx.conf", "http { include zones.conf; include sites/*.conf; include gone.conf; include mime.types; }");
    write("zones.conf", "limit_conn_zone $remote_addr zone=c:1m;\n");
    std::fs::create_dir(folder.path().join("sites")).unwrap();
    write("sites/b.conf", "\nserver { limit_conn c 5; location / { proxy_pass http://127.0.0.1:9000; } }\n");
    write("sites/off", "nonsense");
    let format = crate::import::FORMATS.into_iter().find(|format| format.name == "nginx").unwrap();
    let imported = crate::import::import(format, &folder.path().join("nginx.conf"), None).unwrap();
    assert!(
        imported.config.contains("max = 5\n") && imported.config.contains("b.conf:2: server"),
        "{}",
        imported.config
    );
    let left_out: Vec<_> =
        imported.findings.iter().filter(|finding| finding.kind == crate::import::Kind::LeftOut).collect();
    assert!(left_out.len() == 1 && left_out[0].to_string().contains("nginx.conf:1: left out: `http"), "{left_out:?}");
}

#[test]
fn wildcards_of_includes_are_followed_or_noted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("conf.d")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for (name, zone) in [
        ("a-limit.conf", "a"),
        ("b-limits.conf", "b"),
        ("limit.conf", "c"),
        ("d-limit.conf.off", "d"),
        (".e.conf", "e"),
    ] {
        let text = format!("limit_conn_zone $remote_addr zone={zone}:1m; limit_conn {zone} 5;");
        write(&format!("conf.d/{name}"), &text);
    }
    let format = crate::import::FORMATS.into_iter().find(|format| format.name == "nginx").unwrap();
    for (pattern, zones, is_read) in [
        ("*-limit*.conf", "ab", true),
        ("*limit*", "abcd", true),
        ("a*a-limit.conf", "", true),
        ("*.conf*.conf", "", true),
        ("**t*", "abcd", true),
        ("?-limit*.conf", "", false),
        ("[ab]*.conf", "", false),
        ("?-limit.conf", "", false),
    ] {
        write("nginx.conf", &format!("include conf.d/{pattern};\nlimit_conn_zone $host zone=z:1m; limit_conn z 5;"));
        let imported = crate::import::import(format, &folder.path().join("nginx.conf"), None).unwrap();
        let has = |zone: &char| imported.config.contains(&format!("name = \"{zone}\"\n"));
        assert_eq!(('a'..='e').filter(has).collect::<String>(), zones, "{pattern}");
        let is_noted = imported.findings.iter().any(|finding| finding.to_string().contains("nginx.conf:1: left out"));
        assert_eq!(is_noted, !is_read, "{pattern}: {:?}", imported.findings);
    }
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("http {\nserver {", "original:2: the block of `server` has no end"),
        ("a b;\n}", "original:2: `}` without `{`"),
        ("a;\nlisten 80", "original:2: `listen` does not end with `;`"),
        ("a \"b", "original:1: a quoted text has no end"),
        ("a;\n;", "original:2: a directive has no name"),
        (&"a { ".repeat(40), "original:1: blocks or includes are too deep"),
    ] {
        assert_eq!(super::error("nginx", text), error, "{text}");
    }
}
