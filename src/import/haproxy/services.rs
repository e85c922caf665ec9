//! Backends, servers and listeners of `HAProxy`.

use super::lines::{ConfigLine, Section};
use crate::import::draft::{Draft, quoted};
use crate::import::services::Service;

/// Reads a line of a backend; `false` if it is no such line.
pub(super) fn read(line: &ConfigLine, service: &mut Service, draft: &mut Draft) -> bool {
    match line.word(0) {
        "server" => server(line, service, draft),
        "balance" => {
            service.balance = balance(line.words.get(1..).unwrap_or_default());
            service.places.push(line.place);
            if service.balance.is_empty() && line.word(1) != "roundrobin" {
                draft.left_out(line.place, "Weir has no such `balance`");
            }
        }
        _ => return false,
    }
    true
}

fn server(line: &ConfigLine, service: &mut Service, draft: &mut Draft) {
    let has = |option: &str| line.words.iter().any(|word| word == option);
    if has("ssl") || has("backup") {
        return draft.left_out(line.place, "set an endpoint with `https` or a second service by hand");
    }
    if has("disabled") {
        return;
    }
    if let Some(options) = line.words.get(3..).filter(|options| !options.is_empty()) {
        let options = options.join(" ");
        draft.differs(line.place, format!("`{options}`: set `health` and other options of the upstream by hand"));
    }
    let address = line.word(2);
    let socket = address.strip_prefix("unix@").or(Some(address).filter(|address| address.starts_with('/')));
    service.endpoints.push(socket.map_or_else(|| format!("http://{address}"), |path| format!("unix:{path}")));
    service.places.push(line.place);
}

fn balance(words: &[String]) -> Vec<(&'static str, String)> {
    let method = words.first().map_or("", String::as_str);
    let argument = method.split_once('(').map(|(_, argument)| argument.trim_end_matches(')'));
    let argument = argument.or(words.get(1).map(String::as_str)).unwrap_or_default();
    let hash_by = match method.split('(').next().unwrap_or_default() {
        "leastconn" => return vec![("balance", quoted("least_connections"))],
        "random" => return vec![("balance", quoted("p2c"))],
        "source" => "ip".to_owned(),
        "uri" => "path".to_owned(),
        "hdr" => format!("header:{argument}"),
        "url_param" => format!("query:{argument}"),
        _ => return Vec::new(),
    };
    vec![("balance", quoted("hash")), ("hash_by", quoted(&hash_by))]
}

/// The reason why Weir does not listen on the addresses of a `bind`, if there is one.
pub(super) fn by_hand(line: &ConfigLine) -> Option<&'static str> {
    line.words.iter().find_map(|word| match word.as_str() {
        "ssl" => Some("set `server.tls` and `server.listen` by hand"),
        "accept-proxy" => Some("set `server.proxy_protocol` by hand"),
        _ => None,
    })
}

/// The addresses of a `bind`.
pub(super) fn addresses(line: &ConfigLine) -> Vec<String> {
    let address = |text: &str| {
        if text.starts_with('/') || text.starts_with("unix@") {
            return format!("unix:{}", text.trim_start_matches("unix@"));
        }
        let text = text.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
        let (host, port) = text.rsplit_once(':').unwrap_or((text, "80"));
        match host {
            "" | "*" => format!("0.0.0.0:{port}"),
            host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
            host => format!("{host}:{port}"),
        }
    };
    line.word(1).split(',').map(address).collect()
}

/// The reason why a line of a section is not translated, and whether it changes decisions about requests.
pub(super) fn reason(section: &Section, line: &ConfigLine) -> (bool, &'static str) {
    match line.word(0) {
        _ if section.kind == "global" || section.kind == "peers" || section.kind == "resolvers" => {
            (false, "it changes no decision about requests of this process")
        }
        "log" | "log-format" | "description" | "id" => (false, "Weir has its own log"),
        "mode" if line.word(1) == "http" => (false, "Weir forwards HTTP"),
        "option" if ["forwardfor", "httplog", "dontlognull", "http-server-close"].contains(&line.word(1)) => {
            (false, "it changes no decision about requests")
        }
        "stick-table" => (false, "the size and the expiry of the table: `max_keys` bounds the keys"),
        "timeout" => (true, "set `[timeouts]` by hand"),
        "maxconn" | "fullconn" => (true, "set `server.max_connections` by hand"),
        "stick" => (true, "set `balance` to `hash` by hand"),
        "http-request" | "http-response" | "tcp-request" | "tcp-response" => (true, "Weir has no such action"),
        _ => (true, "Weir has no option for it"),
    }
}
