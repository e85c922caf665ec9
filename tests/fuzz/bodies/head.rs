//! The bytes of a connection, from a head to what all limits say.

use std::path::Path;
use std::sync::OnceLock;

use http::{Method, Uri};
use weir::base::fields::Spans;
use weir::base::telemetry::Metrics;
use weir::base::time::Clock;
use weir::engine::gate::{Gate, Live, Step};
use weir::engine::policy::host::{host, is_authority};
use weir::engine::policy::{Facts, Stage, path};
use weir::transport::http1::{Framing, HeadFault, HeadStep, Limits, RequestReader, Underscores};

const LIMITS: Limits =
    Limits { max_head_bytes: 4096, max_headers: 32, max_uri_bytes: 1024, underscores: Underscores::Keep };

const CONFIG: &str = r#"
server.trusted_proxies = ["10.0.0.0/8"]
upstream.url = "http://127.0.0.1:9000"
access.deny = { ip = ["198.51.100.0/24"], path = ["/internal/{*rest}"] }
identity.who = { header = "x-who", on_missing = "ip" }
plans.from = "header:x-plan"

[[limit]]
name = "arrival"
stage = "arrival"
key = ["ip", "host"]
rate = "5/s"

[[limit]]
name = "path"
match = { path = ["/a/{id}", "/b/{*rest}", "/"], host = ["*.example"], header = { x-kind = "*" } }
key = ["path", "route", "method", "query:q", "cookie:c", "header:x-a"]
rate = "5/s"
cost = { header = "x-weight", max = 5 }

[[limit]]
name = "who"
key = ["who"]
rate = ["5/s", "9/min"]
plans = { big = "9/s" }
algorithm = "sliding_window"
"#;

/// What a connection begins with: its first head, or why there is none.
type Read = Option<Result<(usize, Vec<u8>, Vec<u8>, Framing, Spans, usize), HeadFault>>;

/// Reads `bytes` as they come in pieces of `step`.
fn read(bytes: &[u8], step: usize) -> Read {
    let mut requests = RequestReader::new(LIMITS);
    let (mut start, mut end) = (0, 0);
    while end < bytes.len() {
        end = bytes.len().min(end + step);
        match requests.head(&bytes[start..end]) {
            HeadStep::Head(head) => {
                let message = &bytes[start..];
                let (method, target) = (message[head.method.clone()].to_vec(), message[head.target.clone()].to_vec());
                let fields = requests.take_fields(Spans::default());
                return Some(Ok((start + head.len, method, target, head.framing, fields, start)));
            }
            HeadStep::Fault(fault) => return Some(Err(fault)),
            HeadStep::Idle(dropped) => start += dropped,
            HeadStep::Incomplete => {}
        }
    }
    None
}

fn gate() -> &'static (Gate, Live) {
    static GATE: OnceLock<(Gate, Live)> = OnceLock::new();
    GATE.get_or_init(|| {
        let config = weir::config::compile(CONFIG, "", Path::new(""), &|_| None).expect("a configuration");
        let gate = Gate::new(Clock::start(), [7; 16], Metrics::new("", "").expect("metrics").into());
        let live = gate.install(config.policy, config.hold, config.max_tokens);
        (gate, live)
    })
}

pub fn run(bytes: &[u8]) {
    let whole = read(bytes, usize::MAX / 2);
    for step in [1, 3] {
        let cut = read(bytes, step);
        match (&whole, &cut) {
            (Some(Ok(whole)), Some(Ok(cut))) => {
                assert_eq!((whole.0, &whole.1, &whole.2, whole.3), (cut.0, &cut.1, &cut.2, cut.3));
                let fields = |read: &(usize, Vec<u8>, Vec<u8>, Framing, Spans, usize)| {
                    let fields = read.4.of(&bytes[read.5..]);
                    fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>()
                };
                assert_eq!(fields(whole), fields(cut));
            }
            (Some(Err(whole)), Some(Err(cut))) => assert_eq!(whole, cut),
            (None, None) => {}
            other => panic!("cut into {step}: {other:?}"),
        }
    }
    let Some(Ok((_, method, target, _, fields, start))) = whole else { return };
    let Ok(method) = Method::from_bytes(&method) else { return };
    let Ok(target) = String::from_utf8(target) else { panic!("a target that is not text was taken") };
    let origin_form = match target.split_once("://").filter(|_| !target.starts_with('/')) {
        Some((_, rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => &target,
    };
    let (path, query) = origin_form.split_once('?').map_or((origin_form, None), |(path, query)| (path, Some(query)));
    let query = query.map(path::escaped_query);
    let Ok(path) = path::normalise(if path.is_empty() { "/" } else { path }) else { return };
    let escaped = query.as_deref().map_or(path.to_string(), |query| format!("{path}?{query}"));
    escaped.parse::<Uri>().expect("what is forwarded is a URI");
    assert_eq!(path::normalise(&path).expect("normal").as_ref(), path.as_ref());
    let headers = fields.of(&bytes[start..]);
    let named = headers.first("host").and_then(|host| std::str::from_utf8(host).ok()).filter(|host| is_authority(host));
    let (gate, live) = gate();
    let client_ip = live.policy.client_ip.client_ip([10, 0, 0, 1].into(), headers);
    let facts = Facts {
        method: &method,
        host: &host(named.unwrap_or_default()),
        path: &path,
        query: query.as_deref(),
        headers,
        client_ip,
        is_free_preflight: false,
        is_proxied: false,
        certificate: None,
        cost: None,
        body: None,
    };
    let now = gate.clock().now();
    for stage in [Stage::Arrival, Stage::Identified] {
        if let Ok(Step::Pass(mut pass)) = gate.admit(live, stage, &facts, || 100, now) {
            pass.charged.commit(true);
        }
    }
}
