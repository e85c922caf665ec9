//! A gate with limits that are never reached, and clients that ask it.

// Each bench uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Method;
use weir::base::fields::FieldBuf;
use weir::base::telemetry::Metrics;
use weir::base::time::{Clock, Timestamp};
use weir::config;
use weir::engine::gate::{Gate, Live, NewestLive, Pass, StreamLedger};
use weir::engine::policy::{Facts, Stage};
use weir::engine::store::stream::Link;

/// A prime, so that steps through the keys visit all of them in no order a cache could guess.
pub const STRIDE: u32 = 7_919;

/// The `match` of the limit with this number.
pub type MatchOf = fn(usize) -> String;

/// Limits that no request meets: the property in which they differ, and the `match` of each.
pub const OTHERS: [(&str, MatchOf); 6] = [
    ("paths", |number| format!("path = \"/other-{number}/{{id}}\"")),
    ("hosts", |number| format!("host = \"{number}.example.com\"")),
    ("hosts below", |number| format!("host = \"*.{number}.example.com\"")),
    ("header names", |number| format!("header = {{ x-{number} = \"*\" }}")),
    ("header values", |number| format!("header = {{ x-api-key = \"{number}\" }}")),
    ("header values of one path", |number| {
        format!("path = \"/v1/{{*rest}}\", header = {{ x-api-key = \"{number}\" }}")
    }),
];

/// Limits, and who asks.
pub struct Subject {
    gate: Arc<Gate>,
    live: Arc<Live>,
    headers: FieldBuf,
}

impl Subject {
    /// `limits` limits by client address.
    pub fn by_address(limits: usize) -> Self {
        Self::new(&vec![r#"["ip"]"#; limits])
    }

    /// A limit for each key.
    pub fn new(keys: &[&str]) -> Self {
        Self::with_room(keys, None)
    }

    /// A limit for each key, with room for `max_keys` keys if that is not the default.
    pub fn with_room(keys: &[&str], max_keys: Option<u32>) -> Self {
        Self::of("", keys, max_keys)
    }

    /// Two limits by client address, and this many that no request meets.
    pub fn among(others: usize, other: impl Fn(usize) -> String) -> Self {
        let limit = |number| {
            format!("[[limit]]\nname = \"o{number}\"\nkey = []\nrate = \"1/s\"\nmatch = {{ {} }}\n", other(number))
        };
        let others: String = (0..others).map(limit).collect();
        Self::of(&others, &[r#"["ip"]"#; 2], None)
    }

    /// `limits` limits by client address, which replicas share by streams, with the default room or for `max_keys` keys.
    pub fn streamed(limits: usize, max_keys: Option<u32>) -> Self {
        let fleet = "[fleet]\nstrategy = \"stream\"\nsecret.env = \"SECRET\"\nlisten = \"127.0.0.1:0\"\n\
                     members.static = [\"127.0.0.1:1\"]\n";
        Self::of(fleet, &vec![r#"["ip"]"#; limits], max_keys)
    }

    /// The link between requests and streams.
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(self.gate.link())
    }

    /// The tables as streams see them.
    pub fn ledger(&self) -> StreamLedger {
        StreamLedger::new(Arc::clone(&self.gate), NewestLive::new(ArcSwap::new(Arc::clone(&self.live))))
    }

    /// `toml` and a limit for each key.
    fn of(toml: &str, keys: &[&str], max_keys: Option<u32>) -> Self {
        let mut text = format!("{toml}[upstream]\nurl = \"http://127.0.0.1:1\"\n");
        for (index, key) in keys.iter().enumerate() {
            let limit = format!("[[limit]]\nname = \"l{index}\"\nkey = {key}\n");
            text += &limit;
            text += "rate = \"1000000/s\"\n";
            text += &max_keys.map_or(String::new(), |max_keys| format!("max_keys = {max_keys}\n"));
        }
        let secret = |_: &str| Some("0123456789abcdef0123456789ABCDEF".into());
        let config = config::compile(&text, "bench", Path::new(""), &secret).expect("a valid configuration");
        let gate = Arc::new(Gate::new(Clock::start(), [7; 16], Arc::new(Metrics::new("0", "0").unwrap())));
        let live = Arc::new(gate.install(config.policy, config.hold, config.max_tokens));
        Self { gate, live, headers: FieldBuf::from_iter([("x-api-key", "0123456789abcdef")]) }
    }

    /// One decision for the client with this number, a microsecond after the last. Reading the clock is left out:
    /// a request reads it once, for all that it needs it for.
    #[inline(never)] // as for the proxy: nothing of the answer is known beforehand
    pub fn decide(&self, client: u32, clock: &mut Timestamp) -> bool {
        let facts = Facts {
            method: &Method::GET,
            host: "api.example.com",
            path: "/v1/reports",
            query: None,
            headers: self.headers.fields(),
            client_ip: IpAddr::V4(Ipv4Addr::from_bits(client)),
            is_free_preflight: false,
            is_proxied: false,
            certificate: None,
            cost: None,
            body: None,
        };
        *clock = clock.saturating_add_ns(1000);
        let mut pass = Pass::default();
        match self.gate.admit_into(&mut pass, (&self.live, Stage::Identified), &facts, || 0, *clock, None) {
            Ok(None) => {
                pass.charged.commit(true);
                true
            }
            _ => false,
        }
    }
}
