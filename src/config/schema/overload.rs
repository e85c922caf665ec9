//! The options of `[client_api]`, `[refusals]`, `[priority]` and `[overload]`.

use super::option::Kind::{self, Count, Duration, DurationOr, OneOf, Text};
use super::option::Preset::{Required, Toml, Unset};
use super::option::{NONE, Opt, opt};
use super::words;

#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("client_api.path", Text("path"), Required,
        "Path at which a client with a verified identity sees its own limits, such as `/.well-known/ratelimit`."),
    opt("client_api.rate", Text("rate"), Toml("\"10/10s\""),
        "Requests of each client address for it; further ones are 429."),

    opt("refusals.keep", DurationOr("off"), Toml("\"1h\""),
        "Time for which refusals by limits and bans can be explained by their ids."),
    opt("refusals.max", Count(64, 1_000_000), Toml("10000"),
        "Refusals that are kept, with up to 1 KiB each; older ones are displaced."),

    opt("priority.header", Text("name of a header"), NONE,
        "Header in which trusted proxies name the priority, before all rules; they must remove it from requests of clients. \
         Another value, or several, is `background`."),
    opt("priority.min_share", Text("percentage"), Toml("\"0%\""),
        "Least part of the units of a limit for held requests of each priority below critical, at most `25%`; with `0%` they \
         can wait for ever."),
    opt("priority.rule.priority", OneOf(&words::PRIORITIES), Required,
        "Priority of the requests that the rule fits. The first such rule decides; without one it is `normal`."),
    opt("priority.rule.match.path", Kind::Some("path pattern"), Unset("all"),
        "As `limit.match.path`."),
    opt("priority.rule.match.host", Kind::Some("host or `*.host`"), Unset("all"),
        "As `limit.match.host`."),
    opt("priority.rule.match.method", Kind::Some("method"), Unset("all"),
        "As `limit.match.method`."),
    opt("priority.rule.plan", Kind::Some("name of a plan"), Unset("all"),
        "Plans of which the request has one. A plan in a header counts only from a trusted proxy."),

    opt("overload.cpu", Text("percentage"), NONE,
        "CPU time of all processes, of the machine or of the cgroup's quota, beyond which requests are shed; `1%` to `99%`."),
    opt("overload.in_flight", Count(1, 10_000_000), NONE,
        "Requests at services or in wait for a connection to one beyond which requests are shed; upgraded connections are \
         none."),
    opt("overload.queue_delay", Duration, NONE,
        "Wait for a connection to a service beyond which requests are shed."),
];
