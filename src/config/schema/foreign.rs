//! Words of other rate limiters, and the words of Weir for them. Messages about unknown words use them.

const ONE_RATE: &str = "write the count and the period as one rate, as in `rate = \"100/min\"`";
const BURST: &str = "`burst` is the number of units that may be spent at once; it is the COUNT of `rate` by default";
const KEY: &str = "`key` says whose budget it is, as in `key = [\"ip\"]`";
const CONCURRENCY: &str = "requests in flight are a limit with `algorithm = \"concurrency\"` and `max`";
const MODE: &str = "`mode` is `enforce`, `shadow` (count and log, never refuse) or `off`";
const EXEMPT: &str = "`except.ip` exempts addresses from one limit, `access.allow` from all limits";
const DENY: &str = "`access.deny` refuses addresses, paths and identities";
const REFUSAL: &str = "a limit refuses with 429; with `on_limit = \"hold\"` or `\"delay\"` requests wait instead";

/// Keys of a limit in other products, and the option of Weir.
const KEYS: [(&[&str], &str); 11] = [
    (&["nodelay"], "remove it: requests within `burst` pass at once; with `on_limit = \"hold\"` the others wait"),
    (
        &["zone", "limit_req", "limit_req_zone", "shared_dict", "dict"],
        "a limit needs no zone: `max_keys` bounds its keys",
    ),
    (
        &[
            "average",
            "period",
            "window",
            "windows",
            "max_events",
            "events",
            "requests",
            "requests_per_unit",
            "unit",
            "interval",
            "per",
            "limit",
            "second",
            "minute",
            "hour",
            "tokens_per_fill",
            "fill_interval",
            "count_per",
            "requests_per_second",
            "requests_per_minute",
            "rps",
            "rpm",
            "refill_rate",
            "replenish_rate",
        ],
        ONE_RATE,
    ),
    (&["max_tokens", "capacity", "burst_capacity", "bucket_size", "max_burst", "burst_size"], BURST),
    (&["limit_by", "group_by", "by", "source_criterion", "sourceCriterion", "identifier", "descriptors"], KEY),
    (&["max_conns", "max_connections", "limit_conn", "max_concurrent", "max_in_flight", "in_flight"], CONCURRENCY),
    (&["dry_run", "limit_req_dry_run", "log_only", "enabled", "disabled", "shadow_mode", "preview"], MODE),
    (&["whitelist", "allowlist", "exempt", "exclude", "excluded_ips", "excludedIPs"], EXEMPT),
    (&["blacklist", "blocklist", "denylist"], DENY),
    (&["status", "status_code", "rejected_code", "limit_req_status", "error_code"], REFUSAL),
    (&["ttl", "expire", "expiry"], "Weir forgets a key when that changes no decision"),
];

/// Values of options in other products, and those of Weir.
const VALUES: [(&str, &str); 17] = [
    ("gcra", "token_bucket"),
    ("leaky", "leaky_bucket"),
    ("fixed", "fixed_window"),
    ("sliding", "sliding_window"),
    ("sliding_counter", "sliding_window"),
    ("sliding_window_counter", "sliding_window"),
    ("sliding_window_log", "sliding_log"),
    ("max_in_flight", "concurrency"),
    ("semaphore", "concurrency"),
    ("queue", "hold"),
    ("wait", "hold"),
    ("throttle", "delay"),
    ("deny", "reject"),
    ("refuse", "reject"),
    ("block", "reject"),
    ("dry_run", "shadow"),
    ("disabled", "off"),
];

/// A correction of the key `key` of the table at `path`, if another product has this key for a limit.
pub(in crate::config) fn help_for_key(path: &str, key: &str) -> Option<&'static str> {
    if !["limit", ""].contains(&path) {
        return None;
    }
    KEYS.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, help)| *help)
}

/// The one of `known` that has the meaning of `value` in other products.
pub(in crate::config) fn own_value<'k>(value: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = value.to_ascii_lowercase().replace('-', "_");
    let own = |known: &&str| VALUES.iter().any(|(foreign, own)| *foreign == lower && own == known);
    { known }.find(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema::keys_of;

    #[test]
    fn no_option_of_weir_is_foreign() {
        for key in KEYS.iter().flat_map(|(keys, _)| keys.iter()) {
            assert!(!keys_of("limit").contains(key), "{key}");
        }
    }
}
