//! Words of other rate limiters, and the words of Weir for them. Messages about unknown words use them.

use crate::base::fields::decimal;

const ONE_RATE: &str = "write the count and the period as one rate, as in `rate = \"100/min\"`";
const BURST: &str = "`burst` is the number of units that may be spent at once; it is the COUNT of `rate` by default";
const KEY: &str = "`key` says whose budget it is, as in `key = [\"ip\"]`";
const CONCURRENCY: &str = "requests in flight are a limit with `algorithm = \"concurrency\"` and `max`";
const MODE: &str = "`mode` is `enforce`, `shadow` (count and log, never refuse) or `off`";
const EXEMPT: &str = "`except.ip` exempts addresses from one limit, `access.allow` from all limits";
const DENY: &str = "`access.deny` refuses addresses, paths and identities";
const ALLOW: &str = "`access.allow` exempts addresses, paths and identities from all limits";
const URL: &str = "the address of the service is `url` of `[upstream]`, as in `url = \"http://127.0.0.1:9000\"`";
const LIMIT: &str = "each limit is a table `[[limit]]` with `name`, `key` and `rate`";
const DELAY: &str = "`on_limit = \"delay\"` of a limit lets requests wait instead of refusing them";
const CONNECTIONS: &str = "`server.max_connections` bounds connections of clients, and `max_connections` of an upstream those to each endpoint";
const REFUSAL: &str = "`status` of a limit is that of its refusals, and 429 by default";

/// Tables in which somebody may configure a limit.
const LIMITS: &[&str] = &["", "limit"];
/// Tables in which somebody may look for limits, access lists and services.
const ANY: &[&str] = &["", "server", "route", "upstream", "upstreams.NAME", "limit", "access"];

/// Tables, keys in them in other products with a space between, and the option of Weir. The first row that has both counts.
#[rustfmt::skip]
const KEYS: [(&[&str], &str, &str); 23] = [
    (LIMITS, "nodelay", "remove it: requests within `burst` pass at once; with `on_limit = \"hold\"` the others wait"),
    (&["limit"], "zone limit_req limit_req_zone shared_dict dict", "a limit needs no zone: `max_keys` bounds its keys"),
    (LIMITS, "average period window windows max_events events requests requests_per_unit unit interval per second minute \
        hour tokens_per_fill fill_interval count_per requests_per_second requests_per_minute rps rpm refill_rate \
        replenish_rate", ONE_RATE),
    (&["limit"], "limit", ONE_RATE),
    (LIMITS, "max_tokens capacity burst_capacity bucket_size max_burst burst_size", BURST),
    (LIMITS, "limit_by group_by by source_criterion sourceCriterion identifier descriptors", KEY),
    (LIMITS, "max_conns max_connections limit_conn max_concurrent max_in_flight in_flight", CONCURRENCY),
    (LIMITS, "dry_run limit_req_dry_run log_only enabled disabled shadow_mode preview", MODE),
    (LIMITS, "exempt exclude excluded_ips excludedIPs", EXEMPT),
    (&["limit"], "whitelist allowlist", EXEMPT),
    (ANY, "whitelist allowlist", ALLOW),
    (ANY, "blacklist blocklist denylist", DENY),
    (&["route"], "backend proxy_pass", "`upstream` of a route is the name of one of `[upstreams]`"),
    (&["upstreams.NAME"], "backend proxy_pass server servers url", "`endpoints` are the addresses of an upstream"),
    (ANY, "backend backends proxy_pass", URL),
    (ANY, "stick-table stick_table limit_req limit_req_zone zone rate_limit ratelimit", LIMIT),
    (ANY, "tarpit", DELAY),
    (&[""], "tls", "`[server.tls]` is for connections of clients, `[upstream.tls]` for those to the service"),
    (&[""], "ban", "a ban belongs to a limit, as in `ban = { after = \"10/min\", for = \"1h\" }`"),
    (ANY, "health_check healthcheck",
        "`health` of `[upstreams.NAME]` checks endpoints, as in `health = { path = \"/health\" }`"),
    (ANY, "max_conn maxconn max_conns worker_connections", CONNECTIONS),
    (LIMITS, "status_code rejected_code limit_req_status error_code", REFUSAL),
    (LIMITS, "ttl expire expiry", "Weir forgets a key when that changes no decision"),
];

/// Values of options, and those of other products with this meaning.
const VALUES: [(&str, &str); 15] = [
    ("token_bucket", "gcra"),
    ("leaky_bucket", "leaky"),
    ("fixed_window", "fixed"),
    ("sliding_window", "sliding sliding_counter sliding_window_counter"),
    ("sliding_log", "sliding_window_log"),
    ("concurrency", "max_in_flight semaphore"),
    ("hold", "queue wait"),
    ("delay", "throttle tarpit"),
    ("reject", "deny refuse block"),
    ("shadow", "dry_run"),
    ("off", "disabled"),
    ("ip", "$binary_remote_addr $remote_addr remote_addr remote_ip client_ip src"),
    ("host", "$host"),
    ("path", "$uri"),
    ("method", "$request_method"),
];

/// Units of rates, and those of other products.
const RATES: [(&str, &str); 3] =
    [("s", "r/s req/s requests/s rps"), ("min", "r/m req/min requests/min rpm"), ("h", "r/h rph")];

/// Tables of Weir, and how one is written.
const TABLES: [(&str, &str); 8] = [
    ("access.deny", "`deny = { ip = [\"192.0.2.7\"] }`"),
    ("access.allow", "`allow = { ip = [\"192.0.2.7\"] }`"),
    ("limit.ban", "`ban = { after = \"10/min\", for = \"1h\" }`"),
    ("limit.match", "`match = { path = \"/api/{*rest}\" }`"),
    ("limit.except", "`except = { ip = [\"192.0.2.7\"] }`"),
    ("route.match", "`match = { path = \"/api/{*rest}\" }`"),
    ("upstream", "`[upstream] url = \"http://127.0.0.1:9000\"`"),
    ("upstreams.NAME.health", "`health = { path = \"/health\" }`"),
];

/// A correction of the key `key` of the table at `path`, if another product has this key.
pub(in crate::config) fn help_for_key(path: &str, key: &str) -> Option<&'static str> {
    let has = |(tables, keys, _): &&(&[&str], &str, _)| tables.contains(&path) && has_word(keys, key);
    KEYS.iter().find(has).map(|(_, _, help)| *help)
}

fn has_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

/// How the table at `path` is written.
pub(in crate::config) fn example_of_table(path: &str) -> Option<&'static str> {
    TABLES.iter().find(|(table, _)| *table == path).map(|(_, example)| *example)
}

/// A correction of a rate with words of other products, such as `10r/s burst=20 nodelay`.
pub(in crate::config) fn help_for_rate(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let rate = words.next()?;
    let (count, unit) = rate.split_at(rate.find(|c: char| !c.is_ascii_digit())?);
    let own = RATES.iter().find(|(_, foreign)| has_word(foreign, unit)).map(|(own, _)| format!("{count}/{own}"));
    let is_foreign = own.is_some();
    let own = own.unwrap_or_else(|| rate.to_owned());
    let rest = words.map(|word| match word.split_once('=') {
        None if word == "nodelay" => Some(", without `nodelay`: a limit refuses by default".to_owned()),
        Some(("burst", burst)) if decimal(burst.as_bytes()).is_some() => {
            Some(format!(", and `burst = {burst}` as an option of its own"))
        }
        _ => None,
    });
    let rest: Vec<_> = rest.collect::<Option<_>>()?;
    (is_foreign || !rest.is_empty()).then(|| format!("write `rate = \"{own}\"`{}", rest.concat()))
}

/// The one of `known` that has the meaning of `value` in other products.
pub(in crate::config) fn own_value<'k>(value: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = value.to_ascii_lowercase().replace('-', "_");
    let own = |known: &&str| VALUES.iter().any(|(own, foreign)| own == known && has_word(foreign, &lower));
    { known }.find(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema::keys_of;

    #[test]
    fn no_option_of_weir_is_foreign() {
        for (tables, keys, _) in KEYS {
            for (table, key) in tables.iter().flat_map(|table| keys.split(' ').map(move |key| (table, key))) {
                assert!(!keys_of(table).contains(&key), "{table}.{key}");
            }
        }
    }
}
