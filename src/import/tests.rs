//! Originals with their translation and their report, and garbage.

mod addresses;
mod caddy;
mod envoy;
mod haproxy;
mod ingress;
mod kong;
mod nginx;
mod ratelimit;
mod traefik;

use std::path::Path;

use proptest::prelude::*;

use super::draft::Draft;
use super::{FORMATS, ImportError, Imported, Kind, rates, translate};

/// Imports `text` of a file `original`.
fn import(format: &str, text: &str) -> Imported {
    result(format, text).unwrap()
}

/// The error of `text`.
fn error(format: &str, text: &str) -> String {
    result(format, text).unwrap_err().to_string()
}

fn result(format: &str, text: &str) -> Result<Imported, ImportError> {
    let mut draft = Draft::default();
    draft.add_file(Path::new("original"), text.to_owned());
    let format = FORMATS.into_iter().find(|known| known.name == format).unwrap();
    translate(format, Path::new("original"), draft)
}

/// Checks the tables of the translation without comments and usual options, and the report without lines that are not
/// needed.
fn check(format: &str, text: &str, tables: &str, report: &str) {
    let imported = import(format, text);
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let usual = ["[server]", "ipv6_prefix = 128", "max_body_bytes = \"1MiB\"", "[headers]", "free_preflights = false"];
    let is_usual = |line: &String| line.starts_with('#') || usual.contains(&line.as_str());
    let written: Vec<_> = lines(&imported.config).into_iter().filter(|line| !is_usual(line)).collect();
    assert_eq!(written, lines(tables), "{}", imported.config);
    let findings = imported.findings.iter().filter(|finding| finding.kind != Kind::NotNeeded);
    let said: Vec<_> = findings.map(|finding| format!("{} {:?} {}", finding.line, finding.kind, finding.why)).collect();
    assert_eq!(said, lines(report));
}

#[test]
fn yaml_has_bounds() {
    let table = |deep: usize| format!("a: {}{}", "[".repeat(deep), "]".repeat(deep));
    let names: Vec<char> = ('a'..='h').collect();
    let laughs =
        names.windows(2).map(|pair| format!("{}: &{} [{}]\n", pair[1], pair[1], format!("*{},", pair[0]).repeat(10)));
    let laughs = format!("a: &a [{}]\n{}", "x,".repeat(10), laughs.collect::<String>());
    for (text, wanted) in [
        ("a: b\n- c", "original:2: "),
        ("a:\n  b: *c", "original:2: "),
        ("a: &a\n- *a", "original:2: an alias of a value that has not ended"),
        (&table(200), "original:1: there are too many values"),
        (&table(5000), "original:1: "),
        (&laughs, "original:6: there are too many values"),
    ] {
        let error = error("kong", text);
        assert!(error.starts_with(wanted), "{error}: {wanted}");
    }
}

/// Originals whose limits clients could evade, or that hit other requests, without a line of the report or an option.
#[test]
fn what_a_client_could_evade_is_said() {
    let traefik = |period: &str| {
        traefik::EXAMPLE.replace("period: 1m", &format!("period: {period}")).replace("unused: { compress: {} }", "")
    };
    let caddy = |key: &str, method: &str| {
        let zone = format!(
            "rate_limit {{\n zone z {{\n match {{\n {method}\n path /a\n }}\n key {key}\n events 5\n window 1m\n }}\n }}"
        );
        format!(":8080 {{\n{zone}\n reverse_proxy b:1\n}}\n")
    };
    let nginx = |rest: &str| {
        let server =
            |lines: &str| format!("server {{ listen 80; {lines} location / {{ proxy_pass http://127.0.0.1:9; }} }}\n");
        let [wild, longer] =
            ["*.a.test", "*.b.a.test"].map(|host| server(&format!("server_name {host}; limit_req zone=z;")));
        let zone = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;\n";
        format!("{zone}{wild}{longer}{}", server(rest))
    };
    let proxies = "set_real_ip_from 192.0.2.9; location / { proxy_pass http://127.0.0.1:9; } }\n\
                   set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;";
    let kong = "services:\n- name: a\n  url: http://127.0.0.1:9\n  routes: [{ name: r, paths: [/], strip_path: false }]\n\
                plugins:\n- name: rate-limiting\n  config: { minute: 9, limit_by: service }\n\
                keyauth_credentials:\n- key: a-secret-of-nobody\n  consumer: nobody\n";
    let other = "- entries: [{ key: api_key }]\n                token_bucket: { max_tokens: 5, tokens_per_fill: 5, fill_interval: 60s }\n              ";
    let envoy = envoy::EXAMPLE.replace(
        "- entries: [{ key: api_key, value: gold }]",
        &format!("{other}- entries: [{{ key: api_key, value: gold }}]"),
    );
    let by_path = envoy.replace("header_name: x-api-key", "header_name: \":path\"");
    let of_path = |path: &str| by_path.replace(other, "").replace("value: gold", &format!("value: {path}"));
    let by_two_paths = envoy.replace("\":method\", exact_match: POST", "\":path\", exact_match: /login");
    for (format, text, written, said) in [
        ("traefik", traefik("'1000000000ns'"), "", "Weir has no such period"),
        ("traefik", traefik("'{{ env \"PERIOD\" }}'"), "", "Weir has no such period"),
        ("caddy", caddy("{query.userId}", "method PUT"), "paths = { ignore_case = true }", ""),
        ("caddy", caddy("{query.userId}", "method PUT"), "key = [\"query:userId\"]", ""),
        ("caddy", caddy("{header.X-Key}", "method PUT"), "key = [\"header:x-key\"]", ""),
        ("caddy", caddy("{path}", "method PUT"), "", "paths that differ in case share one budget in Weir"),
        ("caddy", caddy("{host}", "method GET"), "", "Weir limits HEAD as GET"),
        ("nginx", nginx("server_name b.a.test;"), "", "limits of servers with wildcards"),
        ("nginx", nginx("server_name c.test;"), "host = [\"*.b.a.test\"] }\nupstream", ""),
        ("nginx", format!("server {{ listen 80; {proxies}"), "trusted_proxies = [\"192.0.2.9\"]", ""),
        ("kong", kong.to_owned(), "", "all services share one budget"),
        ("kong", kong::EXAMPLE.replace("503", "302"), "api-rate-limiting", "Weir answers 429 in place of this status"),
        ("envoy", envoy.clone(), "", "for values that another descriptor names"),
        ("envoy", of_path("/a"), "match = { path = [\"/a\"] }", "Weir takes this path with any query"),
        ("envoy", of_path("/a?b=c"), "", "Weir has no such pattern of paths"),
        ("envoy", by_two_paths, "", "Weir has no such condition of a route"),
        ("envoy", by_path, "key = [\"uri\"]", ""),
    ] {
        let imported = import(format, &text);
        let is_said = said.is_empty() || imported.findings.iter().any(|one| one.why.contains(said));
        assert!(
            imported.config.contains(written) && is_said,
            "{format} {written} {said}: {}{:#?}",
            imported.config,
            imported.findings
        );
        let shown = format!("{}{:?}", imported.config, imported.findings);
        assert!(!shown.contains("it limits nothing") && !shown.contains("a-secret"), "{shown}");
    }
    let config = import("nginx", &nginx("server_name c.test;")).config;
    assert!(config.find("*.b.a.test") < config.find("\"*.a.test"), "the longest wildcard goes first: {config}");
}

#[test]
fn durations_are_those_of_go_and_protobuf() {
    for (text, rate) in [
        ("1s", "5/s"),
        ("0.5s", "5/500ms"),
        ("1h30m", "5/90min"),
        ("100ms", "5/100ms"),
        ("60s", "5/min"),
        ("0.0005s", "5000/500ms"),
        ("24h", "5/24h"),
    ] {
        assert_eq!(rates::rate(5, rates::duration_us(text).unwrap()), rate, "{text}");
    }
    for text in ["", "0s", "s", "1", "-1s", "1x", "1.2.3s", "9999999999999h", "1.5"] {
        assert_eq!(rates::duration_us(text), None, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_breaks_an_import(text in ".{0,200}") {
        imports(&text)?;
    }

    #[test]
    fn configurations_of_nginx_make_valid_ones(directives in proptest::collection::vec(directive(), 0..12)) {
        imports(&format!("http {{ {} }}", directives.concat()))?;
    }

    #[test]
    fn configurations_of_haproxy_make_valid_ones(lines in proptest::collection::vec(line(haproxy::LINES), 0..40)) {
        imports(&lines.join("\n"))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn changed_examples_make_valid_configurations(changes in proptest::collection::vec(change(), 1..12)) {
        let yaml = [envoy::EXAMPLE, ingress::EXAMPLE, kong::EXAMPLE, ratelimit::EXAMPLE, traefik::EXAMPLE];
        for example in [caddy::EXAMPLE].into_iter().chain(yaml) {
            let mut lines: Vec<_> = example.lines().map(str::to_owned).collect();
            for (at, pick, text) in &changes {
                let at = at.index(lines.len());
                let mut words: Vec<_> = lines[at].split(' ').map(str::to_owned).collect();
                let word = pick.index(words.len());
                if text.is_empty() { words.remove(word); } else { words[word].clone_from(text); }
                lines[at] = words.join(" ");
            }
            imports(&lines.join("\n"))?;
        }
    }
}

/// A line, a word of it, and the text in its place.
fn change() -> impl Strategy<Value = (proptest::sample::Index, proptest::sample::Index, String)> {
    let texts = [
        "",
        "",
        "x",
        "0",
        "-1",
        "99999999999999999999",
        "{}",
        "[]",
        "~",
        "*a",
        "&a",
        "null",
        "1.5s",
        "/a/",
        "\"\"",
        "ä:",
    ];
    let index = any::<proptest::sample::Index>;
    (index(), index(), proptest::sample::select(texts.map(str::to_owned).to_vec()))
}

/// Checks that each format either refuses `text`, or makes a valid configuration of it.
fn imports(text: &str) -> Result<(), TestCaseError> {
    for format in FORMATS {
        if let Err(error) = result(format.name, text) {
            prop_assert!(!error.to_string().contains("is not valid"), "{}", error);
        }
    }
    Ok(())
}

fn line(lines: &'static str) -> impl Strategy<Value = String> {
    let lines: Vec<_> = lines.lines().map(|line| line.trim().to_owned()).collect();
    prop_oneof![20 => proptest::sample::select(lines), 1 => "[a-z0-9/\\-=$(){}]{1,9}( [ -~&&[^;\"'\\\\#{}]]{1,9}){0,2}"]
}

fn directive() -> impl Strategy<Value = String> {
    let leaf = line(nginx::DIRECTIVES).prop_map(|line| format!("{};\n", line.replace(['{', '}'], "")));
    leaf.prop_recursive(4, 40, 8, |inner| {
        let block = (line(nginx::BLOCKS), proptest::collection::vec(inner.clone(), 0..8));
        let block =
            block.prop_map(|(name, inner)| format!("{} {{\n{}}}\n", name.replace(['{', '}'], ""), inner.concat()));
        prop_oneof![1 => inner, 3 => block]
    })
}
