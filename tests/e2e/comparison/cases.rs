//! The cases: the limits of the recipes, and the requests that they admit.

use std::net::SocketAddr;

use crate::imports::{envoy, haproxy, nginx};

/// A proxy that a recipe replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    Nginx,
    Haproxy,
    Envoy,
    Traefik,
    Kong,
    Caddy,
}

/// A limit of another proxy, its translation, and what both admit of the same requests.
pub struct Case {
    pub proxy: Proxy,
    /// The lines of its configuration that make the limit.
    pub original: &'static str,
    /// The options of the limit, and of tables behind it. Without a key it is the address.
    pub weir: &'static str,
    /// Steps, each `COUNT KIND: ORIGINAL / WEIR`; `≤` is a bound on a number that depends on time.
    pub script: &'static str,
    /// The most requests of a step that Weir admits beyond the original.
    pub more: usize,
    /// Why numbers differ.
    pub difference: &'static str,
}

impl Proxy {
    /// Its name, in lower case also that of the format for `weir import`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
            Self::Envoy => "Envoy",
            Self::Traefik => "Traefik",
            Self::Kong => "Kong",
            Self::Caddy => "Caddy",
        }
    }

    /// Whether a package has it, so that the tests run it.
    pub fn is_real(self) -> bool {
        !matches!(self, Self::Kong | Self::Caddy)
    }

    /// The whole configuration with these lines in front of `service`; `None` if no package has the proxy.
    pub fn config(self, lines: &str, service: SocketAddr) -> Option<String> {
        let text = match self {
            Self::Nginx => {
                let (rate, location) = lines.split_once('\n').unwrap();
                let zone = format!("limit_req_zone $binary_remote_addr zone=one:1m {rate};");
                let zones = zone + "\nlimit_conn_zone $binary_remote_addr zone=conn:1m;";
                let location = location.replace('\n', "; ") + "; ";
                nginx(
                    &zones,
                    &location.replace("limit_req ", "limit_req zone=one ").replace("limit_req;", "limit_req zone=one;"),
                )
            }
            Self::Haproxy => {
                let (table, rules) = lines.split_once('\n').unwrap();
                haproxy(&format!("stick-table type ip size 1m {table}\nhttp-request track-sc0 src\n{rules}"))
            }
            Self::Envoy => {
                let descriptor = if lines.contains("api_key") {
                    "rate_limits: [{ actions: [{ request_headers: { header_name: x-key, descriptor_key: api_key } }] }]"
                } else {
                    "rate_limits: []"
                };
                let routes = format!("{{ match: {{ prefix: / }}, route: {{ cluster: app, {descriptor} }} }}");
                envoy(&routes, &lines.replace('\n', ", "))
            }
            Self::Traefik => format!(
                "http:\n  routers:\n    all: {{ rule: PathPrefix(`/`), middlewares: [one], service: app }}\n  \
                 middlewares:\n    one: {{ {lines} }}\n  \
                 services:\n    app: {{ loadBalancer: {{ servers: [{{ url: 'http://$UPSTREAM' }}] }} }}\n"
            ),
            Self::Kong | Self::Caddy => return None,
        };
        let text = text.replace("$UPSTREAM", &service.to_string());
        Some(text.replace("$SERVICE_PORT", &service.port().to_string()))
    }
}

/// A case in which Weir admits at most as many requests.
const fn case(proxy: Proxy, original: &'static str, weir: &'static str, script: &'static str) -> Case {
    Case { proxy, original, weir, script, more: 0, difference: "" }
}

impl Case {
    /// A case with other numbers, because of this.
    const fn but(self, more: usize, difference: &'static str) -> Self {
        Self { more, difference, ..self }
    }
}

use Proxy::{Caddy, Envoy, Haproxy, Kong, Nginx, Traefik};

pub const CASES: &[Case] = &[
    case(
        Nginx,
        "rate=1r/m\nlimit_req burst=20 nodelay",
        "rate = \"1/min\"\nburst = 21",
        "60 at once: 21 / 21; 5 by others: 5 / 5",
    ),
    case(
        Nginx,
        "rate=30r/m\nlimit_req burst=3",
        "rate = \"1/2s\"\nburst = 3\nalgorithm = \"leaky_bucket\"\non_limit = \"hold\"",
        "12 at once: 4 / 4",
    ),
    case(
        Nginx,
        "rate=30r/m\nlimit_req burst=6 delay=2",
        "rate = \"1/2s\"\nburst = 3\non_limit = \"hold\"\nhold = { max_wait = \"8s\" }",
        // The last one waits as long as it may, less the time of the first ones.
        "3 in a row: 3 / 3; 30 at once: 4 / 4",
    ),
    case(Nginx, "rate=1r/m\nlimit_req", "rate = \"1/min\"\nburst = 1", "9 at once: 1 / 1"),
    case(
        Nginx,
        "rate=1r/m\nlimit_conn conn 3",
        "algorithm = \"concurrency\"\nmax = 3",
        "8 slow: 3 / 3; 3 at once: 3 / 3",
    ),
    case(
        Nginx,
        "rate=1r/m\nlimit_req\nlimit_req_dry_run on",
        "rate = \"1/min\"\nburst = 1\nmode = \"shadow\"",
        "9 at once: 9 / 9",
    ),
    case(Nginx, "rate=1r/m\nlimit_req burst=2 nodelay", "rate = \"1/min\"\nburst = 3", "9 preflights: 3 / 9")
        .but(6, "free, unless `headers.free_preflights = false`"),
    case(
        Haproxy,
        "expire 2h store http_req_rate(1h)\nhttp-request deny if { sc_http_req_rate(0) gt 20 }",
        "algorithm = \"sliding_window\"\nrate = \"20/h\"",
        "60 at once: 20 / 20; 5 by others: 5 / 5",
    ),
    case(
        Haproxy,
        "expire 1m store http_req_rate(10s)\nhttp-request deny if { sc_http_req_rate(0) gt 5 }",
        "algorithm = \"sliding_window\"\nrate = \"5/10s\"",
        "40 at once: 5 / 5; 5 s pause; 40 at once: 0 / ≤5",
    )
    .but(5, "HAProxy counts refusals"),
    case(
        Haproxy,
        "expire 2h store http_req_rate(1h)\nhttp-request tarpit if { sc_http_req_rate(0) gt 20 }",
        "algorithm = \"sliding_window\"\nrate = \"20/h\"",
        "60 at once: 20 / 20",
    ),
    case(
        Haproxy,
        "expire 2h store conn_cur\nhttp-request deny if { sc_conn_cur(0) gt 3 }",
        "algorithm = \"concurrency\"\nmax = 3",
        "8 slow: 3 / 3; 3 at once: 3 / 3",
    ),
    case(
        Haproxy,
        "expire 2h store http_err_rate(1h)\nhttp-request deny if { sc_http_err_rate(0) gt 5 }",
        "algorithm = \"sliding_window\"\nrate = \"5/h\"\ncount = { status = [\"4xx\"] }",
        "30 slow: 30 / 5; 9 in a row: 9 / 9; 9 wrong in a row: 6 / 5; 9 in a row: 0 / 0",
    )
    .but(0, "counts requests in flight as errors; the last error passes"),
    case(
        Haproxy,
        "expire 8s store gpc0,http_req_rate(10s)\nhttp-request sc-inc-gpc0(0) if { sc_http_req_rate(0) gt 5 }\n\
         http-request deny if { sc_get_gpc0(0) gt 0 }",
        "algorithm = \"sliding_window\"\nrate = \"5/10s\"\nban = { after = \"1/s\", for = \"8s\" }",
        "20 at once: 5 / 5; 4 s pause; 20 at once: 0 / 0; 4 s pause; 20 at once: 0 / ≤5",
    )
    .but(5, "a ban ends, also for a client that continues; the next is longer"),
    case(
        Envoy,
        "token_bucket: { max_tokens: 5, tokens_per_fill: 1, fill_interval: 3600s }",
        "key = []\nrate = \"1/h\"\nburst = 5",
        "9 at once: 5 / 5; 5 by others: 0 / 0",
    ),
    case(
        Envoy,
        "token_bucket: { max_tokens: 50, tokens_per_fill: 1, fill_interval: 3600s }\n\
         descriptors: [{ entries: [{ key: api_key, value: gold }], token_bucket: { max_tokens: 4, tokens_per_fill: 1, fill_interval: 3600s } }]",
        "key = [\"header:x-key\"]\nrate = \"1/h\"\nburst = 4",
        "9 with a key: 4 / 4",
    ),
    case(
        Traefik,
        "rateLimit: { average: 1, period: 1h, burst: 4 }",
        "rate = \"1/h\"\nburst = 4",
        // Traefik may make two buckets for requests of a new client that come at once.
        "1 in a row: 1 / 1; 9 at once: 3 / 3; 5 by others: 5 / 5",
    ),
    case(
        Traefik,
        "inFlightReq: { amount: 3 }",
        "key = [\"host\"]\nalgorithm = \"concurrency\"\nmax = 3",
        "8 slow by several clients: 3 / 3; 3 at once: 3 / 3",
    ),
    case(
        Kong,
        "rate-limiting: { day: 5, policy: local, limit_by: ip }",
        "algorithm = \"fixed_window\"\nrate = \"5/day\"",
        "9 at once: 5 / 5; 5 by others: 5 / 5",
    ),
    case(
        Caddy,
        "rate_limit { zone one { key {remote_host}; events 5; window 1h } }",
        "algorithm = \"sliding_log\"\nrate = \"5/h\"",
        "9 at once: 5 / 5; 5 by others: 5 / 5",
    ),
];
