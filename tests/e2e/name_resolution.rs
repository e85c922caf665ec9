//! Names of endpoints, resolved by a real name server.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use crate::ops::until;
use crate::support::{A, AAAA, Client, Dns, DnsAnswer, NEVER, REFUSED, Record, SERVFAIL, Upstream, Weir, free_port};

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

/// An upstream on this loopback address that answers with its address.
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
fn a_name_is_looked_up_again_after_its_time_to_live() {
    let (dns, port) = (Dns::start(), free_port());
    let (first, second) = (on(LOCAL, port), on(OTHER, port));
    dns.addresses("app.test", 1, &[LOCAL]);
    let weir = weir(&dns, &format!("endpoints = [\"http://app.test:{port}\"]"));
    weir.wait_until("an address is known", || get(&weir) == (200, LOCAL.to_string()));
    dns.addresses("app.test", 0, &[OTHER]);
    weir.wait_until("the new address is used", || get(&weir) == (200, OTHER.to_string()));
    // Both addresses get requests in turn.
    dns.addresses("app.test", 0, &[LOCAL, OTHER]);
    weir.wait_until("both are known", || get(&weir).1 == LOCAL.to_string());
    let answers: Vec<_> = (0..8).map(|_| get(&weir).1).collect();
    assert!(answers.contains(&LOCAL.to_string()) && answers.contains(&OTHER.to_string()), "{answers:?}");
    // A time to live of 0 does not cause continuous lookups: each second has one, which is a few queries.
    let asked = dns.asked("app.test");
    let took = asked[asked.len() - 1] - asked[0];
    assert!(asked.len() as u64 <= 8 * (2 + took.as_secs()), "{} queries in {took:?}", asked.len());
    drop((first, second));
}

/// The last known addresses stay, whatever the DNS answers.
#[test]
fn known_addresses_outlive_their_name_server() {
    let (dns, app) = (Dns::start(), on(LOCAL, 0));
    dns.addresses("app.test", 1, &[LOCAL]);
    let weir = weir(&dns, &format!("endpoints = [\"http://app.test:{}\"]", app.address().port()));
    weir.wait_until("an address is known", || get(&weir).0 == 200);
    dns.tell("app.test", DnsAnswer::Records(Vec::new()));
    weir.wait_for_line("a name has no address");
    assert_eq!(get(&weir).0, 200);
    dns.tell("app.test", DnsAnswer::Silent);
    weir.wait_for_line("a name cannot be looked up");
    assert_eq!(get(&weir).0, 200);
}

/// The addresses of a family stay while the name server answers only for the other one.
#[test]
fn the_addresses_of_a_family_outlive_its_answer() {
    let (dns, port) = (Dns::start(), free_port()); // nothing listens on it at ::1
    let _app = on(LOCAL, port);
    let (v4, v6) = (Record::A { ttl_s: 1, address: LOCAL }, Record::Aaaa { ttl_s: 1, address: Ipv6Addr::LOCALHOST });
    let of_service = place(0, 1, port, "app.test");
    let host = format!("http://app.test:{port}");
    for (endpoint, codes) in [(&*host, [SERVFAIL, REFUSED]), ("srv+http://_http._tcp.app.test", [REFUSED, SERVFAIL])] {
        dns.tell("_http._tcp.app.test", DnsAnswer::Records(vec![of_service.clone()]));
        dns.tell("app.test", DnsAnswer::Records(vec![v4.clone(), v6.clone()]));
        let weir = weir(&dns, &format!("endpoints = [\"{endpoint}\"]"));
        weir.wait_until("an address is known", || get(&weir).0 == 200);
        let rows = [(A, &v6, LOCAL.to_string()), (AAAA, &v4, "[::1]".to_owned())];
        for ((failing, record, kept), code) in rows.into_iter().zip(codes) {
            dns.tell("app.test", DnsAnswer::Failing(failing, code, vec![record.clone()]));
            weir.wait_until("a part is kept", || {
                let lines = weir.lines();
                lines.iter().any(|line| line.contains("a name is answered in part") && line.contains(&kept))
            });
            assert_eq!([get(&weir).0, get(&weir).0, get(&weir).0], [200; 3], "{endpoint}: {kept}");
        }
        // A name server that says that there are none is believed.
        dns.tell("app.test", DnsAnswer::Records(vec![v4.clone()]));
        weir.wait_until("one address is left", || {
            let last = weir.lines().into_iter().rfind(|line| line.contains("a name has other addresses"));
            last.is_some_and(|line| !line.contains("[::1]"))
        });
    }
}

#[test]
fn an_unknown_service_name_is_502() {
    let dns = Dns::start();
    let weir = weir(&dns, "endpoints = [\"srv+http://_http._tcp.app.test\"]");
    weir.wait_for_line("a name has no address");
    assert_eq!(get(&weir).0, 502);
    assert!(!dns.asked("_http._tcp.app.test").is_empty());
}

#[test]
fn names_in_the_hosts_file_need_no_name_server() {
    let (dns, app) = (Dns::start(), on(LOCAL, 0));
    // Each /etc/hosts has this name, and the name server of this test does not.
    let weir = weir(&dns, &format!("endpoints = [\"http://localhost:{}\"]", app.address().port()));
    weir.wait_for_line("a name has other addresses");
    assert_eq!(get(&weir).0, 200);
    assert!(dns.asked("localhost").is_empty());
}

fn place(priority: u16, weight: u16, port: u16, target: &'static str) -> Record {
    Record::Srv { ttl_s: 1, priority, weight, port, target }
}

#[test]
fn addresses_of_a_service_get_requests_by_weight() {
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
    weir.wait_until("addresses are known", || get(&weir).0 == 200);
    let mut answers = HashMap::<String, u32>::new();
    let mut client = Client::connect(weir.address());
    for _ in 0..400 {
        *answers.entry(client.get("/").text()).or_default() += 1;
    }
    let of = |ip: Ipv4Addr| answers.get(&ip.to_string()).copied().unwrap_or(0);
    // The bounds are far from the expected 100, so that chance does not exceed them.
    assert!(of(LOCAL) + of(OTHER) == 400 && (40..160).contains(&of(OTHER)), "{answers:?}");
    assert_eq!(ones[0].received()[0].header("host").as_deref(), Some("app.test"));
    // The second priority is used when no address of the first can be reached.
    let [one, two, three] = ones;
    for gone in [one, two] {
        gone.stop();
    }
    until("the others are out", || get(&weir) == (200, "127.0.0.3".into()));
    assert!((0..10).all(|_| get(&weir) == (200, "127.0.0.3".into())));
    // The next answer of the name server takes effect.
    let places = vec![place(0, 0, three.address().port(), "three.test")];
    dns.tell("_http._tcp.app.test", DnsAnswer::Records(places));
    until("only one address remains", || {
        weir.metric("weir_endpoint_healthy{endpoint=\"srv+http://_http._tcp.app.test\",upstream=\"a\"}") == 1.0
    });
    assert_eq!(get(&weir), (200, "127.0.0.3".into()));
}
