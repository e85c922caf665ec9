//! The options of `[[limit]]`.

use super::option::Kind::{
    self, Count, CountOrTable, Duration, DurationOr, List, Map, OneOf, Rates, Switch, Tables, Text,
};
use super::option::Preset::{Required, Toml, Unset};
use super::option::{NONE, Opt, UNLIMITED, opt};
use crate::engine::limit::sub_window::SUB_WINDOWS_MAX;
use crate::engine::limit::windows::WINDOWS_MAX;

const ALGORITHMS: &[&str] =
    &["token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "sub_window", "concurrency"];

/// How replicas share a limit.
pub(super) const STRATEGIES: &[&str] = &["local", "split", "redis", "lease", "stream", "service"];

/// The units of a lease.
pub(super) const UNITS: Kind = Kind::CountOr(1, u64::MAX, "auto");

#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("limit.name", Text("1 to 64 of `A-Z a-z 0-9 _ -`"), Required,
        "Its name in headers, metrics and logs; unique."),
    opt("limit.stage", OneOf(&["arrival", "identified"]), Toml("\"identified\""),
        "Time of the decision: before Weir verifies identity, or after."),
    opt("limit.mode", OneOf(&["enforce", "shadow", "off"]), Toml("\"enforce\""),
        "Refuse, only count, or do nothing."),
    opt("limit.match.path", Kind::Some("path pattern"), Unset("all"),
        "Paths to which it applies: literal, `{name}` for one segment, `{*rest}` for the rest."),
    opt("limit.match.host", Kind::Some("host or `*.host`"), Unset("all"),
        "Hosts to which it applies."),
    opt("limit.match.method", Kind::Some("method"), Unset("all"),
        "Methods to which it applies; GET includes HEAD."),
    opt("limit.match.header", Map("header names, and values or `*`"), Unset("all"),
        "Headers that a request must have."),
    opt("limit.except.ip", Kind::Some("address or network"), NONE,
        "Clients to which it does not apply. Their identity is verified all the same."),
    opt("limit.except.path", Kind::Some("path pattern"), NONE,
        "Paths to which it does not apply, of those in `match`."),
    opt("limit.key", List("part of a key"), Required,
        "Owner of a budget: `ip`, `path`, `route`, `host`, `method`, an identity, `header:NAME`, `query:NAME`, \
         `cookie:NAME`, or `name:NAME` for callers of the limiter service; `[]` for one budget for all."),
    opt("limit.several", OneOf(&["reject", "first", "last", "join"]), Toml("\"reject\""),
        "If a header, parameter or cookie of `key` occurs several times: 400, the first value, the last value, or \
         all values."),
    opt("limit.algorithm", OneOf(ALGORITHMS), Toml("\"token_bucket\""),
        "The algorithm."),
    opt("limit.rate", Rates(WINDOWS_MAX), Required,
        "COUNT `/` [N] UNIT, with UNIT `ms`, `s`, `min`, `h`, `day`, `week`, or `month` in calendar windows; of \
         several rates all must admit. `concurrency` has `max` instead."),
    opt("limit.burst", Count(1, u64::MAX), Unset("COUNT of `rate`"),
        "Units that may be spent at once; for a `leaky_bucket` that holds, units that may wait. Only with one rate, \
         of `token_bucket` or `leaky_bucket`."),
    opt("limit.max", Count(1, u64::MAX), Unset("required for `concurrency`"),
        "Units in flight at once."),
    opt("limit.align", OneOf(&["calendar", "first"]), Toml("\"calendar\""),
        "Windows of `fixed_window`: those of the calendar, or from the first request of each key."),
    opt("limit.time_zone", Text("IANA name"), Toml("\"UTC\""),
        "Time zone in which days of `align = \"calendar\"` begin."),
    opt("limit.sub_windows", Count(1, SUB_WINDOWS_MAX as u64), Toml("10"),
        "Parts of a window of `sub_window`."),
    opt("limit.strategy", Kind::OneOfOrTable(STRATEGIES), Unset("`fleet.strategy`, or `local`"),
        "How replicas share the limit; a word is short for `{ use = \"...\" }`."),
    opt("limit.strategy.use", OneOf(STRATEGIES), Required,
        "`local` gives each replica the whole limit, and `split` an equal share. With `redis` a store decides each \
         request, and with `lease` each replica, by units that it borrows from a store. With `stream` each replica \
         decides, and tells the others what it charged. With `service` the limiter service of another Weir decides each \
         request."),
    opt("limit.strategy.store", Text("name of a store"), Unset("the only store"),
        "With `redis`, `lease` and `service`: the `[store.NAME]` that has the state of the limit."),
    opt("limit.strategy.url", Text("`http://host:port` or `https://host:port`"), NONE,
        "With `service`: the limiter service, instead of a `[store.NAME]` with the defaults."),
    opt("limit.strategy.units", UNITS, Toml("\"auto\""),
        "With `lease`: units that a replica borrows at once; `auto` follows the demand of each key."),
    opt("limit.cost", CountOrTable(1), Toml("1"),
        "Units that a request takes; at most as many as each of its rates admits."),
    opt("limit.cost.default", Count(1, u64::MAX), Toml("1"),
        "Units of a request that nothing else in `cost` fits."),
    opt("limit.cost.paths", Tables("`units`, and `path` or `method` each"), NONE,
        "Units by path and method: the first line that fits counts. One of `paths`, `header` and `query`."),
    opt("limit.cost.paths.path", Kind::Some("path pattern"), Unset("all"),
        "Paths, as in `match`."),
    opt("limit.cost.paths.method", Kind::Some("method"), Unset("all"),
        "Methods; GET includes HEAD, unless a line for the path names HEAD."),
    opt("limit.cost.paths.units", Count(1, u64::MAX), Required,
        "Units that such a request takes."),
    opt("limit.cost.header", Text("header name"), NONE,
        "Header that contains the units, from 1 to `max`; of several values the highest counts."),
    opt("limit.cost.query", Text("parameter"), NONE,
        "Query parameter that contains the units; of several values the highest counts."),
    opt("limit.cost.max", Count(1, u64::MAX), Unset("required for `header` and `query`"),
        "Most units that one request can name."),
    opt("limit.plans.NAME", Kind::Allowance(UNLIMITED), NONE,
        "Numbers for requests with this plan. A factor such as `x10` is of each window and of the burst of the limit."),
    opt("limit.plans.NAME.rate", Rates(WINDOWS_MAX), Required,
        "As `limit.rate`."),
    opt("limit.plans.NAME.burst", Count(1, u64::MAX), Unset("COUNT of `rate`"),
        "As `limit.burst`."),
    opt("limit.plans.NAME.max", Count(1, u64::MAX), Unset("required for `concurrency`"),
        "As `limit.max`."),
    opt("limit.overrides.NAME", Kind::Allowance(UNLIMITED), NONE,
        "Numbers for the key with this text, before any plan; the parts of a key are joined by a vertical bar. \
         A factor is as for plans."),
    opt("limit.overrides.NAME.rate", Rates(WINDOWS_MAX), Required,
        "As `limit.rate`."),
    opt("limit.overrides.NAME.burst", Count(1, u64::MAX), Unset("COUNT of `rate`"),
        "As `limit.burst`."),
    opt("limit.overrides.NAME.max", Count(1, u64::MAX), Unset("required for `concurrency`"),
        "As `limit.max`."),
    opt("limit.overrides.NAME.plan", Text("name of a plan"), NONE,
        "The plan of the limit whose numbers the key has, in place of numbers of its own."),
    opt("limit.count.status", Kind::Some("status or class such as `4xx`"), Unset("all"),
        "Statuses that count; Weir gives the charge for any other status back."),
    opt("limit.settle.by", Text("`elapsed_ms`, `response_bytes`, `status` or `header:NAME`"), Required,
        "Real cost of a request; Weir corrects its charge to that, up or down."),
    opt("limit.settle.every", Duration, NONE,
        "With `elapsed_ms`: time between two charges of a running request."),
    opt("limit.settle.units", Map("statuses or classes, and units"), NONE,
        "With `status`: units of each status; for others the charge stays."),
    opt("limit.max_debt", Count(0, u64::MAX), NONE,
        "With `settle`: most units that a key may owe. No request of the key passes until they are paid."),
    opt("limit.on_limit", OneOf(&["reject", "hold", "delay"]), Toml("\"reject\""),
        "A request beyond the limit: 429, wait, or pass later."),
    opt("limit.hold.max_wait", DurationOr("forever"), Toml("\"forever\""),
        "Longest wait; a request that would wait longer is 429 at once."),
    opt("limit.hold.max_waiting", Count(1, 10_000_000), Toml("1000"),
        "Requests that wait, or are delayed, on one key; for `leaky_bucket` the default is `burst`."),
    opt("limit.delay.step", Duration, Toml("\"100ms\""),
        "Delay for each unit over the limit."),
    opt("limit.delay.max", Duration, Toml("\"5s\""),
        "Longest delay."),
    opt("limit.ban.after", Text("rate"), Required,
        "Rate of refusals by this limit that bans a key."),
    opt("limit.ban.for", Duration, Required,
        "Time for which requests of the key under this limit are 403; each further ban is twice as long."),
    opt("limit.ban.for_max", Duration, Unset("`24h`, or `for` if that is longer"),
        "Longest ban; after this time without a ban, the next ban lasts `for` again."),
    opt("limit.max_keys", Count(1, 1 << 32), Toml("1000000"),
        "Keys that Weir remembers exactly."),
    opt("limit.on_full", OneOf(&["sketch", "shared", "reject", "allow"]), Unset("`sketch` if it can be, else `shared`"),
        "New keys at `max_keys`: counted in fixed memory, sharing buckets, refused, or admitted uncounted."),
    opt("limit.persist", Switch, Unset("true if a rate or a ban of it lasts an hour or more"),
        "Keep its state in `snapshot.path`, so that a restart refills no bucket."),
];
