//! Upgrades with several upstreams: permission by route, and the count at endpoints.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;

use super::{AGREE, ASK, OPEN, echo, echoing, h2, upgraded};
use crate::attacks::h2_frames::{Fate, H2};
use crate::routes::{route, upstream};
use crate::support::{Client, NEVER, Upstream, Weir};

/// A handshake with this target.
fn ask(target: &str) -> String {
    ASK.replace("/chat", target)
}

/// Permissions in upstreams and routes, and whether the upgrade is allowed.
const ROUTES: [(&str, &str, &str, bool); 5] = [
    ("/chat", "a", "", true),
    ("/a/other", "a", "upgrade = \"irc\"", false),
    ("/a/none", "a", "upgrade = []", false),
    ("/b/chat", "b", "upgrade = [\"x\", \"WebSocket\"]\nrewrite = { strip = \"/b\" }", true),
    ("/b/none", "b", "", false),
];

fn routed(upstreams: &str) -> Weir {
    let routes = ROUTES.map(|(path, name, more, _)| route(&format!("path = \"{path}\""), name, more));
    let limits = "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1000/day\"\n";
    Weir::with(&format!("{upstreams}{}{limits}", routes.concat()))
}

#[test]
fn a_route_overrides_its_upstream() {
    let (a, b) = (echoing(), echoing());
    let weir = routed(&format!("{}{}", upstream("a", &[&a], "upgrade = [\"websocket\"]"), upstream("b", &[&b], "")));
    for (path, _, more, may) in ROUTES {
        let mut client = Client::connect(weir.address());
        client.send(ask(path));
        if may {
            assert_eq!(client.head().unwrap().status, 101, "{path} {more}");
            echo(&mut client, "hello");
        } else {
            assert_eq!((client.answer().status, client.get(path).status), (200, 200), "{path} {more}");
        }
    }
    assert_eq!(a.targets(), ["/chat", "/a/other", "/a/other", "/a/none", "/a/none"]);
    assert_eq!(b.targets(), ["/chat", "/b/none", "/b/none"]);
}

/// Unlike an upgrade, it cannot be forwarded as an ordinary request.
#[test]
fn a_connect_is_refused_where_its_route_does_not_allow_it() {
    let (a, b) = (h2::echoing(), h2::echoing());
    let weir = routed(&format!("{}{}", upstream("a", &[&a], "upgrade = [\"websocket\"]"), upstream("b", &[&b], "")));
    let mut h2 = H2::connect(weir.address());
    for ((path, _, more, may), stream) in ROUTES.into_iter().zip((1..).step_by(2)) {
        let mut fields = h2::CONNECT;
        fields[4].1 = path.as_bytes();
        let expected = if may { 200 } else { 405 };
        assert_eq!(h2.head(stream, &fields).fate(stream), Fate::Status(expected), "{path} {more}");
    }
    assert_eq!((a.targets(), b.targets()), (vec!["/chat".to_owned()], vec!["/chat".to_owned()]));
    assert_eq!(weir.metric(OPEN), 2.0);
    // The refused request was not charged.
    let rest = Client::connect(weir.address()).get("/b/none");
    assert_eq!(rest.header("x-ratelimit-remaining"), Some("997"));
}

/// HTTP/2 clients may ask if any route allows it.
#[test]
fn one_route_allows_the_setting() {
    let app = echoing();
    for (upgrade, may) in [("", false), ("upgrade = [\"x\"]", false), ("upgrade = [\"websocket\"]", true)] {
        let routes = route("path = \"/chat\"", "a", upgrade);
        let weir = Weir::with(&format!("{}{routes}{NEVER}", upstream("a", &[&app], "")));
        assert_eq!(h2::takes_connect(&weir), may, "{upgrade}");
    }
}

const CONNECTIONS: &str = "weir_endpoint_connections";

fn of_endpoint(name: &str, upstream: &Upstream, more: &str) -> String {
    format!("{name}{{endpoint=\"http://{}\",{more}upstream=\"a\"}}", upstream.address())
}

/// The client is a trusted proxy, so that its requests are not those of one client, which may use a part of the connections.
fn capped(app: &Upstream, more: &str) -> Weir {
    let text = Weir::text(&format!("{}{NEVER}", upstream("a", &[app], &format!("upgrade = [\"websocket\"]\n{more}"))));
    Weir::start_as(&text.replace("[server]", "[server]\ntrusted_proxies = [\"127.0.0.1\"]"))
}

#[test]
fn an_upgrade_counts_as_a_connection_of_its_endpoint() {
    let app = echoing();
    let weir = capped(&app, "max_connections = 2\nqueue_timeout = \"1s\"");
    let connections = of_endpoint(CONNECTIONS, &app, "");
    let (mut one, other) = (upgraded(&weir), upgraded(&weir));
    assert_eq!(weir.metric(&connections), 2.0);
    for request in [ASK, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"] {
        assert_eq!(Client::connect(weir.address()).send(request).answer().status, 503, "{request}");
    }
    drop(other);
    weir.wait_for_metric(&connections, |open| open == 1.0);
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    echo(&mut one, "still here");
    drop(one);
    weir.wait_for_metric(OPEN, |open| open == 0.0);
    assert_eq!((app.targets(), weir.metric(&connections)), (vec!["/chat".into(), "/chat".into(), "/".into()], 1.0));
}

/// Its end wakes waiting requests.
#[test]
fn the_end_of_an_upgrade_wakes_a_waiter() {
    let app = echoing();
    let weir = capped(&app, "max_connections = 1\nqueue_timeout = \"1h\"");
    let first = upgraded(&weir);
    let (mut second, mut third) = (Client::connect(weir.address()), Client::connect(weir.address()));
    let queued = "weir_upstream_queued{upstream=\"a\"}";
    second.send(ASK);
    weir.wait_for_metric(queued, |queued| queued == 1.0);
    third.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    weir.wait_for_metric(queued, |queued| queued == 2.0);
    drop(first);
    assert_eq!(second.head().unwrap().status, 101);
    echo(&mut second, "mine now");
    assert_eq!(weir.metric(queued), 1.0);
    drop(second);
    assert_eq!(third.answer().status, 200);
}

/// An idle connection closes for it, on any worker.
#[test]
fn an_upgrade_replaces_an_idle_connection() {
    let app = echoing();
    // Shorter than the time between two sweeps of idle connections.
    let weir = capped(&app, "max_connections = 1\nqueue_timeout = \"900ms\"");
    let mut refused = 0;
    for _ in 0..20 {
        let mut clients = [(); 2].map(|()| Client::connect(weir.address()));
        match clients[0].get("/").status {
            200 => {}
            status => {
                assert_eq!(status, 503);
                refused += 1;
            }
        }
        match clients[1].send(ASK).head().unwrap().status {
            101 => echo(&mut clients[1], "hello"),
            status => {
                assert_eq!(status, 503);
                refused += 1;
            }
        }
    }
    // A busy machine may stop for so long, but not again and again.
    assert!(refused <= 4, "{refused} of 40");
    weir.wait_for_metric(OPEN, |open| open == 0.0);
    app.wait_until(|app| app.connections() <= 1);
}

#[test]
fn an_upgrade_counts_as_load_until_it_closes() {
    let (one, other) = (echoing(), echoing());
    for balance in ["least_connections", "p2c"] {
        let more = format!("upgrade = [\"websocket\"]\nbalance = \"{balance}\"");
        let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &[&one, &other], &more)));
        let before = [&one, &other].map(Upstream::received_count);
        let mut open: Vec<_> = (0..6).map(|_| upgraded(&weir)).collect();
        let after = [&one, &other].map(Upstream::received_count);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [3, 3], "{balance}");
        for client in &mut open {
            echo(client, "hello");
        }
        open.clear();
        weir.wait_for_metric(OPEN, |open| open == 0.0);
        // Both endpoints are idle again, so that both get requests.
        let before = after;
        for _ in 0..40 {
            assert_eq!(Client::connect(weir.address()).get("/").status, 200);
        }
        let after = [&one, &other].map(Upstream::received_count);
        assert!(before[0] < after[0] && before[1] < after[1], "{balance}: {before:?} {after:?}");
    }
}

/// A 101 for something else is a failure of the endpoint. An unreachable endpoint is skipped.
#[test]
fn failed_upgrades_count_against_their_endpoint() {
    let liar = Upstream::serving(|mut peer| {
        let _ = peer.head();
        peer.send(AGREE.replace("s3p", "S3p"));
        peer.rest();
    });
    let (good, gone) = (echoing(), Upstream::start());
    let more = "upgrade = [\"websocket\"]\neject = { after = 1, for = \"1h\" }";
    let text = format!("{}{NEVER}", upstream("a", &[&liar, &gone, &good], more));
    gone.stop();
    let weir = Weir::with(&text);
    let statuses: Vec<_> = (0..12).map(|_| Client::connect(weir.address()).send(ASK).head().unwrap().status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 502).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 101).count(), 11, "{statuses:?}");
    let count = |upstream, result| {
        weir.metric(&of_endpoint("weir_endpoint_requests_total", upstream, &format!("result=\"{result}\",")))
    };
    assert_eq!([count(&liar, "failed"), count(&liar, "answered")], [1.0, 0.0]);
    assert_eq!([count(&good, "failed"), count(&good, "answered")], [0.0, 11.0]);
}

#[test]
fn an_upgrade_reaches_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let service = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        reader.get_mut().write_all(AGREE.as_bytes()).unwrap();
        let mut heard = Vec::new();
        reader.read_to_end(&mut heard).unwrap();
        reader.get_mut().write_all(&[b"heard ", &*heard].concat()).unwrap();
    });
    let more = "upgrade = [\"websocket\"]\nmax_connections = 1\nbalance = \"least_connections\"";
    let endpoints = format!("endpoints = [\"unix:{}\"]", path.display());
    let weir = Weir::with(&format!("[upstreams.a]\n{endpoints}\n{more}\n{NEVER}"));
    let mut client = upgraded(&weir);
    client.send("all of it");
    client.finish();
    assert_eq!(client.rest(), b"heard all of it");
    service.join().unwrap();
    weir.wait_for_metric(OPEN, |open| open == 0.0);
}
