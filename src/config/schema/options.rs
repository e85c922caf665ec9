//! The table of options, in the order of documentation.

use super::limit;
use super::option::Kind::{
    self, Count, Duration, DurationOr, DurationOrZero, List, Map, OneOf, Size, SizeOr, Switch, Tables, Text,
};
use super::option::Preset::{Required, Toml, Unset};
use super::option::{NONE, Opt, opt};

/// Every option there is: those of all other tables, then those of limits.
pub(super) static OPTIONS: [Opt; OTHERS.len() + limit::OPTIONS.len()] = joined(OTHERS, limit::OPTIONS);

const fn joined<const N: usize>(first: &[Opt], last: &[Opt]) -> [Opt; N] {
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { last[at - first.len()] };
        at += 1;
    }
    all
}

const PLACES: Kind = Kind::Some("address and port, or `unix:` and a path");
const ENDPOINT: &str = "`http://host[:port]`, `https://host[:port]` or `unix:/path`";
const CA: &str = "Certificates in PEM that sign those of the service.";
const SERVER_NAME: &str = "The name that is asked for and that the service's certificate has to have.";
const CERT: &str = "A certificate in PEM that the service is shown, followed by those that signed it.";
const KEY: &str = "Its private key in PEM, without a password.";
const HOSTS: &[&str] = &["preserve", "upstream"];
const PROXY_VERSIONS: &[&str] = &["off", "v1", "v2"];
const PROXY_PROTOCOL: &str =
    "Begin connections with a PROXY header that names the client; then each request has one of its own.";
pub(in crate::config) const RESOLVE: &[&str] = &["ttl", "off"];
const SERVICE: &str = "`http://host[:port]`, `https://host[:port]`, `unix:/path`, or `srv+http://_service._tcp.name`";
const PROTOCOLS: &[&str] = &["http1", "h2"];
const SPOKEN: &str =
    "What is spoken with the service; `h2` is HTTP/2, as gRPC needs it, on connections that requests share.";
const PROTOCOL: &str = "name of a protocol, such as `websocket`";
const BODY: Kind = SizeOr(1, 1 << 50, "off");
const RATE: Kind = SizeOr(1, 1 << 40, "off");
const CONNECTIONS: Kind = Count(1, 1_000_000);
const ALLOWED: &str = "what the file descriptors allow";
const MAX_QUEUED: &str = "Requests that wait for a connection; more are 503.";
const QUEUE_TIMEOUT: &str =
    "How long a request waits for a connection, or for others of its client to end; then it is 503.";
const UPGRADE: &str = "Protocols that clients may change to with `Upgrade`; other upgrades are not sent on.";

#[rustfmt::skip]
const OTHERS: &[Opt] = &[
    opt("server.listen", PLACES, Toml("\"127.0.0.1:8080\""),
        "Where clients connect."),
    opt("server.unix_mode", Text("octal digits"), Toml("\"0660\""),
        "Permissions of Unix sockets, also of `admin.listen`."),
    opt("server.takeover", Text("path"), NONE,
        "Unix socket over which the next process takes over from this one, with its sockets and what is spent."),
    opt("server.workers", Count(1, 1024), Unset("one per CPU"),
        "Threads that serve connections."),
    opt("server.trusted_proxies", List("address or network"), Toml("[]"),
        "Peers who are believed whom they serve."),
    opt("server.address_header", OneOf(&["x-forwarded-for", "forwarded"]), Toml("\"x-forwarded-for\""),
        "Where they say so; the other header is not looked at."),
    opt("server.ipv6_prefix", Count(1, 128), Toml("64"),
        "Leading bits of an IPv6 address that count as one client."),
    opt("server.max_connections", Count(1, 10_000_000), Unset("10000, or what the file descriptors allow"),
        "Connections open at once; more are closed unserved."),
    opt("server.max_connections_per_ip", Count(1, 10_000_000), Toml("2000"),
        "Connections of one client, IPv6 by `ipv6_prefix`; more are closed unserved. Trusted proxies and Unix sockets are \
         free of it."),
    opt("server.max_requests_per_ip", Count(1, 10_000_000), Toml("2000"),
        "Requests of one client that services have in hand or that wait for a connection; more are 429. Those that come \
         through trusted proxies and Unix sockets are free of it."),
    opt("server.shutdown_grace", Duration, Toml("\"30s\""),
        "How long running requests may go on after a signal to stop."),
    opt("server.forwarded", Switch, Toml("false"),
        "Send `Forwarded` (RFC 7239) beside `X-Forwarded-*`."),
    opt("server.max_head_bytes", Size(1024, 1 << 20), Toml("\"32KiB\""),
        "Longest request head; longer is 431."),
    opt("server.max_headers", Count(1, 10_000), Toml("100"),
        "Most request headers; more is 431."),
    // The http crate takes no target of 2^16 - 1 bytes or more.
    opt("server.max_uri_bytes", Size(16, 65_534), Toml("\"8KiB\""),
        "Longest request target; longer is 414."),
    opt("server.max_body_bytes", BODY, Toml("\"64MiB\""),
        "Longest body of a request; longer is 413."),
    opt("server.max_requests_per_connection", Count(1, 1_000_000_000), Toml("1000000"),
        "Requests on one connection; after the last it is closed."),
    opt("server.merge_slashes", Switch, Toml("true"),
        "Several slashes in a path are one, also to the service."),
    opt("server.encoded_slashes", OneOf(&["refuse", "keep"]), Toml("\"refuse\""),
        "`%2F` in a path: 400, or kept as a part of its segment, also to the service."),
    opt("server.paths.ignore_case", Switch, Toml("false"),
        "Match and key paths without regard to upper and lower case; they are forwarded as they are."),
    opt("server.paths.ignore_trailing_slash", Switch, Toml("false"),
        "Match and key `/a/` as `/a`."),
    opt("server.paths.ignore_params", Switch, Toml("false"),
        "Match and key `/a;v=1` as `/a`."),
    opt("server.max_untaken_bytes", Size(1 << 20, 1 << 40), Toml("\"256MiB\""),
        "Memory of answers that wait for their clients; beyond it, the connections that took nothing for longest are \
         closed."),
    opt("server.max_h2_streams", Count(1, 100_000), Toml("128"),
        "HTTP/2 streams open at once on a connection."),
    opt("server.underscores", OneOf(&["drop", "keep", "refuse"]), Toml("\"drop\""),
        "Request fields and trailers whose names have `_`: left out, kept, or 400. CGI and WSGI take `X_Name` for `X-Name`."),
    opt("server.proxy_protocol.from", Kind::Some("address or network"), Required,
        "Peers that begin each connection with a PROXY header, version 1 or 2; it says whose connection it is."),
    opt("server.tls.certificates", Tables("`cert` and `key` each"), Required,
        "What is shown to clients, by the host they ask for; the first to those who ask for another."),
    opt("server.tls.certificates.cert", Text("file"), Required,
        "A certificate in PEM, followed by those that signed it."),
    opt("server.tls.certificates.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("server.tls.client_ca", Text("file"), NONE,
        "Certificates in PEM that sign those of clients; clients show one."),
    opt("server.tls.client_auth", OneOf(&["required", "optional"]), Toml("\"required\""),
        "Whether a client without a certificate is turned away. One that does not hold always is."),

    opt("timeouts.request_head", Duration, Toml("\"10s\""),
        "From the first byte of a request to the end of its head, with the TLS handshake before it; past it, 408."),
    opt("timeouts.keep_alive", Duration, Toml("\"75s\""),
        "Between two requests on a connection; past it, and before twice that, the connection is closed."),
    opt("timeouts.connect", Duration, Toml("\"5s\""),
        "To connect to the upstream; past it, 504."),
    opt("timeouts.response_head", Duration, Toml("\"60s\""),
        "From the last progress of the request to the head of the response; past it, 504."),
    opt("timeouts.body_idle", Duration, Toml("\"60s\""),
        "Between two pieces of a body, in either direction."),
    opt("timeouts.min_send_rate", RATE, Toml("\"240B\""),
        "Bytes a second that a client has to send of a body while Weir waits for it, until the answer begins; below it, 408."),
    opt("timeouts.min_read_rate", RATE, Toml("\"240B\""),
        "Bytes a second that a client has to take of an answer while there is something to take; below it, it is cut off."),
    opt("timeouts.rate_window", Duration, Toml("\"30s\""), "How long these are measured at a time."),
    opt("timeouts.total", DurationOr("off"), Toml("\"off\""),
        "From the hand-over to the upstream to the end of the response."),
    opt("timeouts.upgraded_idle", Duration, Toml("\"5min\""),
        "Between two bytes on an upgraded connection, in either direction; past it, it is closed."),

    opt("dns.servers", List("address, or address and port"), Toml("[]"),
        "Name servers that are asked for names of endpoints; by default those of `/etc/resolv.conf`."),
    opt("upstream.url", Text(ENDPOINT), Unset("required without `[upstreams]`"),
        "The service behind Weir, if there is one in one place."),
    opt("upstream.host", OneOf(HOSTS), Toml("\"preserve\""),
        "`Host` towards the service: the client's, or that of `url`."),
    opt("upstream.tls.ca", Text("file"), Unset("what the system believes in"), CA),
    opt("upstream.tls.server_name", Text("host"), Unset("the host of the URL"), SERVER_NAME),
    opt("upstream.tls.cert", Text("file"), NONE, CERT),
    opt("upstream.tls.key", Text("file"), NONE, KEY),
    opt("upstream.protocol", OneOf(PROTOCOLS), Toml("\"http1\""), SPOKEN),
    opt("upstream.max_connections", CONNECTIONS, Unset(ALLOWED),
        "Connections to the service, from all workers and idle ones included; requests beyond wait."),
    opt("upstream.max_queued", Count(0, 1_000_000), Toml("1000"), MAX_QUEUED),
    opt("upstream.queue_timeout", Duration, Toml("\"5s\""), QUEUE_TIMEOUT),
    opt("upstream.max_idle", Count(0, 100_000), Unset("as many as were in use at once"),
        "Most idle connections to the service that each worker keeps."),
    opt("upstream.idle_timeout", Duration, Toml("\"30s\""),
        "How long an idle connection is kept."),
    opt("upstream.proxy_protocol", OneOf(PROXY_VERSIONS), Toml("\"off\""), PROXY_PROTOCOL),
    opt("upstream.upgrade", List(PROTOCOL), Toml("[]"), UPGRADE),

    opt("upstreams.NAME.endpoints", Kind::Some(SERVICE), Required,
        "The places where this service runs; `srv+http://` and `srv+https://` are those that the DNS knows."),
    opt("upstreams.NAME.protocol", OneOf(PROTOCOLS), Toml("\"http1\""), SPOKEN),
    opt("upstreams.NAME.balance", OneOf(&["round_robin", "least_connections", "p2c", "hash"]), Toml("\"round_robin\""),
        "Which endpoint gets a request: one after another, the one with the fewest requests in hand, the less loaded \
         of two picked by chance, or the same for requests that are alike in `hash_by`."),
    opt("upstreams.NAME.hash_by", Text("`ip`, `path`, `host`, `header:NAME`, `query:NAME` or `cookie:NAME`"),
        Unset("`ip`"),
        "With `hash`: what the requests for one endpoint have in common; those without it go by their address."),
    opt("upstreams.NAME.health.path", Text("path, also with a query"), Required,
        "What each endpoint is asked for; an answer from 200 to 399 is well."),
    opt("upstreams.NAME.health.interval", Duration, Toml("\"5s\""),
        "Time between two checks of an endpoint."),
    opt("upstreams.NAME.health.timeout", Duration, Toml("\"2s\""),
        "How long a check may take."),
    opt("upstreams.NAME.health.healthy_after", Count(1, 1000), Toml("2"),
        "Good answers in a row after which an endpoint is well again."),
    opt("upstreams.NAME.health.unhealthy_after", Count(1, 1000), Toml("3"),
        "Failures in a row after which it is not."),
    opt("upstreams.NAME.eject.after", Count(1, 1000), Toml("5"),
        "Requests in a row that fail at an endpoint, after which it gets none."),
    opt("upstreams.NAME.eject.for", Duration, Toml("\"10s\""),
        "How long; and then how long until it has its whole share again."),
    opt("upstreams.NAME.max_connections", CONNECTIONS, Unset(ALLOWED),
        "Connections to each endpoint, from all workers and idle ones included; requests beyond wait."),
    opt("upstreams.NAME.max_queued", Count(0, 1_000_000), Toml("1000"), MAX_QUEUED),
    opt("upstreams.NAME.queue_timeout", Duration, Toml("\"5s\""), QUEUE_TIMEOUT),
    opt("upstreams.NAME.resolve", Kind::DurationOrOneOf(RESOLVE), Toml("\"ttl\""),
        "When names are looked up; each address is then an endpoint. `ttl`: as the DNS says; a duration: by the system."),
    opt("upstreams.NAME.host", OneOf(HOSTS), Toml("\"preserve\""),
        "`Host` towards the service: the client's, or that of the endpoint."),
    opt("upstreams.NAME.tls.ca", Text("file"), Unset("what the system believes in"), CA),
    opt("upstreams.NAME.tls.server_name", Text("host"), Unset("the host of the URL"), SERVER_NAME),
    opt("upstreams.NAME.tls.cert", Text("file"), NONE, CERT),
    opt("upstreams.NAME.tls.key", Text("file"), NONE, KEY),
    opt("upstreams.NAME.max_idle", Count(0, 100_000), Unset("as many as were in use at once"),
        "Most idle connections to each endpoint that each worker keeps."),
    opt("upstreams.NAME.idle_timeout", Duration, Toml("\"30s\""),
        "How long an idle connection is kept."),
    opt("upstreams.NAME.proxy_protocol", OneOf(PROXY_VERSIONS), Toml("\"off\""), PROXY_PROTOCOL),
    opt("upstreams.NAME.upgrade", List(PROTOCOL), Toml("[]"), UPGRADE),

    opt("route.match.path", Kind::Some("path pattern"), Unset("all"),
        "Paths it takes, as in limits."),
    opt("route.match.host", Kind::Some("host or `*.host`"), Unset("all"),
        "Hosts it takes."),
    opt("route.match.method", Kind::Some("method"), Unset("all"),
        "Methods it takes."),
    opt("route.match.header", Map("header names, and values or `*`"), Unset("all"),
        "Headers that a request must have."),
    opt("route.upstream", Text("name of an upstream"), Required,
        "Where its requests go; the first route that matches counts, and without any it is 404."),
    opt("route.upgrade", List(PROTOCOL), Unset("`upgrade` of its upstream"),
        "Protocols that its clients may change to, in the place of those of its upstream."),
    opt("route.max_body_bytes", BODY, Unset("that of `server`"),
        "Longest body of its requests, in the place of `server.max_body_bytes`."),
    opt("route.rewrite.strip", Text("path"), NONE,
        "What is left out at the start of the path; every path of the route begins with it."),
    opt("route.rewrite.add", Text("path"), NONE,
        "What is put at the start of the path, or in the place of `strip`."),
    opt("route.rewrite.locations", Switch, Toml("true"), "Change paths in `Location` and `Content-Location` of answers back."),

    opt("admin.listen", Text("address and port, `unix:` and a path, or `off`"), Toml("\"127.0.0.1:9901\""),
        "Where metrics and health are served."),
    opt("admin.hosts", List("host name"), Toml("[]"),
        "Names by which its API may be asked, beside addresses and `localhost`."),
    opt("admin.insecure", Switch, Toml("false"),
        "Answer other machines without TLS."),
    opt("admin.token.env", Text("name"), NONE,
        "The environment variable that holds the token that operators show; this or `file`. Required where other \
         machines reach it."),
    opt("admin.token.file", Text("file"), NONE,
        "The file that holds it; one newline at its end is not part of it."),
    opt("admin.overrides", Text("file"), NONE,
        "Where overrides are kept that `/v1/overrides` sets; without it, none can be set at run time."),
    opt("admin.tls.certificates", Tables("`cert` and `key` each"), Required,
        "As `server.tls.certificates`, for operators."),
    opt("admin.tls.certificates.cert", Text("file"), Required,
        "A certificate in PEM, followed by those that signed it."),
    opt("admin.tls.certificates.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("admin.tls.client_ca", Text("file"), NONE,
        "Certificates in PEM that sign those of operators; operators show one."),
    opt("admin.tls.client_auth", OneOf(&["required", "optional"]), Toml("\"required\""),
        "Whether an operator without a certificate is turned away."),

    opt("headers.profiles", List("`x-ratelimit`, `ietf` or `wildberries`"), Toml("[\"x-ratelimit\"]"),
        "Which limit headers clients get."),
    opt("headers.free_preflights", Kind::RateOrFalse, Toml("\"50/s\""),
        "Rate of free CORS preflights of each client address. Few limits charge these, and they need no plan and no token."),

    opt("hold.max_waiting", Count(1, 10_000_000), Toml("10000"),
        "Requests held or delayed at once, over all limits."),
    opt("hold.max_waiting_bytes", Size(1, 1 << 40), Toml("\"64MiB\""),
        "Bytes of their heads."),
    opt("hold.max_waiting_per_client", Count(1, 10_000_000), Toml("2000"),
        "Requests of one client, IPv6 by `server.ipv6_prefix`, held or delayed at once, over all limits."),
    opt("hold.max_waiting_bytes_per_client", Size(1, 1 << 40), Toml("\"16MiB\""),
        "Bytes of their heads."),
    opt("tokens.max_cached", Count(1, 100_000_000), Toml("10000"),
        "Verified tokens that are remembered."),
    opt("snapshot.path", Text("file"), Required,
        "Where the state of limits is kept between runs, with the secret of their keys."),
    opt("snapshot.interval", Duration, Toml("\"1min\""), "How often it is written, beside the end of each run."),

    opt("log.format", OneOf(&["auto", "text", "json"]), Toml("\"auto\""),
        "How a log line is written; `auto` is text on a terminal and JSON elsewhere."),
    opt("log.level", OneOf(&["error", "warn", "info", "debug", "trace"]), Toml("\"info\""),
        "The least severe level that is written; access lines are always."),
    opt("log.access", OneOf(&["off", "all", "refused"]), Toml("\"off\""),
        "Which requests get a line; `refused` are those that were not forwarded."),

    opt("identity.NAME.header", Text("header name"), NONE,
        "The header whose value is the identity; this, `tls` or `jwt`. Anybody can invent one, and each is a fresh bucket."),
    opt("identity.NAME.tls", OneOf(&["subject_cn", "san_dns", "san_uri"]), NONE,
        "The name in the client's certificate that is the identity: common name, or alternative DNS name or URI."),
    opt("identity.NAME.several", OneOf(&["reject", "first", "last", "join"]), Toml("\"reject\""),
        "If `header` is there several times: 401, the first counts, the last, or all of them as one list."),
    opt("identity.NAME.on_missing", OneOf(&["reject", "anonymous", "ip"]), Toml("\"reject\""),
        "Without it: 401, one bucket for all, or a bucket per address."),
    opt("identity.NAME.jwt.claim", Text("claim name"), Required,
        "The claim that is the identity."),
    opt("identity.NAME.jwt.algorithms", Kind::Some("`HS256`, `RS256`, `ES256` or `EdDSA`"), Required,
        "Signatures that are accepted."),
    opt("identity.NAME.jwt.keys", Tables("one of `jwks`, `jwks_url`, `pem` and `secret` each"), Required,
        "Keys that are trusted."),
    opt("identity.NAME.jwt.keys.jwks", Text("file"), NONE,
        "A JSON Web Key Set."),
    opt("identity.NAME.jwt.keys.jwks_url", Text("URL of `https`"), NONE,
        "Where a JSON Web Key Set is fetched from; one for each identity at most."),
    opt("identity.NAME.jwt.keys.pem", Text("file"), NONE,
        "A public key in PEM."),
    opt("identity.NAME.jwt.keys.secret.env", Text("name"), NONE,
        "The environment variable that holds the secret of HS256; this or `file`."),
    opt("identity.NAME.jwt.keys.secret.file", Text("file"), NONE,
        "The file that holds the secret; one newline at its end is not part of it."),
    opt("identity.NAME.jwt.header", Text("header name"), Toml("\"authorization\""),
        "The header that carries the token, in `authorization` after `Bearer`."),
    opt("identity.NAME.jwt.issuer", Text("`iss`"), NONE,
        "The issuer that a token must name."),
    opt("identity.NAME.jwt.audience", Text("`aud`"), NONE,
        "The audience that a token must name."),
    opt("identity.NAME.jwt.require_exp", Switch, Toml("true"),
        "Refuse tokens that never expire."),
    opt("identity.NAME.jwt.leeway", DurationOrZero, Toml("\"0s\""),
        "How far the issuer's clock may be off."),
    opt("plans.from", Text("`IDENTITY.CLAIM` or `header:NAME`"), Required,
        "Where the name of a request's plan is: another claim of the token of an identity, or a header."),

    opt("access.deny.ip", Kind::Some("address or network"), NONE,
        "Clients that get 403, unless `allow.ip` has a longer prefix of theirs."),
    opt("access.deny.path", Kind::Some("path pattern"), NONE,
        "Paths that get 403, unless `allow.path` has a more specific pattern of them."),
    opt("access.deny.identity.NAME", Kind::Some("value"), NONE,
        "Who gets 403, by an identity."),
    opt("access.allow.ip", Kind::Some("address or network"), NONE,
        "Clients that no limit concerns, unless `deny.ip` has a longer prefix of theirs."),
    opt("access.allow.path", Kind::Some("path pattern"), NONE,
        "Paths that no limit concerns, unless `deny.path` has a more specific pattern of them."),
    opt("access.allow.identity.NAME", Kind::Some("value"), NONE,
        "Who no limit of the identified stage concerns, by an identity."),
    opt("access.require.path", Kind::Some("path pattern"), Required,
        "Paths that only some plans open."),
    opt("access.require.plan", Kind::Some("name of a plan"), Required,
        "The plans that do; without any of them, 403."),
];
