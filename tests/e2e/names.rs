//! Names of endpoints, as a real name server says them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use crate::ops::until;
use crate::support::{Client, Dns, DnsAnswer, NEVER, Record, Upstream, Weir};

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn weir(dns: &Dns, upstream: &str) -> Weir {
    let dns = format!("[dns]\nservers = [\"{}\"]\n", dns.address());
    let timeouts = "[timeouts]\nconnect = \"1s\"\n";
    Weir::with(&format!("{dns}[upstreams.a]\n{upstream}\n{timeouts}{NEVER}"))
}

fn get(weir: &Weir) -> (u16, String) {
    let answer = Client::connect(weir.address()).get("/");
    (answer.status, answer.text())
}

/// What says who it is, on this address of the loopback.
fn on(ip: Ipv4Addr, port: u16) -> Upstream {
    let listener = TcpListener::bind(SocketAddr::from((ip, port))).unwrap();
    Upstream::listening(listener, move |_, stream| {
        let text = ip.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
        std::io::Write::write_all(stream, format!("{head}{text}").as_bytes()).is_ok()
    })
}

const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn addresses_are_followed_as_long_as_they_are_good_for() {
    let (dns, first) = (Dns::start(), on(LOCAL, 0));
    let port = first.address().port();
    let second = on(OTHER, port);
    dns.addresses("app.test", 1, &[LOCAL]);
    let weir = weir(&dns, &format!("endpoints = [\"http://app.test:{port}\"]"));
    until("it is known", || get(&weir) == (200, LOCAL.to_string()));
    dns.addresses("app.test", 0, &[OTHER]);
    until("it has moved", || get(&weir) == (200, OTHER.to_string()));
    // Both take their turns.
    dns.addresses("app.test", 0, &[LOCAL, OTHER]);
    until("both are known", || get(&weir).1 == LOCAL.to_string());
    let told: Vec<_> = (0..8).map(|_| get(&weir).1).collect();
    assert!(told.contains(&LOCAL.to_string()) && told.contains(&OTHER.to_string()), "{told:?}");
    // An answer that is good for no time at all is not asked for all the time.
    let asked = dns.asked("app.test");
    let pauses: Vec<_> =
        asked.windows(2).map(|pair| pair[1] - pair[0]).filter(|pause| pause.as_millis() > 100).collect();
    assert!(pauses.iter().all(|pause| *pause > Duration::from_millis(900)), "{pauses:?}");
    drop((first, second));
}

/// Whatever goes wrong, the last known addresses stay.
#[test]
fn what_is_known_outlives_its_server() {
    let (dns, app) = (Dns::start(), on(LOCAL, 0));
    dns.addresses("app.test", 1, &[LOCAL]);
    let weir = weir(&dns, &format!("endpoints = [\"http://app.test:{}\"]", app.address().port()));
    until("it is known", || get(&weir).0 == 200);
    dns.tell("app.test", DnsAnswer::Records(Vec::new()));
    weir.wait_for_line("a name has no address");
    assert_eq!(get(&weir).0, 200);
    dns.tell("app.test", DnsAnswer::Silent);
    weir.wait_for_line("a name cannot be looked up");
    assert_eq!(get(&weir).0, 200);
}

#[test]
fn a_name_that_nobody_knows_is_502() {
    let dns = Dns::start();
    let weir = weir(&dns, "endpoints = [\"srv+http://_http._tcp.app.test\"]");
    weir.wait_for_line("a name has no address");
    assert_eq!(get(&weir).0, 502);
    assert!(!dns.asked("_http._tcp.app.test").is_empty());
}

#[test]
fn hosts_that_the_system_knows_need_no_server() {
    let (dns, app) = (Dns::start(), on(LOCAL, 0));
    // Which every /etc/hosts has, and no name server here.
    let weir = weir(&dns, &format!("endpoints = [\"http://localhost:{}\"]", app.address().port()));
    until("it is known", || weir.lines().iter().any(|line| line.contains("a name has other addresses")));
    assert_eq!(get(&weir).0, 200);
    assert!(dns.asked("localhost").is_empty());
}

fn place(priority: u16, weight: u16, port: u16, target: &'static str) -> Record {
    Record::Srv { ttl_s: 1, priority, weight, port, target }
}

#[test]
fn places_of_a_service_get_what_their_weights_say() {
    let (dns, ones) = (Dns::start(), [LOCAL, OTHER, Ipv4Addr::new(127, 0, 0, 3)].map(|ip| on(ip, 0)));
    let ports = ones.each_ref().map(|one| one.address().port());
    dns.addresses("one.test", 60, &[LOCAL]);
    dns.addresses("two.test", 60, &[OTHER]);
    dns.addresses("three.test", 60, &[Ipv4Addr::new(127, 0, 0, 3)]);
    let places = vec![
        place(1, 30, ports[0], "one.test"),
        place(1, 10, ports[1], "two.test"),
        place(2, 90, ports[2], "three.test"),
    ];
    dns.tell("_http._tcp.app.test", DnsAnswer::Records(places));
    let upstream = "endpoints = [\"srv+http://_http._tcp.app.test\"]\neject = { after = 1, for = \"1min\" }";
    let weir = weir(&dns, &format!("{upstream}\nhost = \"upstream\""));
    until("they are known", || get(&weir).0 == 200);
    let mut told = HashMap::<String, u32>::new();
    let mut client = Client::connect(weir.address());
    for _ in 0..400 {
        *told.entry(client.get("/").text()).or_default() += 1;
    }
    let of = |ip: Ipv4Addr| told.get(&ip.to_string()).copied().unwrap_or(0);
    // Two to one would be as likely as not to see a coin fall on one side ten times.
    assert!(of(LOCAL) + of(OTHER) == 400 && (40..160).contains(&of(OTHER)), "{told:?}");
    assert_eq!(ones[0].received()[0].header("host").as_deref(), Some("app.test"));
    // The next priority is for when nothing of the first can be reached.
    let [one, two, three] = ones;
    for gone in [one, two] {
        gone.stop();
    }
    until("the others are out", || get(&weir) == (200, "127.0.0.3".into()));
    assert!((0..10).all(|_| get(&weir) == (200, "127.0.0.3".into())));
    // And what the service says next counts.
    let places = vec![place(0, 0, three.address().port(), "three.test")];
    dns.tell("_http._tcp.app.test", DnsAnswer::Records(places));
    until("only one is left", || {
        weir.metric("weir_endpoint_healthy{endpoint=\"srv+http://_http._tcp.app.test\",upstream=\"a\"}") == 1.0
    });
    assert_eq!(get(&weir), (200, "127.0.0.3".into()));
}
