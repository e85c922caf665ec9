//! Requests find the upstream that is theirs, with the path that it expects.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ops::replace;
use crate::support::{Client, NEVER, Upstream, Weir, over_h2};

/// An upstream that says its name and the target.
fn named(name: &'static str) -> Upstream {
    Upstream::answering(move |request, stream| {
        let body = format!("{name} {}", request.target());
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).is_ok()
    })
}

/// `[upstreams.NAME]` with these endpoints.
pub fn upstream(name: &str, endpoints: &[&Upstream], more: &str) -> String {
    let urls: Vec<_> = endpoints.iter().map(|upstream| format!("\"http://{}\"", upstream.address())).collect();
    format!("[upstreams.{name}]\nendpoints = [{}]\n{more}\n", urls.join(", "))
}

/// A `[[route]]` to it.
pub fn route(matches: &str, upstream: &str, more: &str) -> String {
    format!("[[route]]\nmatch = {{ {matches} }}\nupstream = \"{upstream}\"\n{more}\n")
}

const ROUTES: [(&str, &str, &str); 5] = [
    ("path = \"/v1/{*rest}\", host = \"api.test\"", "api", "rewrite = { strip = \"/v1\", add = \"/api\" }"),
    ("path = [\"/v1\", \"/v1/{*rest}\"], method = \"GET\"", "web", "rewrite = { strip = \"/v1\" }"),
    ("header = { x-beta = \"yes\" }", "api", "rewrite = { add = \"/beta\" }"),
    ("host = [\"*.web.test\", \"[FE80:0::1]\"]", "web", ""),
    ("path = \"/only/{id}\"", "web", ""),
];

fn two_upstreams() -> (Upstream, Upstream, Weir) {
    let (api, web) = (named("api"), named("web"));
    let routes: String = ROUTES.iter().map(|(matches, name, more)| route(matches, name, more)).collect();
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"1000/day\"\n";
    let weir = Weir::with(&format!("{}{}{routes}{limit}", upstream("api", &[&api], ""), upstream("web", &[&web], "")));
    (api, web, weir)
}

#[test]
fn the_first_route_that_matches_takes_a_request() {
    let (_api, _web, weir) = two_upstreams();
    let mut client = Client::connect(weir.address());
    for (head, status, body) in [
        ("GET /v1/a?q=/v1 HTTP/1.1\r\nHost: api.test", 200, "api /api/a?q=/v1"),
        ("GET /v1/ HTTP/1.1\r\nHost: api.test:8080", 200, "api /api/"),
        ("GET /v1 HTTP/1.1\r\nHost: api.test", 200, "web /"),
        ("GET /v1/x/../y HTTP/1.1\r\nHost: other.test", 200, "web /y"),
        ("DELETE /v1/a HTTP/1.1\r\nHost: api.test", 200, "api /api/a"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nX-Beta: yes", 200, "api /beta/a"),
        ("GET / HTTP/1.1\r\nHost: shop.WEB.test", 200, "web /"),
        ("GET / HTTP/1.1\r\nHost: [fe80::0:1]:80", 200, "web /"),
        ("GET /only/1 HTTP/1.1\r\nHost: a", 200, "web /only/1"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\nX-Beta: yes", 200, "api *"),
        ("GET /only/1/2 HTTP/1.1\r\nHost: a", 404, "no route"),
        ("GET /v1/../a HTTP/1.1\r\nHost: api.test", 404, "no route"),
        ("DELETE /v1/a HTTP/1.1\r\nHost: a", 404, "no route"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nX-Beta: no", 404, "no route"),
        ("GET / HTTP/1.1\r\nHost: web.test", 404, "no route"),
    ] {
        let answer = client.send(format!("{head}\r\n\r\n")).answer();
        assert!(answer.status == status && answer.text().contains(body), "{head}: {answer:?}");
    }
}

#[test]
fn a_request_without_a_route_is_not_charged_for() {
    let (api, web, weir) = two_upstreams();
    let mut client = Client::connect(weir.address());
    let answer = client.get("/nowhere");
    assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/problem+json")));
    assert_eq!(weir.metric("weir_problems_total{kind=\"no_route\"}"), 1.0);
    assert_eq!(client.get("/only/1").header("x-ratelimit-remaining"), Some("999"));
    let grpc = "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let answer = client.send(grpc).answer();
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("12")));
    assert_eq!((api.received_count(), web.received_count()), (0, 1));
}

#[test]
fn floods_without_a_route_are_limited_at_arrival() {
    let web = named("web");
    let limit = "[[limit]]\nname = \"flood\"\nstage = \"arrival\"\nkey = []\nrate = \"2/h\"\n";
    let weir = Weir::with(&format!("{}{}{limit}", upstream("web", &[&web], ""), route("path = \"/a\"", "web", "")));
    let mut client = Client::connect(weir.address());
    assert_eq!(["/b", "/a", "/b"].map(|path| client.get(path).status), [404, 200, 429]);
}

#[test]
fn http_2_goes_by_the_same_routes() {
    let (_api, _web, weir) = two_upstreams();
    over_h2(weir.address(), async |mut client, _| {
        for (uri, status, body) in [
            ("http://api.test/v1/a", 200, "api /api/a"),
            ("http://a/v1/a", 200, "web /a"),
            ("http://a/b", 404, "no route"),
        ] {
            let answer = client.ask(http::Request::get(uri)).await.unwrap();
            let text = String::from_utf8_lossy(&answer.body);
            assert!(answer.status == status && text.contains(body), "{uri}: {answer:?}");
        }
    });
}

#[test]
fn one_upstream_needs_no_route() {
    let (one, two) = (named("one"), named("two"));
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&one, &two], "")));
    let mut client = Client::connect(weir.address());
    let said: Vec<_> = (0..4).map(|_| client.get("/x").text()).collect();
    assert_eq!(said, ["one /x", "two /x", "one /x", "two /x"]);
}

/// Answers every request on a Unix socket with its `Host`.
fn on_unix_socket(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut reader, mut host) = (BufReader::new(stream.try_clone().unwrap()), String::new());
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    if let Some(value) = line.strip_prefix("host: ") {
                        value.trim().clone_into(&mut host);
                    }
                    if line == "\r\n" {
                        let len = host.len();
                        write!(&stream, "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{host}").unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_service_may_listen_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    on_unix_socket(&path);
    let url = format!("unix:{}", path.display());
    let one = Weir::with(&format!("[upstream]\nurl = \"{url}\"\n{NEVER}"));
    let many = format!("[upstreams.app]\nendpoints = [\"{url}\"]\nhost = \"upstream\"\n{NEVER}");
    for (weir, host) in [(one, "weir.test"), (Weir::with(&many), "localhost")] {
        let mut client = Client::connect(weir.address());
        for _ in 0..3 {
            let answer = client.get("/");
            assert_eq!((answer.status, answer.text().as_str()), (200, host));
        }
        assert_eq!(Client::connect(weir.address()).send("GET / HTTP/1.0\r\n\r\n").answer().text(), "localhost");
    }
    let gone = Weir::with(&format!("[upstream]\nurl = \"unix:{}.none\"\n{NEVER}", path.display()));
    assert_eq!(Client::connect(gone.address()).get("/").status, 502);
}

#[test]
fn a_reload_moves_routes_and_keeps_what_stays() {
    let (one, two) = (named("one"), named("two"));
    let to = |name: &str| {
        let both = format!("{}{}", upstream("one", &[&one], ""), upstream("two", &[&two], ""));
        let other = if name == "one" { "two" } else { "one" };
        Weir::text(&format!("{both}{}{}{NEVER}", route("path = \"/\"", name, ""), route("path = \"/o\"", other, "")))
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), to("one")).unwrap();
    let weir = Weir::start_in(folder);
    let stop = Arc::new(AtomicBool::new(false));
    let asking = {
        let (stop, address) = (Arc::clone(&stop), weir.address());
        std::thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut asked = 0;
            while !stop.load(Ordering::Relaxed) {
                let answer = client.get("/");
                assert_eq!(answer.status, 200, "{answer:?}");
                asked += 1;
            }
            asked
        })
    };
    let mut client = Client::connect(weir.address());
    for (reloads, name) in (1..).zip(["two", "one", "two", "one"]) {
        replace(&weir.config_file(), &to(name));
        weir.wait_for_lines("\"reloaded\"", reloads);
        assert_eq!(client.get("/").text(), format!("{name} /"));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(asking.join().unwrap() > 0);
    // At most one connection for each of the two workers: what stayed was kept.
    assert!(one.connections() <= 2 && two.connections() <= 2, "{} {}", one.connections(), two.connections());
}

#[test]
fn where_an_answer_points_is_said_as_the_client_asks() {
    let app = Upstream::answering(|request, stream| {
        let host = request.header("host").unwrap();
        let head = "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n";
        let places = format!("location: http://{host}/api/7?a\r\ncontent-location: /api/7\r\nlink: </api/8>\r\n");
        stream.write_all(format!("{head}{places}\r\n").as_bytes()).is_ok()
    });
    let route = |more: &str| {
        format!(
            "[[route]]\nmatch = {{ path = [\"/v1\", \"/v1/{{*rest}}\"] }}\nupstream = \"a\"\n\
             rewrite = {{ strip = \"/v1\", add = \"/api\"{more} }}\n[[route]]\nupstream = \"a\"\n{NEVER}"
        )
    };
    for (host, origin) in [("preserve", "http://weir.test"), ("upstream", "")] {
        let weir = Weir::with(&format!("{}{}", upstream("a", &[&app], &format!("host = \"{host}\"")), route("")));
        let mut client = Client::connect(weir.address());
        let answer = client.get("/v1/users");
        assert_eq!(answer.header("location"), Some(&*format!("{origin}/v1/7?a")), "{host}");
        assert_eq!((answer.header("content-location"), answer.header("link")), (Some("/v1/7"), Some("</api/8>")));
        // Where nothing is changed on the way in, nothing is changed on the way out.
        assert_eq!(client.get("/users").header("content-location"), Some("/api/7"));
        over_h2(weir.address(), async |mut client, _| {
            let answer = client.get("/v1/users").await.unwrap();
            assert_eq!(answer.header("location"), Some(&*format!("{origin}/v1/7?a")), "{host}");
        });
    }
    let as_said = Weir::with(&format!("{}{}", upstream("a", &[&app], ""), route(", locations = false")));
    let answer = Client::connect(as_said.address()).get("/v1/users");
    assert_eq!(answer.header("location"), Some("http://weir.test/api/7?a"));
}
