//! Caddy.

use super::{check, error, import};

pub(super) const EXAMPLE: &str = r#"{
	order rate_limit before basicauth
}
example.com, http://www.example.com:8080 {
	@write {
		method POST PUT
		path /api/*
	}
	encode gzip
	rate_limit {
		zone everybody {
			key static
			events 100
			window 1m
		}
		zone writes {
			match {
				method POST
			}
			key {remote_host}-{http.request.header.X-Key}
			events 5
			window 10s
		}
		jitter 0.2
	}
	handle_path /api/* {
		rate_limit @write {
			zone api {
				key {http.request.remote.host}
				events 10
				window 1h30m
			}
		}
		reverse_proxy 127.0.0.1:9000 127.0.0.1:9001 { # two
			lb_policy least_conn
			health_uri /health
		}
	}
	handle {
		rate_limit {
			zone site {
				key {client_ip}
				events 7
				window 1s
			}
			zone users {
				key {http.auth.user.id}
				events 7
				window 1s
			}
		}
		reverse_proxy localhost:9002
	}
	respond /health "fine \"}" 200
}
"#;

/// Zones of a site, of a path and of the rest.
#[test]
fn zones_have_the_requests_of_their_handlers() {
    check(
        "caddy",
        EXAMPLE,
        r#"listen = ["0.0.0.0:8080"]
        paths = { ignore_case = true }
        [upstreams.line-34]
        endpoints = ["http://127.0.0.1:9000", "http://127.0.0.1:9001"]
        balance = "least_connections"
        [upstreams.line-52]
        endpoints = ["http://localhost:9002"]
        [[route]]
        match = { host = ["example.com", "www.example.com"], path = ["/api/{*rest}"] }
        upstream = "line-34"
        rewrite = { strip = "/api" }
        [[route]]
        match = { host = ["example.com", "www.example.com"] }
        upstream = "line-52"
        [[limit]]
        name = "everybody"
        match = { host = ["example.com", "www.example.com"] }
        key = []
        algorithm = "sliding_log"
        rate = "100/min"
        [[limit]]
        name = "writes"
        match = { host = ["example.com", "www.example.com"], method = ["POST"] }
        key = ["ip", "header:x-key"]
        algorithm = "sliding_log"
        rate = "5/10s"
        [[limit]]
        name = "api"
        match = { host = ["example.com", "www.example.com"], path = ["/api/{*rest}"], method = ["POST", "PUT"] }
        key = ["ip"]
        algorithm = "sliding_log"
        rate = "10/90min"
        [[limit]]
        name = "site"
        match = { host = ["example.com", "www.example.com"] }
        except = { path = ["/api/{*rest}"] }
        key = ["ip"]
        algorithm = "sliding_log"
        rate = "7/s""#,
        "1 LeftOut set the options of `[server]` by hand
        4 LeftOut set `server.listen` and `server.tls` by hand, with certificates
        10 Differs Caddy charges earlier zones also if a later one refuses; Weir charges all or none
        24 LeftOut set `jitter` of the limits by hand
        36 LeftOut set the options of the upstream by hand
        46 LeftOut Weir has no part of a key for a placeholder of `key`
        54 LeftOut Weir serves nothing itself",
    );
}

#[test]
fn a_site_needs_no_braces() {
    check(
        "caddy",
        "localhost:8080\n\n# all\nrate_limit {\n zone one {\n  key {host}\n  events 3\n  window 1d\n }\n \
         zone two {\n  key {path}\n  events x\n  window 1s\n }\n}\nreverse_proxy `https://app` \\\n https://b:1\n",
        r#"[upstreams.line-16]
        endpoints = ["https://app:443", "https://b:1"]
        [[route]]
        match = { host = ["localhost"] }
        upstream = "line-16"
        [[limit]]
        name = "one"
        match = { host = ["localhost"] }
        key = ["host"]
        algorithm = "sliding_log"
        rate = "3/24h""#,
        "1 LeftOut set `server.listen` and `server.tls` by hand, with certificates
        10 LeftOut it needs a number of `events`, and a `window`",
    );
}

/// Lines of one kind in a matcher are alternatives; different headers are all required.
#[test]
fn conditions_of_one_kind_are_alternatives() {
    let site = |lines: &str| format!("http://a.test:8080 {{\n @m {{\n{lines}\n }}\n reverse_proxy @m b:1\n}}\n");
    for (lines, wanted) in [
        (
            "path /a\npath /b/*\nmethod GET\nmethod PUT\nheader X-A 1\nheader X-B 2",
            ", path = [\"/a\", \"/b/{*rest}\"], method = [\"GET\", \"PUT\"], header = { \"x-a\" = \"1\", \"x-b\" = \"2\" } }\n",
        ),
        ("path /a\npath /*", " }\n"),
    ] {
        let config = import("caddy", &site(lines)).config;
        assert!(config.contains(&format!("match = {{ host = [\"a.test\"]{wanted}")), "{config}");
    }
    let imported = import("caddy", &site("header X-A 1\nheader X-A 2"));
    let left_out = imported.findings.iter().map(|finding| (finding.line, &*finding.why)).collect::<Vec<_>>();
    assert!(left_out.contains(&(6, "Weir cannot match two conditions of one kind")), "{left_out:?}");
}

/// Another module has a directive of this name, with its key and its rate as arguments.
#[test]
fn limits_of_another_module_are_reported() {
    let zone = "{\n zone z {\n key static\n events 5\n window 1m\n }\n }";
    let limit = "[[limit]]\nname = \"z\"\nkey = []\nalgorithm = \"sliding_log\"\nrate = \"5/min\"";
    let none = "[[limit]]\nname = \"none\"\nmode = \"off\"\nkey = []\nrate = \"1/s\"";
    let of_path = "match = { path = [\"/a\"] }\nkey";
    let said = "2 LeftOut Weir has limits for zones of `mholt/caddy-ratelimit` only";
    for (directive, limits, said) in [
        ("{remote.ip} 2r/m".to_owned(), none.to_owned(), said),
        ("/a {remote.ip} 2r/m".to_owned(), none.to_owned(), said),
        (String::new(), none.to_owned(), said),
        ("@m".to_owned(), none.to_owned(), said),
        (format!("{{remote.ip}} 2r/m {zone}"), limit.to_owned(), said),
        (format!("* {zone}"), limit.to_owned(), ""),
        (format!("/a {zone}"), limit.replace("key", of_path), ""),
    ] {
        let text = format!("http://:80 {{\n rate_limit {directive}\n @m method GET\n reverse_proxy b:1\n}}\n");
        let paths = if limits.contains("path =") { "paths = { ignore_case = true }\n" } else { "" };
        let tables = format!("listen = [\"0.0.0.0:80\"]\n{paths}[upstream]\nurl = \"http://b:1\"\n{limits}");
        check("caddy", &text, &tables, said);
    }
}

#[test]
fn refusals_are_reported() {
    for (directive, why) in [
        ("respond @x 403", "set `[access]` by hand: Weir refuses nothing for it"),
        ("respond /x no 503", "set `[access]` by hand: Weir refuses nothing for it"),
        ("abort @x", "set `[access]` by hand: Weir refuses nothing for it"),
        ("error @x no", "set `[access]` by hand: Weir refuses nothing for it"),
        ("respond /x 200", "Weir serves nothing itself"),
    ] {
        let text = format!("http://:80 {{\n@x path /x\n{directive}\nreverse_proxy b:1\n}}\n");
        let findings = import("caddy", &text).findings;
        let said: Vec<_> = findings.iter().map(|finding| (finding.line, &*finding.why)).collect();
        assert_eq!(said, [(3, why)], "{directive}");
    }
}

#[test]
fn what_is_no_caddyfile() {
    for (text, wanted) in [
        ("a {\n", "original:2: a block has no end"),
        ("a {\n}\n}\n", "original:3: `}` without `{`"),
        ("a \"b\n", "original:1: a text in quotes has no end"),
        ("a <<END\nb\n", "original:1: a heredoc has no end"),
        (&"a {\n".repeat(40), "original:33: blocks are too deep"),
    ] {
        assert_eq!(error("caddy", text), wanted, "{text}");
    }
}
