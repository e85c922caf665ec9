//! Request ids, trace contexts, and the export of spans to a collector.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use prost::Message;
use serde_json::Value as Json;

use crate::jwks::tls_issuer;
use crate::support::{Cert, Client, PATIENCE, Upstream, Weir, free_port};

const IDS: &str = "request_id = true\n";
const TRUSTED: &str = "request_id = true\ntrusted_proxies = [\"127.0.0.1\"]\n";
const LOG: &str = "[log]\nformat = \"json\"\nlevel = \"trace\"\naccess = \"all\"\n";
const ONE: &str = "[[limit]]\nname = \"one\"\nkey = []\nrate = \"1/h\"\n";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn ask(weir: &Weir, headers: &str) -> crate::support::Answer {
    Client::connect(weir.address()).send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).answer()
}

/// The values of a field in the last request that the service got.
fn got(upstream: &Upstream, name: &str) -> Vec<String> {
    let values = upstream.received().pop().unwrap().header(name);
    values.iter().flat_map(|values| values.split('|')).map(str::to_owned).collect()
}

fn access_lines(weir: &Weir, count: usize) -> Vec<Json> {
    weir.wait_for("access lines", || {
        let lines = weir.lines().into_iter().map(|line| serde_json::from_str::<Json>(&line).unwrap());
        let lines: Vec<_> = lines.filter(|line| line["message"] == "request").collect();
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn ids_are_those_of_trusted_proxies_or_new() {
    for (server, sent, kept) in [
        (TRUSTED, "X-Request-Id: proxy-1\r\n", Some("proxy-1")),
        (TRUSTED, "X-Request-Id: a b\r\n", None),
        (TRUSTED, "X-Request-Id: a\r\nX-Request-Id: b\r\n", None),
        (TRUSTED, "", None),
        (IDS, "X-Request-Id: client-1\r\n", None),
    ] {
        let upstream = Upstream::start();
        let weir = Weir::start_with(&upstream, server, &format!("{LOG}{ONE}"));
        assert_eq!(ask(&weir, sent).status, 200);
        let ids = got(&upstream, "x-request-id");
        assert_eq!(ids.len(), 1, "{sent}: {ids:?}");
        match kept {
            Some(kept) => assert_eq!(ids[0], kept),
            None => assert!(ids[0].len() == 36 && ids[0].as_bytes()[14] == b'7', "{sent}: {ids:?}"),
        }
        let refused = ask(&weir, sent);
        let body: Json = serde_json::from_str(&refused.text()).unwrap();
        let id = refused.header("x-request-id").unwrap();
        assert_eq!((refused.status, body["request_id"].as_str()), (429, Some(id)));
        // Also of a head that nobody can read.
        let malformed = Client::connect(weir.address()).send("G@T / HTTP/1.1\r\n\r\n").answer();
        assert_eq!((malformed.status, malformed.header("x-request-id").map(str::len)), (400, Some(36)));
        let lines = access_lines(&weir, 3);
        // Three connections: their lines come in any order.
        let logged: BTreeSet<_> = lines.iter().map(|line| line["request_id"].as_str().unwrap()).collect();
        assert_eq!(logged, BTreeSet::from([&*ids[0], id, malformed.header("x-request-id").unwrap()]));
    }
}

#[test]
fn without_the_options_ids_and_contexts_pass_as_they_are() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &format!("{LOG}{ONE}"));
    let headers = format!("X-Request-Id: a b\r\nTraceparent: {PARENT}\r\nTracestate: x=1\r\n");
    assert_eq!(ask(&weir, &headers).status, 200);
    let fields = ["x-request-id", "traceparent", "tracestate"].map(|name| got(&upstream, name).join(" | "));
    assert_eq!(fields, ["a b", PARENT, "x=1"]);
    let refused = ask(&weir, "");
    assert!(refused.header("x-request-id").is_none() && !refused.text().contains("request_id"));
    // Two connections: their lines come in any order.
    let lines = access_lines(&weir, 2);
    let traces: BTreeSet<_> = lines.iter().map(|line| line["trace_id"].as_str()).collect();
    assert_eq!(traces, BTreeSet::from([None, Some("4bf92f3577b34da6a3ce929d0e0e4736")]));
}

// What the test reads of OTLP: tags of opentelemetry-proto, apart from those that Weir writes.

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<OfResource>,
}

#[derive(Clone, PartialEq, Message)]
struct OfResource {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<OfScope>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct OfScope {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    at: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}

fn attributes(of: &[Attribute]) -> BTreeMap<String, String> {
    let shown = |value: &Any| value.text.clone().or(value.number.map(|number| number.to_string())).unwrap_or_default();
    of.iter()
        .map(|attribute| (attribute.key.clone(), attribute.value.as_ref().map(shown).unwrap_or_default()))
        .collect()
}

/// A collector that takes exports over HTTP, one a connection.
struct Collector {
    address: SocketAddr,
    exports: Receiver<(String, Export)>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, exports) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = Vec::new();
                let (head, length) = loop {
                    let mut piece = [0; 4096];
                    let read = stream.read(&mut piece).unwrap();
                    bytes.extend_from_slice(&piece[..read]);
                    if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                        let head = String::from_utf8(bytes.drain(..end + 4).collect()).unwrap();
                        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                        break (head.clone(), length.unwrap().parse::<usize>().unwrap());
                    }
                };
                let missing = length - bytes.len();
                let start = bytes.len();
                bytes.resize(start + missing, 0);
                stream.read_exact(&mut bytes[start..]).unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                if sender.send((head, Export::decode(&bytes[..]).unwrap())).is_err() {
                    return;
                }
            }
        });
        Self { address, exports }
    }

    /// The next `count` spans.
    fn spans(&self, count: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        while spans.len() < count {
            let (head, export) = self.exports.recv_timeout(PATIENCE).unwrap();
            assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
            for of_resource in export.resources {
                let resource = attributes(&of_resource.resource.unwrap().attributes);
                assert_eq!(resource["service.name"], "edge");
                spans.extend(of_resource.scopes.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| char::from(b"0123456789abcdef"[usize::from(half)]))
        .collect()
}

#[test]
fn a_collector_gets_the_spans_of_a_request() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let trace = format!("[trace]\nendpoint = \"http://{}\"\nservice_name = \"edge\"\n", collector.address);
    let hold = "[[limit]]\nname = \"slow\"\nkey = []\nrate = \"1/2s\"\nburst = 1\non_limit = \"hold\"\n";
    let weir = Weir::start_with(&upstream, TRUSTED, &format!("{trace}{hold}"));
    assert_eq!(ask(&weir, &format!("Traceparent: {PARENT}\r\nTracestate: x=1\r\n")).status, 200);
    let sent = got(&upstream, "traceparent").remove(0);
    assert_eq!(got(&upstream, "tracestate"), ["x=1"]);
    assert!(sent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && sent.ends_with("-01"), "{sent}");
    // The second one waits. Its parent is invalid, so a trace begins, without the state of another one.
    assert_eq!(ask(&weir, "Traceparent: 00-0-0-01\r\nTracestate: x=1\r\n").status, 200);
    assert!(got(&upstream, "tracestate").is_empty());

    let spans = collector.spans(4);
    let [server, client, held, _] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((server.kind, client.kind), (2, 3));
    assert_eq!(hex(&server.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(
        (hex(&server.parent), &client.parent, &client.trace),
        ("00f067aa0ba902b7".into(), &server.id, &server.trace)
    );
    assert_eq!(sent[36..52], hex(&client.id));
    assert!(server.start <= client.start && client.start <= client.end && client.end <= server.end, "{spans:#?}");
    assert_eq!((&*server.name, &*client.name), ("GET", "GET"));
    let of_server = attributes(&server.attributes);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/a"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("network.protocol.version", "1.1"),
        ("client.address", "127.0.0.1"),
        ("weir.verdict", "forwarded"),
    ] {
        assert_eq!(of_server[key], value, "{key}");
    }
    assert_eq!(of_server["weir.request_id"].len(), 36);
    let of_client = attributes(&client.attributes);
    assert_eq!(of_client["server.port"], upstream.address().port().to_string());
    assert!(server.events.is_empty() && held.parent.is_empty() && held.trace != server.trace, "{spans:#?}");
    let hold = &held.events[0];
    assert_eq!(hold.name, "weir.hold");
    assert!(held.start <= hold.at && hold.at <= held.end, "{spans:#?}");
    weir.wait_for_metric("weir_traced_requests_exported_total", |exported| exported == 2.0);
}

/// Names of spans have no methods that clients invent, and no route that stands for all paths.
#[test]
fn a_span_of_an_unknown_method_has_its_own_attribute() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let trace = format!("[trace]\nendpoint = \"http://{}\"\nservice_name = \"edge\"\n", collector.address);
    let text = Weir::config(&upstream, "", &trace);
    let routed = text.replace("[upstream]\nurl", "[[route]]\nupstream = \"a\"\n[upstreams.a]\nendpoints");
    assert_ne!(text, routed);
    let weir = Weir::start_as(&routed);
    let mut client = Client::connect(weir.address());
    assert_eq!(client.send("FOO /a HTTP/1.1\r\nHost: a\r\n\r\n").answer().status, 200);
    let spans = collector.spans(2);
    let [server, client] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((&*server.name, &*client.name), ("HTTP", "HTTP"));
    let of_server = attributes(&server.attributes);
    assert_eq!((&*of_server["http.request.method"], &*of_server["http.request.method_original"]), ("_OTHER", "FOO"));
    assert!(!of_server.contains_key("http.route"), "{spans:#?}");
}

/// Behind a stored answer, the span of the service ends with its own answer, however long the client reads.
#[test]
fn a_stored_answer_hides_no_answer_of_the_service() {
    const LEN: usize = 8 << 20;
    let collector = Collector::start();
    let upstream = Upstream::answering(|request, stream| {
        if request.header("referer").is_some() {
            return stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&vec![b'x'; LEN]).is_ok()
    });
    let trace = format!("[trace]\nendpoint = \"http://{}\"\nservice_name = \"edge\"\n", collector.address);
    let limit = "[[limit]]\nname = \"l\"\nkey = []\nrate = \"100/h\"\n\
                 stale = { max_bytes = \"128MiB\" }\nstale_on = [\"upstream_error\"]\n";
    let weir = Weir::start(&upstream, &format!("{trace}{limit}"));
    assert_eq!(ask(&weir, "").status, 200);
    weir.wait_for_metric("weir_stale_stored{limit=\"l\"}", |stored| stored == 1.0);
    let mut client = Client::connect(weir.address());
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nReferer: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    let began = Instant::now();
    weir.wait_for_metric("weir_untaken_bytes", |bytes| bytes > 0.0);
    let read = began.elapsed();
    drop(client);

    let spans = collector.spans(4);
    let [.., server, client] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!(attributes(&server.attributes)["http.response.status_code"], "200");
    let of_client = attributes(&client.attributes);
    assert_eq!([&of_client["http.response.status_code"], &of_client["error.type"]], ["503", "503"]);
    assert!(u128::from(server.end - client.end) >= read.as_nanos(), "{read:?} {spans:#?}");
}

#[test]
fn a_dead_collector_costs_spans_and_no_request() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &format!("[trace]\nendpoint = \"http://127.0.0.1:{}\"\n", free_port()));
    for _ in 0..20 {
        assert_eq!(ask(&weir, "").status, 200);
    }
    weir.wait_for_line("traces are lost");
    weir.wait_for_metric("weir_traced_requests_dropped_total", |dropped| dropped >= 1.0);
    // The last ones are tried once more before the process ends.
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

/// The certificates of the system appear while Weir runs, and a reload takes others.
#[test]
fn an_export_takes_new_certificates_of_the_system() {
    let (upstream, cert) = (Upstream::start(), Cert::of_hosts(&["localhost"]));
    let endpoint = format!("https://localhost:{}", tls_issuer(&cert).0.port());
    for known in [None, Some(Cert::of_hosts(&["localhost"]))] {
        let folder = tempfile::tempdir().unwrap();
        let config = Weir::config(&upstream, IDS, &format!("[trace]\nendpoint = \"{endpoint}\"\n"));
        std::fs::write(folder.path().join("weir.toml"), config).unwrap();
        if let Some(known) = &known {
            known.write(folder.path(), "roots");
        }
        let roots = folder.path().join("roots.pem");
        let weir = Weir::start_in_env(folder, &[("SSL_CERT_FILE", roots.to_str().unwrap()), ("SSL_CERT_DIR", "")]);
        ask(&weir, "");
        weir.wait_for_line("traces are lost");
        cert.write(weir.folder(), "roots");
        if known.is_some() {
            weir.signal("HUP");
        }
        weir.wait_until("an export", || {
            ask(&weir, "");
            weir.metric("weir_traced_requests_exported_total") >= 1.0
        });
    }
}

#[test]
fn a_trusted_proxy_decides_what_is_recorded() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let trace = format!("[trace]\nendpoint = \"http://{}\"\nservice_name = \"edge\"\n", collector.address);
    let weir = Weir::start_with(&upstream, TRUSTED, &trace);
    assert_eq!(ask(&weir, &format!("Traceparent: {}\r\n", PARENT.replace("-01", "-00"))).status, 200);
    assert!(got(&upstream, "traceparent")[0].ends_with("-00"));
    assert_eq!(ask(&weir, &format!("Traceparent: {PARENT}\r\n")).status, 200);
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    let spans = collector.spans(2);
    assert_eq!((spans.len(), spans[0].parent.len()), (2, 8), "{spans:#?}");
}
