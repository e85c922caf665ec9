//! The table of options, in the order of documentation.

use super::option::Kind::{
    self, Count, Duration, DurationOr, DurationOrZero, List, Map, OneOf, Size, SizeOr, Switch, Tables, Text,
};
use super::option::Preset::{Required, Toml, Unset};
use super::option::{NONE, Opt, opt};
use super::{fleet, grpc, limit};

/// All options: first those of other tables, then those of replicas, of the limiter service and of limits.
pub(super) static OPTIONS: [Opt; OTHERS.len() + fleet::OPTIONS.len() + grpc::OPTIONS.len() + limit::OPTIONS.len()] =
    joined([OTHERS, fleet::OPTIONS, grpc::OPTIONS, limit::OPTIONS]);

const fn joined<const N: usize>(parts: [&[Opt]; 4]) -> [Opt; N] {
    let mut all = [parts[0][0]; N];
    let (mut at, mut part, mut within) = (0, 0, 0);
    while at < N {
        if within == parts[part].len() {
            (part, within) = (part + 1, 0);
        }
        all[at] = parts[part][within];
        (at, within) = (at + 1, within + 1);
    }
    all
}

const PLACES: Kind = Kind::Some("address and port, or `unix:` and a path");
const ENDPOINT: &str = "`http://host[:port]`, `https://host[:port]` or `unix:/path`";
const CA: &str = "Authorities of the service's certificate, in PEM.";
const SERVER_NAME: &str = "Name that the certificate of the service must contain; Weir also asks for it.";
const CERT: &str = "Weir's own certificate for the service in PEM, followed by the certificates of its issuers.";
const KEY: &str = "Its private key in PEM, without a password.";
const HOSTS: &[&str] = &["preserve", "upstream"];
const PROXY_VERSIONS: &[&str] = &["off", "v1", "v2"];
const PROXY_PROTOCOL: &str = "Begin connections with a PROXY header, which has the address of the client; each request then has its own connection.";
pub(in crate::config) const RESOLVE: &[&str] = &["ttl", "off"];
const SERVICE: &str = "`http://host[:port]`, `https://host[:port]`, `unix:/path`, or `srv+http://_service._tcp.name`";
const PROTOCOLS: &[&str] = &["http1", "h2"];
const SPOKEN: &str = "Protocol with the service; `h2` is HTTP/2, which gRPC needs, on connections that requests share.";
const PROTOCOL: &str = "name of a protocol, such as `websocket`";
const BODY: Kind = SizeOr(1, 1 << 50, "off");
const RATE: Kind = SizeOr(1, 1 << 40, "off");
const CONNECTIONS: Kind = Count(1, 1_000_000);
const ALLOWED: &str = "what the file descriptors allow";
const MAX_QUEUED: &str = "Requests that wait for a connection; more are 503.";
const QUEUE_TIMEOUT: &str = "Longest wait for a connection, or for other requests of the client to end; then 503.";
const UPGRADE: &str = "Protocols that clients may change to with `Upgrade`; Weir does not forward other upgrades.";

#[rustfmt::skip]
const OTHERS: &[Opt] = &[
    opt("server.listen", PLACES, Toml("\"127.0.0.1:8080\""),
        "Addresses that clients connect to; none with `[check]` or `[grpc]` and without an upstream."),
    opt("server.unix_mode", Text("octal digits"), Toml("\"0660\""),
        "Permissions of Unix sockets, also of `admin.listen`."),
    opt("server.takeover", Text("path"), NONE,
        "Unix socket over which the next process takes over the sockets and the spent units of this process."),
    opt("server.workers", Count(1, 1024), Unset("one per CPU"),
        "Threads that serve connections."),
    opt("server.trusted_proxies", List("address or network"), Toml("[]"),
        "Proxies whose forwarding header Weir believes."),
    opt("server.address_header", OneOf(&["x-forwarded-for", "forwarded"]), Toml("\"x-forwarded-for\""),
        "The forwarding header of trusted proxies; Weir ignores the other header."),
    opt("server.ipv6_prefix", Count(1, 128), Toml("64"),
        "Leading bits of an IPv6 address that count as one client."),
    opt("server.max_connections", Count(1, 10_000_000), Unset("10000, or what the file descriptors allow"),
        "Connections open at once; further ones are closed unserved."),
    opt("server.max_connections_per_ip", Count(1, 10_000_000), Toml("2000"),
        "Connections of one client, IPv6 by `ipv6_prefix`; further ones are closed unserved. Trusted proxies and \
         Unix sockets do not count."),
    opt("server.max_requests_per_ip", Count(1, 10_000_000), Toml("2000"),
        "Requests of one client that are in progress at services or wait for a connection; further ones are 429. \
         Requests through a trusted proxy count to the client that it names; Unix sockets do not count."),
    opt("server.shutdown_grace", Duration, Toml("\"30s\""),
        "Longest time for running requests after a signal to stop."),
    opt("server.forwarded", Switch, Toml("false"),
        "Send `Forwarded` (RFC 7239) beside `X-Forwarded-*`."),
    opt("server.max_head_bytes", Size(1024, 1 << 20), Toml("\"32KiB\""),
        "Longest request head; a longer one is 431."),
    opt("server.max_headers", Count(1, 10_000), Toml("100"),
        "Most request headers; more are 431."),
    // The http crate takes no target of 2^16 - 1 bytes or more.
    opt("server.max_uri_bytes", Size(16, 65_534), Toml("\"8KiB\""),
        "Longest request target; a longer one is 414."),
    opt("server.max_body_bytes", BODY, Toml("\"64MiB\""),
        "Longest body of a request; a longer one is 413."),
    opt("server.max_requests_per_connection", Count(1, 1_000_000_000), Toml("1000000"),
        "Requests on one connection; Weir closes it after the last."),
    opt("server.merge_slashes", Switch, Toml("true"),
        "Treat several slashes in a path as one, also towards the service."),
    opt("server.encoded_slashes", OneOf(&["refuse", "keep"]), Toml("\"refuse\""),
        "`%2F` in a path: answer 400, or keep it as a character of its segment, also towards the service."),
    opt("server.paths.ignore_case", Switch, Toml("false"),
        "Match and key paths without regard to case; the service gets them unchanged."),
    opt("server.paths.ignore_trailing_slash", Switch, Toml("false"),
        "Match and key `/a/` as `/a`."),
    opt("server.paths.ignore_params", Switch, Toml("false"),
        "Match and key `/a;v=1` as `/a`."),
    opt("server.max_untaken_bytes", Size(1 << 20, 1 << 40), Toml("\"256MiB\""),
        "Memory of answers that wait for their clients. Beyond it Weir ends HTTP/1 connections and HTTP/2 streams, first \
         those whose oldest byte has waited longest."),
    opt("server.max_h2_streams", Count(1, 100_000), Toml("128"),
        "HTTP/2 streams open at once on a connection."),
    opt("server.underscores", OneOf(&["drop", "keep", "refuse"]), Toml("\"drop\""),
        "Request fields and trailers whose names have `_`: remove them, keep them, or answer 400. CGI and WSGI read \
         `X_Name` as `X-Name`."),
    opt("server.proxy_protocol.from", Kind::Some("address or network"), Required,
        "Peers that begin each connection with a PROXY header, version 1 or 2, which has the address of the client."),
    opt("server.tls.certificates", Tables("`cert` and `key` each"), Required,
        "Certificates for clients, chosen by the requested host; the first for any other host."),
    opt("server.tls.certificates.cert", Text("file"), Required,
        "A certificate in PEM, followed by the certificates of its issuers."),
    opt("server.tls.certificates.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("server.tls.client_ca", Text("file"), NONE,
        "Authorities of client certificates, in PEM; with it, clients show a certificate."),
    opt("server.tls.client_auth", OneOf(&["required", "optional"]), Toml("\"required\""),
        "Whether Weir refuses a client without a certificate. It always refuses an invalid certificate."),

    opt("timeouts.request_head", Duration, Toml("\"10s\""),
        "From the first byte of a request, or the start of the TLS handshake, to the end of its head; then 408."),
    opt("timeouts.keep_alive", Duration, Toml("\"75s\""),
        "Between two requests on a connection; Weir closes it after this time, and before twice this time."),
    opt("timeouts.connect", Duration, Toml("\"5s\""),
        "To connect to the upstream; then 504."),
    opt("timeouts.response_head", Duration, Toml("\"60s\""),
        "From the last progress of the request to the head of the response; then 504."),
    opt("timeouts.body_idle", Duration, Toml("\"60s\""),
        "Between two pieces of a body, in either direction."),
    opt("timeouts.min_send_rate", RATE, Toml("\"240B\""),
        "Lowest rate, in bytes a second, at which a client sends a body while Weir waits for it, until the answer \
         begins; below it, 408."),
    opt("timeouts.min_read_rate", RATE, Toml("\"240B\""),
        "Lowest rate, in bytes a second, at which a client reads an answer while there are bytes to read; below it, \
         Weir cuts the answer."),
    opt("timeouts.rate_window", Duration, Toml("\"30s\""),
        "Time over which Weir measures both rates."),
    opt("timeouts.total", DurationOr("off"), Toml("\"off\""),
        "From the hand-over to the upstream to the end of the response."),
    opt("timeouts.upgraded_idle", Duration, Toml("\"5min\""),
        "Between two bytes on an upgraded connection, in either direction; then Weir closes it."),

    opt("dns.servers", List("address, or address and port"), Toml("[]"),
        "Name servers for the names of endpoints; by default those of `/etc/resolv.conf`."),
    opt("upstream.url", Text(ENDPOINT), Unset("required without `[upstreams]`, `[check]` and `[grpc]`"),
        "The address of the service, if there is one service at one address."),
    opt("upstream.host", OneOf(HOSTS), Toml("\"preserve\""),
        "`Host` towards the service: the client's, or that of `url`."),
    opt("upstream.tls.ca", Text("file"), Unset("the authorities of the system"), CA),
    opt("upstream.tls.server_name", Text("host"), Unset("the host of the URL"), SERVER_NAME),
    opt("upstream.tls.cert", Text("file"), NONE, CERT),
    opt("upstream.tls.key", Text("file"), NONE, KEY),
    opt("upstream.protocol", OneOf(PROTOCOLS), Toml("\"http1\""), SPOKEN),
    opt("upstream.max_connections", CONNECTIONS, Unset(ALLOWED),
        "Connections of all workers to the service, also idle connections; further requests wait."),
    opt("upstream.max_queued", Count(0, 1_000_000), Toml("1000"), MAX_QUEUED),
    opt("upstream.queue_timeout", Duration, Toml("\"5s\""), QUEUE_TIMEOUT),
    opt("upstream.max_idle", Count(0, 100_000), Unset("as many as were in use at once"),
        "Most idle connections to the service in each worker."),
    opt("upstream.idle_timeout", Duration, Toml("\"30s\""),
        "Time for which Weir keeps an idle connection."),
    opt("upstream.proxy_protocol", OneOf(PROXY_VERSIONS), Toml("\"off\""), PROXY_PROTOCOL),
    opt("upstream.upgrade", List(PROTOCOL), Toml("[]"), UPGRADE),

    opt("upstreams.NAME.endpoints", Kind::Some(SERVICE), Required,
        "Addresses of the service; `srv+http://` and `srv+https://` take them from SRV records."),
    opt("upstreams.NAME.protocol", OneOf(PROTOCOLS), Toml("\"http1\""), SPOKEN),
    opt("upstreams.NAME.balance", OneOf(&["round_robin", "least_connections", "p2c", "hash"]), Toml("\"round_robin\""),
        "Endpoint of a request: one after another, the endpoint with the fewest requests in progress, the less busy \
         of two random endpoints, or the same endpoint for requests that are alike in `hash_by`."),
    opt("upstreams.NAME.hash_by", Text("`ip`, `path`, `host`, `header:NAME`, `query:NAME` or `cookie:NAME`"),
        Unset("`ip`"),
        "With `hash`: the value that selects the endpoint; for a request without it, the address of the client."),
    opt("upstreams.NAME.health.path", Text("path, also with a query"), Required,
        "Target of the checks; a status from 200 to 399 is good."),
    opt("upstreams.NAME.health.interval", Duration, Toml("\"5s\""),
        "Time between two checks of an endpoint."),
    opt("upstreams.NAME.health.timeout", Duration, Toml("\"2s\""),
        "Longest time of a check."),
    opt("upstreams.NAME.health.healthy_after", Count(1, 1000), Toml("2"),
        "Good checks in a row after which an endpoint is healthy again."),
    opt("upstreams.NAME.health.unhealthy_after", Count(1, 1000), Toml("3"),
        "Failed checks in a row after which an endpoint is unhealthy."),
    opt("upstreams.NAME.eject.after", Count(1, 1000), Toml("5"),
        "Failed requests in a row after which an endpoint gets none."),
    opt("upstreams.NAME.eject.for", Duration, Toml("\"10s\""),
        "Time without requests; then the share of the endpoint grows for the same time."),
    opt("upstreams.NAME.max_connections", CONNECTIONS, Unset(ALLOWED),
        "Connections of all workers to each endpoint, also idle connections; further requests wait."),
    opt("upstreams.NAME.max_queued", Count(0, 1_000_000), Toml("1000"), MAX_QUEUED),
    opt("upstreams.NAME.queue_timeout", Duration, Toml("\"5s\""), QUEUE_TIMEOUT),
    opt("upstreams.NAME.resolve", Kind::DurationOrOneOf(RESOLVE), Toml("\"ttl\""),
        "Lookup of names; each address is then an endpoint. `ttl`: by name servers, when the last answer expires; a \
         duration: by the system, at this interval."),
    opt("upstreams.NAME.host", OneOf(HOSTS), Toml("\"preserve\""),
        "`Host` towards the service: the client's, or that of the endpoint."),
    opt("upstreams.NAME.tls.ca", Text("file"), Unset("the authorities of the system"), CA),
    opt("upstreams.NAME.tls.server_name", Text("host"), Unset("the host of the URL"), SERVER_NAME),
    opt("upstreams.NAME.tls.cert", Text("file"), NONE, CERT),
    opt("upstreams.NAME.tls.key", Text("file"), NONE, KEY),
    opt("upstreams.NAME.max_idle", Count(0, 100_000), Unset("as many as were in use at once"),
        "Most idle connections to each endpoint in each worker."),
    opt("upstreams.NAME.idle_timeout", Duration, Toml("\"30s\""),
        "Time for which Weir keeps an idle connection."),
    opt("upstreams.NAME.proxy_protocol", OneOf(PROXY_VERSIONS), Toml("\"off\""), PROXY_PROTOCOL),
    opt("upstreams.NAME.upgrade", List(PROTOCOL), Toml("[]"), UPGRADE),

    opt("route.match.path", Kind::Some("path pattern"), Unset("all"),
        "Paths of the route, as in limits."),
    opt("route.match.host", Kind::Some("host or `*.host`"), Unset("all"),
        "Hosts of the route."),
    opt("route.match.method", Kind::Some("method"), Unset("all"),
        "Methods of the route."),
    opt("route.match.header", Map("header names, and values or `*`"), Unset("all"),
        "Headers that a request must have."),
    opt("route.upstream", Text("name of an upstream"), Required,
        "Upstream of its requests. The first route that matches counts; a request without a route is 404."),
    opt("route.upgrade", List(PROTOCOL), Unset("`upgrade` of its upstream"),
        "Protocols that its clients may change to, instead of those of its upstream."),
    opt("route.max_body_bytes", BODY, Unset("that of `server`"),
        "Longest body of its requests, instead of `server.max_body_bytes`."),
    opt("route.rewrite.strip", Text("path"), NONE,
        "Segments to remove at the start of the path; every path of the route begins with them."),
    opt("route.rewrite.add", Text("path"), NONE,
        "Segments to add at the start of the path, or in place of `strip`."),
    opt("route.rewrite.locations", Switch, Toml("true"), "Change paths in `Location` and `Content-Location` of answers back."),

    opt("check.listen", Text("address and port, or `unix:` and a path"), Required,
        "Address at which other proxies and services ask whether a request may pass; they are `server.trusted_proxies`."),
    opt("check.headers", OneOf(&["x-forwarded", "x-original"]), Toml("\"x-forwarded\""),
        "Headers that describe a request to `/auth`: `X-Forwarded-Method`, `-Uri` and `-Host`, as Traefik and Caddy send \
         them, or `X-Original-Method`, `-URI` and `-Host`, as in configurations of nginx. Weir ignores the other headers."),
    opt("check.max_connections", Count(1, 1_000_000), Toml("1000"),
        "Connections to this listener open at once; further ones are closed unserved."),
    opt("check.tls.certificates", Tables("`cert` and `key` each"), Required,
        "As `server.tls.certificates`, for proxies and services that ask."),
    opt("check.tls.certificates.cert", Text("file"), Required,
        "A certificate in PEM, followed by the certificates of its issuers."),
    opt("check.tls.certificates.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("check.tls.client_ca", Text("file"), NONE,
        "Authorities of the certificates of those that ask, in PEM; with it, they show a certificate."),
    opt("check.tls.client_auth", OneOf(&["required", "optional"]), Toml("\"required\""),
        "Whether Weir refuses those without a certificate."),

    opt("admin.listen", Text("address and port, `unix:` and a path, or `off`"), Toml("\"127.0.0.1:9901\""),
        "Address of the admin listener: metrics, health and the API."),
    opt("admin.hosts", List("host name"), Toml("[]"),
        "Names that a `Host` of the API may have, beside addresses and `localhost`."),
    opt("admin.insecure", Switch, Toml("false"),
        "Answer other machines without TLS."),
    opt("admin.token.env", Text("name"), NONE,
        "Environment variable that holds the token of operators; this or `file`. Required if other machines can \
         connect."),
    opt("admin.token.file", Text("file"), NONE,
        "File that holds the token; one newline at its end does not count."),
    opt("admin.tokens", Tables("`name`, `role` and `token` each"), NONE,
        "More tokens, each with a name for the audit log."),
    opt("admin.tokens.name", Text("name"), Required,
        "The name of the token's owner. `admin.token` has the name `admin`."),
    opt("admin.tokens.role", OneOf(&["read", "write"]), Required,
        "`read` for requests that change nothing, `write` for all requests."),
    opt("admin.tokens.token.env", Text("name"), NONE,
        "Environment variable that holds the token; this or `file`."),
    opt("admin.tokens.token.file", Text("file"), NONE,
        "File that holds the token; one newline at its end does not count."),
    opt("admin.audit", Text("file"), NONE,
        "File to which each change of an operator adds a line of JSON. The log has these lines, too."),
    opt("admin.bans", Text("file"), Unset("beside the configuration, as `NAME.bans.jsonl`"),
        "File in which Weir keeps the bans of `/v1/bans`."),
    opt("admin.overrides", Text("file, `memory`, or `off`"),
        Unset("beside the configuration, as `NAME.overrides.toml`; else `memory`"),
        "File in which Weir keeps the overrides of `/v1/overrides`. With `memory` they end with the process; with `off` \
         none can be set."),
    opt("admin.tls.certificates", Tables("`cert` and `key` each"), Required,
        "As `server.tls.certificates`, for operators."),
    opt("admin.tls.certificates.cert", Text("file"), Required,
        "A certificate in PEM, followed by the certificates of its issuers."),
    opt("admin.tls.certificates.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("admin.tls.client_ca", Text("file"), NONE,
        "Authorities of operators' certificates, in PEM; with it, operators show a certificate."),
    opt("admin.tls.client_auth", OneOf(&["required", "optional"]), Toml("\"required\""),
        "Whether Weir refuses an operator without a certificate."),

    opt("headers.profiles", List("`x-ratelimit`, `ietf` or `wildberries`"), Toml("[\"x-ratelimit\"]"),
        "Limit headers of answers."),
    opt("headers.free_preflights", Kind::RateOrFalse, Toml("\"50/s\""),
        "Rate of free CORS preflights of each client address. Few limits charge these, and they need no plan and no \
         token."),

    opt("hold.max_waiting", Count(1, 10_000_000), Toml("10000"),
        "Requests held or delayed at once, over all limits."),
    opt("hold.max_waiting_bytes", Size(1, 1 << 40), Toml("\"64MiB\""),
        "Bytes of the heads of these requests."),
    opt("hold.max_waiting_per_client", Count(1, 10_000_000), Toml("2000"),
        "Requests of one client, IPv6 by `server.ipv6_prefix`, held or delayed at once, over all limits."),
    opt("hold.max_waiting_bytes_per_client", Size(1, 1 << 40), Toml("\"16MiB\""),
        "Bytes of the heads of these requests."),
    opt("tokens.max_cached", Count(1, 100_000_000), Toml("10000"),
        "Verified tokens that Weir remembers."),
    opt("snapshot.path", Text("file"), Required,
        "File with the state of limits, and with the secret that keys are hashed under."),
    opt("snapshot.interval", Duration, Toml("\"1min\""),
        "Time between two writes; Weir also writes at the end of each run."),

    opt("log.format", OneOf(&["auto", "text", "json"]), Toml("\"auto\""),
        "Format of log lines; `auto` is text on a terminal and JSON elsewhere."),
    opt("log.level", OneOf(&["error", "warn", "info", "debug", "trace"]), Toml("\"info\""),
        "Least severe level in the log; access lines do not depend on it."),
    opt("log.access", OneOf(&["off", "all", "refused"]), Toml("\"off\""),
        "Requests that get a line; `refused` are those that Weir did not forward."),

    opt("identity.NAME.header", Text("header name"), NONE,
        "Header whose value is the identity; this, `tls` or `jwt`. Anybody can invent values, and each is a fresh \
         bucket."),
    opt("identity.NAME.tls", OneOf(&["subject_cn", "san_dns", "san_uri"]), NONE,
        "Name in the client's certificate that is the identity: common name, or alternative DNS name or URI."),
    opt("identity.NAME.several", OneOf(&["reject", "first", "last", "join"]), Toml("\"reject\""),
        "If `header` occurs several times: 401, the first value, the last value, or all values as one list."),
    opt("identity.NAME.on_missing", OneOf(&["reject", "anonymous", "ip"]), Toml("\"reject\""),
        "A request without it: 401, one bucket for all such requests, or a bucket by address."),
    opt("identity.NAME.jwt.claim", Text("claim name"), Required,
        "The claim that is the identity."),
    opt("identity.NAME.jwt.algorithms", Kind::Some("`HS256`, `RS256`, `ES256` or `EdDSA`"), Required,
        "Accepted signature algorithms."),
    opt("identity.NAME.jwt.keys", Tables("one of `jwks`, `jwks_url`, `pem` and `secret` each"), Required,
        "Trusted keys."),
    opt("identity.NAME.jwt.keys.jwks", Text("file"), NONE,
        "File of a JSON Web Key Set."),
    opt("identity.NAME.jwt.keys.jwks_url", Text("URL of `https`"), NONE,
        "URL of a JSON Web Key Set; at most one for each identity."),
    opt("identity.NAME.jwt.keys.pem", Text("file"), NONE,
        "File of a public key in PEM."),
    opt("identity.NAME.jwt.keys.secret.env", Text("name"), NONE,
        "Environment variable that holds the secret of HS256; this or `file`."),
    opt("identity.NAME.jwt.keys.secret.file", Text("file"), NONE,
        "File that holds the secret; one newline at its end does not count."),
    opt("identity.NAME.jwt.header", Text("header name"), Toml("\"authorization\""),
        "Header that carries the token; in `authorization`, after `Bearer`."),
    opt("identity.NAME.jwt.issuer", Text("`iss`"), NONE,
        "The issuer that a token must name."),
    opt("identity.NAME.jwt.audience", Text("`aud`"), NONE,
        "The audience that a token must name."),
    opt("identity.NAME.jwt.require_exp", Switch, Toml("true"),
        "Refuse tokens that never expire."),
    opt("identity.NAME.jwt.leeway", DurationOrZero, Toml("\"0s\""),
        "Accepted difference of the issuer's clock."),
    opt("plans.from", Text("`IDENTITY.CLAIM` or `header:NAME`"), Required,
        "Source of the plan's name: another claim of the token of an identity, or a header."),

    opt("access.deny.ip", Kind::Some("address or network"), NONE,
        "Clients that get 403, unless `allow.ip` has a longer prefix for them."),
    opt("access.deny.path", Kind::Some("path pattern"), NONE,
        "Paths that get 403, unless `allow.path` has a more specific pattern for them."),
    opt("access.deny.identity.NAME", Kind::Some("value"), NONE,
        "Values of an identity that get 403."),
    opt("access.allow.ip", Kind::Some("address or network"), NONE,
        "Clients to which no limit applies, unless `deny.ip` has a longer prefix for them."),
    opt("access.allow.path", Kind::Some("path pattern"), NONE,
        "Paths to which no limit applies, unless `deny.path` has a more specific pattern for them."),
    opt("access.allow.identity.NAME", Kind::Some("value"), NONE,
        "Values of an identity to which no limit of the identified stage applies."),
    opt("access.require.path", Kind::Some("path pattern"), Required,
        "Paths that only some plans may use."),
    opt("access.require.plan", Kind::Some("name of a plan"), Required,
        "Plans that may use them; other requests get 403."),
];
