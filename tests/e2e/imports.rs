//! Configurations of other proxies: the proxy itself and Weir with the imported configuration admit the same requests.
//!
//! Kong, ingress-nginx and the module `rate_limit` of Caddy are in no package registry: Weir admits the numbers of their documentation.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Condvar, Mutex};

use weir::fleet::grpc::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::{Client, Front, Upstream, Weir, poll, poll_for};

/// Runs `weir import`.
fn import(format: &str, file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["import", format]).arg(file).args(["--keys", "of-kong.toml"]);
    command.current_dir(file.parent().unwrap()).output().unwrap()
}

/// Starts Weir with the imported configuration, on ports of its own.
fn start(format: &str, text: &str) -> Weir {
    start_before(format, text, None)
}

/// Starts Weir with the imported configuration in front of `service`, if there is one.
fn start_before(format: &str, text: &str, service: Option<SocketAddr>) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("original");
    std::fs::write(&file, text.replace("$PORT", "8080")).unwrap();
    let output = import(format, &file);
    let written = String::from_utf8(output.stdout).unwrap();
    assert!(!written.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut config: toml::Table = toml::from_str(&written).unwrap();
    let mut set = |table: &str, option: &str, value: toml::Value| {
        let table = config.entry(table).or_insert_with(|| toml::Table::new().into());
        table.as_table_mut().unwrap().insert(option.to_owned(), value);
    };
    set("server", "listen", "127.0.0.1:0".into());
    set("admin", "listen", "127.0.0.1:0".into());
    set("log", "format", "json".into());
    if let Some(service) = service {
        set("upstream", "url", format!("http://{service}").into());
    }
    if format == "ratelimit" {
        set("grpc", "listen", "127.0.0.1:0".into());
    }
    std::fs::write(folder.path().join("weir.toml"), config.to_string()).unwrap();
    Weir::start_in(folder)
}

/// A service that answers `/slow` once the gate is open, and everything else at once.
fn service() -> (Upstream, Arc<(Mutex<bool>, Condvar)>) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let own = Arc::clone(&gate);
    let upstream = Upstream::answering(move |request, stream| {
        if request.target().contains("slow") {
            drop(own.1.wait_while(own.0.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        std::io::Write::write_all(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_ok()
    });
    (upstream, gate)
}

/// Sends the requests of each line at once, and waits for all answers before the next line. Returns how many of each line
/// are answered with 200. A line is `COUNT CLIENT METHOD PATH HOST HEADER`, with `-` for no header.
fn admissions(address: SocketAddr, script: &str) -> Vec<usize> {
    let send = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [count, client, method, path, host, header] = words[..] else { panic!("{line}") };
        let client: Ipv4Addr = client.parse().unwrap();
        let header = if header == "-" { String::new() } else { format!("{}\r\n", header.replacen(':', ": ", 1)) };
        let count = count.parse().unwrap();
        let mut clients: Vec<_> = (0..count).map(|_| Client::connect_from(client, address)).collect();
        for client in &mut clients {
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\ncontent-length: 0\r\n{header}\r\n"));
        }
        clients.iter_mut().filter_map(|client| (client.answer().status == 200).then_some(())).count()
    };
    script.lines().map(str::trim).filter(|line| !line.is_empty()).map(send).collect()
}

/// The numbers in front of each line of `script`, and the lines for [`admissions`].
fn rows(script: &str) -> (Vec<usize>, String) {
    let rows = script.lines().filter_map(|line| line.trim().split_once(" of "));
    let (expected, script): (Vec<_>, Vec<_>) =
        rows.map(|(admitted, line)| (admitted.trim().parse::<usize>().unwrap(), line)).unzip();
    (expected, script.join("\n"))
}

/// Checks that the proxy and Weir admit the numbers of requests in front of each line of `script`.
fn compare(format: &str, text: &str, script: &str) {
    let (upstream, _gate) = service();
    let text = text.replace("$UPSTREAM", &upstream.address().to_string());
    let text = text.replace("$SERVICE_PORT", &upstream.address().port().to_string());
    let front = front(format, &text);
    let weir = start(format, &text);
    let (expected, script) = rows(script);
    assert_eq!(admissions(front.address(), &script), expected, "{format}: {text}");
    assert_eq!(admissions(weir.address(), &script), expected, "weir: {text}");
}

/// Checks that Weir admits the numbers of requests in front of each line of `script`.
fn admits(format: &str, text: &str, script: &str) {
    let (upstream, _gate) = service();
    let text = text.replace("$UPSTREAM", &upstream.address().to_string());
    let weir = start_before(format, &text, (format == "ingress").then(|| upstream.address()));
    let (expected, script) = rows(script);
    assert_eq!(admissions(weir.address(), &script), expected, "{text}");
}

/// Checks that the proxy and Weir admit `admitted` of `count` requests at once while the service is slow, and soon after it
/// the numbers of `script`.
fn compare_slow(format: &str, text: &str, count: usize, admitted: usize, script: &str) {
    let (upstream, gate) = service();
    let text = text.replace("$UPSTREAM", &upstream.address().to_string());
    let (after, script) = rows(script);
    let at_once = |address: SocketAddr| {
        *gate.0.lock().unwrap() = false;
        let before = upstream.received_count();
        let mut clients: Vec<_> = (0..count).map(|_| Client::connect(address)).collect();
        for client in &mut clients {
            client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        poll(|| {
            let answered = clients.iter_mut().filter_map(|client| client.has_more().then_some(())).count();
            (answered + upstream.received_count() - before == count).then_some(())
        });
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        let slow = clients.iter_mut().filter_map(|client| (client.answer().status == 200).then_some(())).count();
        // A proxy may count a request for a moment after its client has the answer.
        poll_for(&format!("{after:?} of {script:?}"), || (admissions(address, &script) == after).then_some(()));
        slow
    };
    let front = front(format, &text);
    assert_eq!(at_once(front.address()), admitted, "{format}: {text}");
    assert_eq!(at_once(start(format, &text).address()), admitted, "weir: {text}");
}

pub fn front(format: &str, text: &str) -> Front {
    match format {
        "nginx" => Front::nginx(text),
        "envoy" => Front::envoy(text),
        "traefik" => Front::traefik(text),
        _ => Front::haproxy(text, ""),
    }
}

/// A configuration of `HAProxy` with these rules of its frontend.
pub fn haproxy(rules: &str) -> String {
    format!(
        "global\nnbthread 1\ndefaults\nmode http\ntimeout connect 5s\ntimeout client 1m\ntimeout server 1m\n\
         timeout tarpit 1s\nfrontend web\nbind 127.0.0.1:$PORT\n{rules}\ndefault_backend app\n\
         backend app\nserver one $UPSTREAM\n"
    )
}

/// The blocks of nginx in which the tests place `http` and a location.
pub fn nginx(http: &str, location: &str) -> String {
    format!(
        "{http}\nserver {{ listen 127.0.0.1:$PORT; server_name a; location / {{ {location} proxy_pass http://$UPSTREAM; }} }}"
    )
}

/// The first example of the module `ngx_http_limit_req_module`.
#[test]
fn nginx_limits_a_location_and_delays() {
    let text = "limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;
        server {
            listen 127.0.0.1:$PORT;
            location / { proxy_pass http://$UPSTREAM; }
            location /search/ { limit_req zone=one burst=5; proxy_pass http://$UPSTREAM; }
        }";
    compare(
        "nginx",
        text,
        "6 of 10 127.0.0.1 GET /search/?q=1 a -
         9 of 9 127.0.0.1 GET /searches a -
         2 of 2 127.0.0.2 GET /search/x a -",
    );
}

/// Two-stage limiting, as in the article of nginx about rate limits.
#[test]
fn nginx_delays_a_part_of_a_burst() {
    let zone = "limit_req_zone $binary_remote_addr zone=ip:10m rate=30r/m;";
    // The last one waits as long as it may. Requests before it, one by one, leave it some milliseconds.
    let script = "1 of 1 127.0.0.1 GET / a -\n".repeat(5) + "8 of 20 127.0.0.1 GET / a -";
    compare("nginx", &nginx(zone, "limit_req zone=ip burst=12 delay=8;"), &script);
}

/// The second example of `ngx_http_limit_req_module`, with slower rates and without delays.
#[test]
fn nginx_limits_clients_and_the_server() {
    let zones = "limit_req_zone $binary_remote_addr zone=perip:10m rate=1r/m;
        limit_req_zone $server_name zone=perserver:10m rate=10r/m;";
    let text = nginx(zones, "limit_req zone=perip burst=5 nodelay; limit_req zone=perserver burst=10 nodelay;");
    compare(
        "nginx",
        &text,
        "6 of 20 127.0.0.1 GET / a -
         5 of 20 127.0.0.2 GET / b -
         0 of 5 127.0.0.3 GET / c -",
    );
}

/// The list of allowed networks of the same article: two zones, of which one exempts networks.
#[test]
fn nginx_exempts_networks() {
    let zones = "geo $limit { default 1; 127.0.0.2 0; 127.0.3.0/24 0; }
        map $limit $limit_key { 0 \"\"; 1 $binary_remote_addr; }
        limit_req_zone $limit_key zone=req_zone:10m rate=5r/m;
        limit_req_zone $binary_remote_addr zone=req_zone_wl:10m rate=15r/m;";
    let text = nginx(zones, "limit_req zone=req_zone burst=3 nodelay; limit_req zone=req_zone_wl burst=8 nodelay;");
    compare(
        "nginx",
        &text,
        "4 of 20 127.0.0.1 GET / a -
         9 of 20 127.0.0.2 GET / a -
         9 of 20 127.0.3.9 GET / a -
         4 of 20 127.0.4.9 GET / a -",
    );
}

#[test]
fn nginx_replaces_limits_of_outer_levels() {
    let text = "limit_req_zone $binary_remote_addr zone=all:1m rate=1r/m;
        limit_req_zone $http_x_key zone=key:1m rate=1r/m;
        map $request_method $post { default \"\"; POST $binary_remote_addr; }
        limit_req_zone $post zone=post:1m rate=1r/m;
        limit_req zone=all burst=4 nodelay;
        server {
            listen 127.0.0.1:$PORT;
            location / { proxy_pass http://$UPSTREAM; }
            location /key/ { limit_req zone=key burst=1 nodelay; proxy_pass http://$UPSTREAM; }
            location = /post { limit_req zone=post; proxy_pass http://$UPSTREAM; }
            location /free/ { limit_req_dry_run on; proxy_pass http://$UPSTREAM; }
            location /docs/ { proxy_pass http://$UPSTREAM/; }
        }";
    compare(
        "nginx",
        text,
        "2 of 9 127.0.0.1 GET /key/a a x-key:one
         2 of 9 127.0.0.2 GET /key/b a x-key:two
         9 of 9 127.0.0.1 GET /key/ a -
         1 of 9 127.0.0.1 POST /post a -
         9 of 9 127.0.0.1 GET /post a -
         9 of 9 127.0.0.1 GET /free/ a -
         5 of 9 127.0.0.9 GET /docs/a a -
         0 of 9 127.0.0.9 GET /a a -",
    );
}

/// The first expression that matches has a request; `=` and `^~` go before all of them.
#[test]
fn nginx_takes_the_first_expression() {
    let locations = [
        "~ ^/api/ { limit_req zone=a burst=2 nodelay;",
        "~ ^/api/export/ {",
        "= /api/health {",
        "^~ /api/static/ {",
        "/ {",
    ];
    let locations = locations.map(|start| format!("location {start} proxy_pass http://$UPSTREAM; }}")).concat();
    compare(
        "nginx",
        &format!(
            "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m;\n\
             server {{ listen 127.0.0.1:$PORT; server_name a; {locations} }}"
        ),
        "3 of 5 127.0.0.1 GET /api/export/a a -
         0 of 2 127.0.0.1 GET /api/a a -
         5 of 5 127.0.0.1 GET /api/health a -
         5 of 5 127.0.0.1 GET /api/static/a a -",
    );
}

/// nginx charges `limit_req` also for requests that `limit_conn` refuses.
#[test]
fn nginx_charges_requests_before_connections() {
    let zones = "limit_req_zone $binary_remote_addr zone=req:1m rate=1r/m;
        limit_conn_zone $binary_remote_addr zone=conn:1m;";
    let text = nginx(zones, "limit_req zone=req burst=8 nodelay; limit_conn conn 3;");
    compare_slow("nginx", &text, 8, 3, "1 of 9 127.0.0.1 GET / a -");
}

/// The first example of the article of `HAProxy` about rate limits, with a longer period.
#[test]
fn haproxy_counts_requests_of_clients() {
    let text = haproxy(
        "stick-table type ipv6 size 100k expire 2m store http_req_rate(1m)
         http-request track-sc0 src
         http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }",
    );
    compare(
        "haproxy",
        &text,
        "20 of 30 127.0.0.1 GET /a a -
         0 of 3 127.0.0.1 GET /b a -
         5 of 5 127.0.0.2 GET /b a -",
    );
}

#[test]
fn haproxy_looks_before_it_counts() {
    let text = haproxy(
        "http-request allow if { src 127.0.4.0/24 }
         acl office src 127.0.0.2 127.0.3.0/24
         acl fast src_http_req_rate(per_ip) ge 5
         http-request deny deny_status 429 if fast !office
         http-request track-sc1 src table per_ip",
    );
    compare(
        "haproxy",
        &format!("{text}\nbackend per_ip\nstick-table type ip size 1m expire 2m store http_req_rate(1m)\n"),
        "5 of 9 127.0.0.1 GET / a -
         9 of 9 127.0.0.2 GET / a -
         9 of 9 127.0.3.7 GET / a -
         9 of 9 127.0.4.7 GET / a -
         0 of 2 127.0.0.1 GET / a -",
    );
}

#[test]
fn haproxy_counts_by_headers_and_paths() {
    let text = haproxy(
        "acl api path_beg /api/
         http-request track-sc0 req.fhdr(x-key) table keys if api
         http-request track-sc1 base32+src table pages
         http-request deny deny_status 429 if api { sc_http_req_rate(0,keys) gt 3 }
         http-request return status 429 if { sc1_http_req_rate gt 6 }",
    );
    compare(
        "haproxy",
        &format!(
            "{text}\nbackend keys\nstick-table type string len 32 size 1m expire 2m store http_req_rate(1m)\n\
             backend pages\nstick-table type binary len 20 size 1m expire 2m store http_req_rate(1m)\n"
        ),
        "3 of 5 127.0.0.1 GET /api/a a x-key:one
         3 of 5 127.0.0.2 GET /api/b a x-key:two
         4 of 4 127.0.0.3 GET /c a x-key:one
         6 of 9 127.0.0.4 GET /c a -
         6 of 9 127.0.0.4 GET /c b -
         6 of 9 127.0.0.4 GET /api/d b -",
    );
}

#[test]
fn haproxy_counts_requests_in_progress() {
    let text = haproxy(
        "stick-table type ip size 100k expire 2m store conn_cur
         http-request track-sc0 src
         http-request deny deny_status 429 if { sc_conn_cur(0) gt 3 }",
    );
    compare_slow("haproxy", &text, 8, 3, "3 of 3 127.0.0.1 GET / a -");
}

#[test]
fn haproxy_refuses_in_the_only_backend() {
    let text = haproxy("http-request track-sc0 src table app\nhttp-request allow if { src 127.0.0.2 }").replace(
        "backend app",
        "backend app\nstick-table type ip size 100k expire 2m store http_req_rate(1m)\n\
         http-request tarpit deny_status 500 if { sc_http_req_rate(0) gt 4 }",
    );
    compare("haproxy", &text, "4 of 9 127.0.0.1 GET / a -\n4 of 9 127.0.0.2 GET / a -");
}

/// A bootstrap configuration of Envoy with these routes, and these options of its local rate limit filter.
pub fn envoy(routes: &str, filter: &str) -> String {
    format!(
        "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: $PORT }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config: {{ virtual_hosts: [{{ name: all, domains: [\"*\"], routes: [{routes}] }}] }}
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config: {{ {LOCAL}, {filter} }}
          - name: envoy.filters.http.router
            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - name: app
    type: STATIC
    load_assignment:
      cluster_name: app
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {ADDRESS} }} }}] }}]
",
        ADDRESS = "{ socket_address: { address: 127.0.0.1, port_value: $SERVICE_PORT } }"
    )
}

/// The start of a configuration of the local rate limit filter that refuses requests.
const LOCAL: &str = "\"@type\": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, \
    stat_prefix: local, filter_enabled: { default_value: { numerator: 100, denominator: HUNDRED } }, \
    filter_enforced: { default_value: { numerator: 100, denominator: HUNDRED } }";

/// A token bucket of Envoy that gets a token each hour.
fn tokens(max: u32) -> String {
    format!("token_bucket: {{ max_tokens: {max}, tokens_per_fill: 1, fill_interval: 3600s }}")
}

#[test]
fn envoy_limits_the_listener_and_routes() {
    let login = format!(
        "{{ match: {{ path: /login }}, route: {{ cluster: app }}, typed_per_filter_config: {{ \
         envoy.filters.http.local_ratelimit: {{ {LOCAL}, {}, status: {{ code: 503 }} }} }} }}",
        tokens(2)
    );
    let off = LOCAL.replacen("numerator: 100", "numerator: 0", 1);
    let free = format!(
        "{{ match: {{ path_separated_prefix: /free }}, route: {{ cluster: app }}, typed_per_filter_config: {{ \
         envoy.filters.http.local_ratelimit: {{ {off}, {} }} }} }}",
        tokens(1)
    );
    let routes = format!("{login}, {free}, {{ match: {{ prefix: / }}, route: {{ cluster: app }} }}");
    compare(
        "envoy",
        &envoy(&routes, &tokens(5)),
        "2 of 5 127.0.0.1 GET /login a -
         9 of 9 127.0.0.1 GET /free/a a -
         5 of 9 127.0.0.2 GET /login/a a -
         0 of 3 127.0.0.1 GET / b -
         0 of 3 127.0.0.3 GET /login b -",
    );
}

#[test]
fn envoy_limits_descriptors() {
    let actions = "{ actions: [{ remote_address: {} }] }, \
        { actions: [{ request_headers: { header_name: x-key, descriptor_key: key } }] }, \
        { actions: [{ generic_key: { descriptor_value: write } }, \
          { request_headers: { header_name: \":method\", descriptor_key: method } }] }, \
        { actions: [{ header_value_match: { descriptor_value: old, headers: [{ name: x-old, present_match: true }] } }] }";
    let routes = format!(
        "{{ match: {{ prefix: /api/ }}, route: {{ cluster: app, rate_limits: [{actions}] }} }}, \
         {{ match: {{ prefix: / }}, route: {{ cluster: app }} }}"
    );
    let descriptor = |entries: &str, max: u32| format!("{{ entries: [{entries}], {} }}", tokens(max));
    let descriptors = [
        descriptor("{ key: remote_address }", 6),
        descriptor("{ key: key, value: gold }", 4),
        descriptor("{ key: generic_key, value: write }, { key: method, value: POST }", 2),
        descriptor("{ key: header_match, value: old }", 1),
    ];
    let filter = format!("{}, descriptors: [{}]", tokens(30), descriptors.join(", "));
    compare(
        "envoy",
        &envoy(&routes, &filter),
        "6 of 9 127.0.0.1 GET /api/a a -
         4 of 9 127.0.0.2 GET /api/a a x-key:gold
         2 of 9 127.0.0.3 POST /api/b a x-key:iron
         1 of 5 127.0.0.4 GET /api/b a x-old:1
         9 of 9 127.0.0.5 GET /b a x-key:gold
         6 of 9 127.0.0.6 GET /api/b a -
         2 of 9 127.0.0.7 GET /api/b a -
         0 of 9 127.0.0.8 GET / a -",
    );
}

/// The rate limit service of Envoy: `remote_address` by value, and nested descriptors.
#[test]
fn ratelimit_limits_descriptors() {
    let text = "domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: day, requests_per_unit: 2 }
  - key: remote_address
    value: 192.0.2.1
    rate_limit: { unlimited: true }
  - key: remote_address
    value: 192.0.2.2
    rate_limit: { unit: day, requests_per_unit: 0 }
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 1 }
";
    let (upstream, _gate) = service();
    let weir = start_before("ratelimit", text, Some(upstream.address()));
    let codes = |words: &str| -> Vec<bool> {
        let answers = (0..3).map(|_| crate::limiter::rate_limit::ask(&weir, 0, &[(words, None)]).unwrap());
        answers.map(|answer| crate::limiter::rate_limit::told(&answer).0 == Code::Ok).collect()
    };
    for (words, admitted) in [
        ("remote_address=192.0.2.7", [true, true, false]),
        ("remote_address=192.0.2.8", [true, true, false]),
        ("remote_address=192.0.2.1", [true; 3]),
        ("remote_address=192.0.2.2", [false; 3]),
        ("message_type=marketing to_number=1", [true, false, false]),
        ("message_type=marketing to_number=2", [true, false, false]),
        ("message_type=marketing", [true; 3]),
        ("message_type=other to_number=2", [true; 3]),
    ] {
        assert_eq!(codes(words), admitted, "{words}");
    }
}

/// `average` requests in a `period`, and `burst` at once, of each address and each router; in flight by host.
#[test]
fn traefik_limits_routers() {
    let text = "http:
  routers:
    api: { rule: PathPrefix(`/api/`) || Path(`/login`), middlewares: [rate], service: app }
    one: { rule: PathPrefix(`/one/`), middlewares: [one], service: app }
    none: { rule: PathPrefix(`/none/`), middlewares: [none], service: app }
    site: { rule: PathPrefix(`/`), middlewares: [rate, flight], service: app }
  middlewares:
    rate: { rateLimit: { average: 1, period: 1h, burst: 4 } }
    one: { rateLimit: { average: 1, period: 1h, burst: 0 } }
    none: { inFlightReq: { amount: 0 } }
    flight: { inFlightReq: { amount: 2 } }
  services:
    app: { loadBalancer: { servers: [{ url: 'http://$UPSTREAM' }] } }
";
    compare(
        "traefik",
        text,
        // Traefik may make two buckets for requests of a new client that come at once.
        "1 of 1 127.0.0.1 GET /api/a a -
         3 of 5 127.0.0.1 GET /api/a a -
         0 of 3 127.0.0.1 GET /api/b b -
         1 of 1 127.0.0.2 GET /login a -
         3 of 5 127.0.0.2 GET /login a -
         1 of 1 127.0.0.2 GET /one/a a -
         0 of 3 127.0.0.2 GET /one/a a -
         0 of 3 127.0.0.2 GET /none/a a -",
    );
    compare_slow("traefik", text, 4, 2, "1 of 1 127.0.0.2 GET / a -");
}

/// `events` in each window, of each key and each zone.
#[test]
fn caddy_limits_zones() {
    admits(
        "caddy",
        ":$PORT {
  handle /api/* {
    rate_limit {
      zone api {
        match {
          method POST
        }
        key {http.request.header.X-Key}
        events 3
        window 1h
      }
    }
    reverse_proxy $UPSTREAM
  }
  handle {
    rate_limit {
      zone site {
        key {remote_host}
        events 2
        window 1h
      }
    }
    reverse_proxy $UPSTREAM
  }
}
",
        "3 of 5 127.0.0.1 POST /api/a a X-Key:1
         3 of 5 127.0.0.1 POST /api/b b X-Key:2
         5 of 5 127.0.0.1 GET /api/a a X-Key:1
         2 of 5 127.0.0.1 GET / a -
         2 of 5 127.0.0.2 GET /x a -",
    );
}

/// Windows of the calendar; the plugin of a route replaces that of its service.
#[test]
fn kong_limits_routes_and_services() {
    let text = "_format_version: '3.0'
services:
- name: app
  url: http://$UPSTREAM
  plugins:
  - { name: rate-limiting, config: { day: 5, month: 100, limit_by: header, header_name: X-Client } }
  routes:
  - name: api
    paths: [/api/]
    plugins: [{ name: rate-limiting, config: { day: 2, limit_by: ip } }]
  - { name: all, paths: [/] }
";
    admits(
        "kong",
        text,
        "2 of 4 127.0.0.1 GET /api/a a x-client:one
         5 of 7 127.0.0.1 GET /a a x-client:one
         5 of 7 127.0.0.2 GET /b a x-client:two
         0 of 2 127.0.0.3 GET /b a x-client:two
         2 of 4 127.0.0.3 GET /api/b a x-client:two
         5 of 7 127.0.0.3 GET /b a -",
    );
}

/// Weir verifies the keys that consumers have from Kong; groups are plans, and an instance of a consumer is an override.
#[test]
fn kong_limits_consumers_and_groups() {
    let text = "_format_version: '3.0'
services:
- { name: app, url: 'http://$UPSTREAM', routes: [{ name: all, paths: [/], strip_path: false }] }
plugins:
- { name: key-auth, config: { key_names: [x-key], key_in_query: false } }
- { name: rate-limiting, config: { day: 2 } }
- { name: rate-limiting, consumer_group: gold, config: { day: 4 } }
consumer_groups: [{ name: gold }]
consumers:
- { username: plain, keyauth_credentials: [{ key: plain-0123456789a }] }
- username: golden
  groups: [{ name: gold }]
  keyauth_credentials: [{ key: golden-0123456789 }, { key: golden-abcdefghij }]
- username: own
  groups: [{ name: gold }]
  keyauth_credentials: [{ key: own-0123456789abc }]
  plugins: [{ name: rate-limiting, config: { day: 3 } }]
";
    admits(
        "kong",
        text,
        "2 of 4 127.0.0.1 GET /a a x-key:plain-0123456789a
         3 of 3 127.0.0.1 GET /a a x-key:golden-0123456789
         1 of 3 127.0.0.1 GET /a a x-key:golden-abcdefghij
         3 of 5 127.0.0.1 GET /a a x-key:own-0123456789abc
         0 of 2 127.0.0.1 GET /a a x-key:nobody-0123456789
         0 of 2 127.0.0.1 GET /a a -",
    );
}

/// `limit-rpm` with the burst of 5 times its count, and nginx's request beyond it; `limit-whitelist`.
#[test]
fn ingress_limits_addresses() {
    let text = "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: app
  annotations:
    nginx.ingress.kubernetes.io/limit-rpm: '1'
    nginx.ingress.kubernetes.io/limit-whitelist: 127.0.1.0/24
spec:
  rules:
  - http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: app, port: { number: 80 } } } }] }
";
    admits(
        "ingress",
        text,
        "6 of 9 127.0.0.1 GET /a a -
         9 of 9 127.0.1.1 GET /a a -
         6 of 9 127.0.0.2 GET /a b -",
    );
}
