//! Other proxies and Weir get the same requests, with a limit and its translation by the recipes: Weir admits at most as
//! many, or as many more as the case states. `docs/reference/comparison.md` has the cases.

mod cases;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cases::{CASES, Case, Proxy};

use crate::imports::front;
use crate::support::{Client, Upstream, Weir, poll};

/// Requests that are sent together or one by one, or a pause; and how many reach the service through the proxy and Weir.
struct Step<'c> {
    count: usize,
    kind: &'c str,
    original: &'c str,
    weir: &'c str,
}

impl Case {
    /// The steps of the script. Each is `COUNT KIND: ORIGINAL / WEIR`.
    fn steps(&self) -> impl Iterator<Item = Step<'static>> {
        self.script.split("; ").map(|text| {
            let (requests, admitted) = text.split_once(": ").unwrap_or((text, "0 / 0"));
            let (count, kind) = requests.split_once(' ').unwrap();
            let (original, weir) = admitted.split_once(" / ").unwrap();
            Step { count: count.parse().unwrap(), kind, original, weir }
        })
    }
}

/// Checks a number of the script: exact, or with `≤` a bound.
fn is_as_stated(stated: &str, admitted: usize) -> bool {
    match stated.strip_prefix('≤') {
        Some(most) => admitted <= most.parse().unwrap(),
        None => admitted == stated.parse::<usize>().unwrap(),
    }
}

/// A service that answers `/wrong` with 401, and `/slow` once the gate is open.
struct Service {
    upstream: Upstream,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Service {
    fn start() -> Self {
        let gate = Arc::new((Mutex::new(true), Condvar::new()));
        let own = Arc::clone(&gate);
        let upstream = Upstream::answering(move |request, stream| {
            if request.target() == "/slow" {
                drop(own.1.wait_while(own.0.lock().unwrap(), |is_open| !*is_open).unwrap());
            }
            let status = if request.target() == "/wrong" { "401 No" } else { "200 OK" };
            std::io::Write::write_all(stream, format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes())
                .is_ok()
        });
        Self { upstream, gate }
    }

    fn open(&self, is_open: bool) {
        *self.gate.0.lock().unwrap() = is_open;
        self.gate.1.notify_all();
    }

    /// How many requests of the step reach the service through the proxy at `address`.
    fn admitted(&self, address: SocketAddr, step: &Step<'_>) -> usize {
        let request = match step.kind {
            "s pause" => {
                std::thread::sleep(Duration::from_secs(step.count as u64));
                return 0;
            }
            "slow" | "slow by several clients" => "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n",
            "at once" | "by others" | "in a row" => "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "wrong in a row" => "GET /wrong HTTP/1.1\r\nhost: a\r\n\r\n",
            "with a key" => "GET / HTTP/1.1\r\nhost: a\r\nx-key: gold\r\n\r\n",
            "preflights" => {
                "OPTIONS / HTTP/1.1\r\nhost: a\r\norigin: http://b\r\naccess-control-request-method: GET\r\n\r\n"
            }
            kind => panic!("{kind}"),
        };
        let connect = |number: usize| match step.kind {
            "by others" | "slow by several clients" => {
                Client::connect_from(Ipv4Addr::from_bits(0x7F00_0101 + number as u32), address)
            }
            _ => Client::connect(address),
        };
        let before = self.upstream.received_count();
        if step.kind.ends_with("in a row") {
            for number in 0..step.count {
                connect(number).send(request).answer();
            }
            return self.upstream.received_count() - before;
        }
        self.open(!step.kind.starts_with("slow"));
        let mut clients: Vec<_> = (0..step.count).map(connect).collect();
        for client in &mut clients {
            client.send(request);
        }
        poll(|| {
            let answered = clients.iter_mut().filter_map(|client| client.has_more().then_some(())).count();
            (answered + self.upstream.received_count() - before >= step.count).then_some(())
        });
        self.open(true);
        for client in &mut clients {
            client.answer();
        }
        self.upstream.received_count() - before
    }
}

/// The requests of each step that are admitted.
fn run(service: &Service, address: SocketAddr, case: &Case) -> Vec<usize> {
    case.steps().map(|step| service.admitted(address, &step)).collect()
}

/// Compares Weir with the proxy, or with its documentation if it is in no package registry. All cases are tried at once,
/// because most of their time is pauses.
fn compare(proxy: Proxy) {
    std::thread::scope(|scope| {
        for case in CASES.iter().filter(|case| case.proxy == proxy) {
            scope.spawn(|| compare_case(case));
        }
    });
}

fn compare_case(case: &Case) {
    let (proxy, service) = (case.proxy, Service::start());
    let config = proxy.config(case.original, service.upstream.address());
    let original = config.map(|text| run(&service, front(&proxy.name().to_lowercase(), &text).address(), case));
    let key = if case.weir.contains("key = ") { "" } else { "key = [\"ip\"]\n" };
    let limit = if case.weir.starts_with('[') { "" } else { "[[limit]]\nname = \"one\"\n" };
    let weir = Weir::start(&service.upstream, &format!("{limit}{key}{}", case.weir));
    let weir = run(&service, weir.address(), case);
    for (number, step) in case.steps().enumerate() {
        let title = format!("{proxy:?} {}: {} {}", case.original, step.count, step.kind);
        if let Some(original) = &original {
            let (original, weir) = (original[number], weir[number]);
            assert!(is_as_stated(step.original, original), "{title}: the original admits {original}");
            assert!(weir <= original + case.more, "{title}: {weir} instead of {original}");
        }
        assert!(is_as_stated(step.weir, weir[number]), "{title}: Weir admits {}", weir[number]);
    }
    assert_eq!(case.difference.is_empty(), case.script.split("; ").all(is_equal), "{}", case.original);
}

/// Whether a step states the same number for both.
fn is_equal(step: &str) -> bool {
    step.split_once(": ").and_then(|(_, admitted)| admitted.split_once(" / ")).is_none_or(|(one, other)| one == other)
}

#[test]
fn nginx() {
    compare(Proxy::Nginx);
}

#[test]
fn haproxy() {
    compare(Proxy::Haproxy);
}

#[test]
fn envoy() {
    compare(Proxy::Envoy);
}

#[test]
fn traefik() {
    compare(Proxy::Traefik);
}

#[test]
fn documented_numbers() {
    compare(Proxy::Kong);
    compare(Proxy::Caddy);
}

/// The rows of the cases, as the page has them.
fn rows() -> String {
    let mut rows = "| Original | Weir | Requests | Original admits | Weir admits | Difference |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for case in CASES {
        let code = |text: &str| text.lines().map(|line| format!("`{}`", line.trim())).collect::<Vec<_>>().join(" ");
        let column =
            |cell: fn(&Step<'_>) -> String| case.steps().map(|step| cell(&step)).collect::<Vec<_>>().join(", ");
        let admits = |cell: fn(&Step<'_>) -> String| {
            let steps = case.steps().filter(|step| step.kind != "s pause");
            steps.map(|step| cell(&step)).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(
            rows,
            "| {}: {} | {} | {} | {} | {} | {} |",
            case.proxy.name(),
            code(case.original),
            code(case.weir),
            column(|step| format!("{} {}", step.count, step.kind)),
            admits(|step| step.original.to_owned()) + if case.proxy.is_real() { "" } else { " (documented)" },
            admits(|step| step.weir.to_owned()),
            case.difference,
        );
    }
    rows
}

/// `WEIR_COMPARISON=write` writes the rows.
#[test]
fn the_page_has_these_rows() {
    let path = "docs/reference/comparison.md";
    let page = std::fs::read_to_string(path).unwrap();
    let (start, rest) = page.split_once("<!-- comparison -->\n").unwrap();
    let (found, end) = rest.split_once("<!-- /comparison -->").unwrap();
    let rows = rows();
    if std::env::var_os("WEIR_COMPARISON").is_some_and(|word| word == "write") {
        let text = format!("{start}<!-- comparison -->\n{rows}<!-- /comparison -->{end}");
        return std::fs::write(path, text).unwrap();
    }
    assert!(found == rows, "{path} has other rows; write them by WEIR_COMPARISON=write");
}
