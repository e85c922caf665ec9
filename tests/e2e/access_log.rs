//! The access log: its fields, formats, file and samples.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::body_units::models;
use crate::routes;
use crate::support::{Client, Upstream, Weir, over_h2};

/// A configuration whose access log is `access.log` beside it.
fn in_file(log: &str, rest: &str) -> String {
    let log = format!("[log]\nformat = \"json\"\nlevel = \"trace\"\naccess_file = \"access.log\"\n{log}\n");
    format!("{log}{rest}")
}

fn file(weir: &Weir) -> PathBuf {
    weir.folder().join("access.log")
}

/// Waits for so many lines in the file.
fn lines(weir: &Weir, count: usize) -> Vec<String> {
    weir.wait_for(&format!("{count} access lines"), || {
        let text = fs::read_to_string(file(weir)).unwrap_or_default();
        let lines: Vec<_> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

const SELLERS: &str = r#"
[identity.seller]
header = "x-seller"

[plans]
from = "header:x-plan"

[access]
deny = { identity = { seller = ["outcast-seller"] } }

[[limit]]
name = "per-ip"
stage = "arrival"
key = ["ip"]
rate = "1000/h"

[[limit]]
name = "per-seller"
key = ["seller"]
rate = "1/h"
plans = { premium = "2/h" }
"#;

#[test]
fn a_line_has_all_fields() {
    let upstream = Upstream::saying("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let weir = Weir::start(&upstream, &in_file("access = \"all\"", SELLERS));
    let ask = |path: &str, seller: &str, more: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: Shop.test:80\r\nX-Seller: {seller}\r\nUser-Agent: a\"b\r\n{more}\
             Referer: https://me:secret@ref.test/x?token=secret\r\nContent-Length: 3\r\n\r\nabc"
        );
        Client::connect(weir.address()).send(head).answer().status
    };
    let asked = [
        ask("/a?token=secret", "seller-one", "X-Plan: premium\r\n"),
        ask("/a", "seller-two", ""),
        ask("/a", "seller-two", ""),
        ask("/a", "outcast-seller", ""),
    ];
    assert_eq!(asked, [200, 200, 429, 403]);
    let lines: Vec<Value> = lines(&weir, 4).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The connections have workers of their own, so that the lines have no order.
    let line =
        |status: u16, plan: Value| lines.iter().find(|line| line["status"] == status && line["plan"] == plan).unwrap();
    let forwarded = line(200, json!("premium"));
    let names: Vec<_> = forwarded.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = "bytes_in bytes_out client duration_us endpoint held_us host identities keys level message method path \
                    plan protocol referer status timestamp upstream upstream_us user_agent verdict";
    assert_eq!(names.join(" "), expected);
    for (name, value) in [
        ("client", json!("127.0.0.1")),
        ("host", json!("shop.test")),
        ("path", json!("/a")),
        ("protocol", json!("HTTP/1.1")),
        ("status", json!(200)),
        ("verdict", json!("forwarded")),
        ("plan", json!("premium")),
        ("upstream", json!("upstream")),
        ("endpoint", json!(format!("http://{}", upstream.address()))),
        ("bytes_in", json!(3)),
        ("bytes_out", json!(5)),
        ("user_agent", json!("a\"b")),
        ("referer", json!("https://ref.test/x")),
    ] {
        assert_eq!(forwarded[name], value, "{name}");
    }
    assert!(forwarded["identities"]["seller"].as_str().unwrap().starts_with("sell..#"), "{forwarded}");
    let limits: Vec<_> = forwarded["keys"].as_array().unwrap().iter().map(|key| key["limit"].clone()).collect();
    assert_eq!(limits, ["per-ip", "per-seller"]);
    assert!(forwarded["upstream_us"].as_u64() <= forwarded["duration_us"].as_u64(), "{forwarded}");

    // No service got the others. A refused client is known, also one that a list denies.
    let [refused, denied] = [line(429, json!(null)), line(403, json!(null))];
    assert_eq!((&refused["limit"], &refused["endpoint"]), (&json!("per-seller"), &json!(null)));
    assert!(refused["bytes_out"].as_u64() > Some(0), "{refused}");
    assert_eq!(refused["identities"], line(200, json!(null))["identities"]);
    assert!(denied["identities"]["seller"].as_str().unwrap().starts_with("outc..#"), "{denied}");
    assert!(!fs::read_to_string(file(&weir)).unwrap().contains("secret"));
    // Standard error has no access lines then.
    assert!(weir.lines().iter().all(|line| !line.contains("\"message\":\"request\"")));
}

/// Also if no answer of the service follows.
#[test]
fn a_line_has_the_bytes_of_an_upload() {
    let upstream = Upstream::serving(|mut peer| {
        if peer.head().is_some_and(|asked| asked.target() == "/breaks") {
            peer.read_some();
        } else {
            peer.rest();
        }
    });
    let start = |timeouts| {
        let config = in_file("access = \"all\"", timeouts);
        Weir::start_with(&upstream, "max_body_bytes = \"4B\"", &config)
    };
    let (patient, hasty) = (start(""), start("[timeouts]\nbody_idle = \"100ms\"\nresponse_head = \"100ms\"\n"));
    for (weir, path, rest, status) in [
        (&patient, "/breaks", "0\r\n\r\n", 502),
        (&patient, "/malformed", "x", 400),
        (&patient, "/long", "3\r\ndef\r\n", 413),
        (&hasty, "/late", "0\r\n\r\n", 504),
        (&hasty, "/stalls", "", 408),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n{rest}");
        assert_eq!(Client::connect(weir.address()).send(head).answer().status, status, "{path}");
    }
    let over_http2 = over_h2(patient.address(), async |mut client, _| client.post("/breaks", "abc").await.unwrap());
    assert_eq!(over_http2.status, 502);
    for line in [lines(&patient, 4), lines(&hasty, 2)].concat() {
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["bytes_in"], &line["upstream_us"]), (&json!(3), &json!(null)), "{line}");
    }
}

/// Also if a stop of Weir cuts the answer.
#[test]
fn a_line_of_a_cut_answer_has_its_bytes() {
    let upstream = Upstream::answering(|_, stream| {
        let has_begun =
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").is_ok();
        has_begun && stream.read(&mut [0]).is_err()
    });
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"100ms\"", &in_file("access = \"all\"", ""));
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.head().unwrap().status, 200);
    over_h2(weir.address(), async |mut over_h2, _| {
        let answer = over_h2.send(Request::post("http://a/"), Full::<Bytes>::from("abc")).await.unwrap();
        let mut body = answer.into_body();
        body.frame().await.unwrap().unwrap();
        weir.signal("TERM");
        tokio::task::block_in_place(|| drop(lines(&weir, 2)));
    });
    for line in lines(&weir, 2) {
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!([&line["bytes_in"], &line["bytes_out"]], [3, 5], "{line}");
    }
}

/// A line has the costs as the answer settles them, also those that a status gives back, and of a refused request those
/// that it would have.
#[test]
fn a_line_has_the_costs_of_the_answer() {
    let limits = r#"
[[limit]]
name = "money"
key = []
rate = "2600/day"
cost = 7
max_debt = 0
settle = { by = "openai-chat", price."model-1*" = { input = 2.5, cache_read = 0.25, output = 10 } }

[[limit]]
name = "bytes"
key = []
rate = "1000000000/day"
settle = { by = "response_bytes" }

[[limit]]
name = "in-flight"
key = []
algorithm = "concurrency"
max = 5
cost = 2

[[limit]]
name = "failures"
key = []
rate = "1000/day"
unit_name = "failures"
count = { status = ["5xx"] }
"#;
    let weir = Weir::start(&models(), &in_file("access = \"all\"", limits));
    assert_eq!(Client::connect(weir.address()).get("/chat?chunk=7").status, 200);
    lines(&weir, 1);
    over_h2(weir.address(), async |mut client, _| {
        assert_eq!(client.get("/chat").await.unwrap().status, 200);
        assert_eq!(client.get("/none").await.unwrap().status, 204);
    });
    assert_eq!(Client::connect(weir.address()).get("/none").status, 204);
    lines(&weir, 4);
    assert_eq!(Client::connect(weir.address()).get("/chat").status, 429);
    let lines: Vec<Value> = lines(&weir, 5).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bytes = |line: &Value| line["bytes_out"].as_u64().unwrap();
    let chat = |line: &Value| [1293, bytes(line), 2, 0];
    let empty = [7, 0, 2, 0];
    for (line, [money, bytes, in_flight, failures]) in
        lines.iter().zip([chat(&lines[0]), chat(&lines[1]), empty, empty, [7, 1, 2, 1]])
    {
        let key = |limit: &str, cost: u64, unit: Value| json!({"limit": limit, "cost": cost, "unit": unit});
        let expected = [
            key("money", money, json!("micro-usd")),
            key("bytes", bytes, json!("content-bytes")),
            key("in-flight", in_flight, json!(null)),
            key("failures", failures, json!("failures")),
        ];
        let keys = line["keys"].as_array().unwrap().iter();
        let shown: Vec<_> =
            keys.map(|key| json!({"limit": key["limit"], "cost": key["cost"], "unit": key["unit"]})).collect();
        assert_eq!(shown, expected, "{line}");
    }
}

/// What the service did not answer has costs, too: the time that it took, and nothing if it is given back.
#[test]
fn a_line_has_the_costs_of_a_request_without_an_answer() {
    const DAY_MS: u64 = 86_400_000;
    let limits = format!(
        "[[limit]]\nname = \"time\"\nkey = []\nrate = \"1000000000/day\"\ncost = {DAY_MS}\nsettle = {{ by = \"elapsed_ms\" }}\n\
         [[limit]]\nname = \"plain\"\nkey = []\nrate = \"1000/day\"\ncost = 3\n"
    );
    let silent = Upstream::serving(|mut peer| while peer.head().is_some() {});
    let start = |upstream: &Upstream, more: &str| {
        Weir::start(upstream, &in_file("access = \"all\"", &format!("{limits}{more}")))
    };
    let costs = |weir: &Weir, count: usize| {
        let line: Value = serde_json::from_str(&lines(weir, count)[count - 1]).unwrap();
        let keys = line["keys"].as_array().unwrap().iter().map(|key| key["cost"].as_u64().unwrap());
        (line["status"].clone(), keys.collect::<Vec<_>>())
    };
    let get = |weir: &Weir| Client::connect(weir.address()).get("/").status;
    let get_h2 = |weir: &Weir| over_h2(weir.address(), async |mut client, _| client.get("/").await.unwrap().status);

    let hasty = start(&silent, "[timeouts]\nresponse_head = \"100ms\"\n");
    for (count, ask) in [(1, &get as &dyn Fn(&Weir) -> u16), (2, &get_h2)] {
        assert_eq!(ask(&hasty), 504);
        let (_, costs) = costs(&hasty, count);
        assert!((100..DAY_MS).contains(&costs[0]) && costs[1] == 3, "{costs:?}");
    }

    let gone = Upstream::start();
    let unserved = start(&gone, "");
    gone.stop();
    for (count, ask) in [(1, &get as &dyn Fn(&Weir) -> u16), (2, &get_h2)] {
        assert_eq!((ask(&unserved), costs(&unserved, count)), (502, (json!(502), vec![0, 0])));
    }

    let patient = start(&silent, "");
    let mut client = Client::connect(patient.address());
    client.send("GET /leaves HTTP/1.1\r\nHost: a\r\n\r\n");
    silent.wait_until(|silent| silent.count("/leaves") == 1);
    drop(client);
    lines(&patient, 1);
    over_h2(patient.address(), async |mut client, _| {
        let leaving = tokio::spawn(async move { client.get("/leaves").await.map(drop) });
        silent.wait_until(|silent| silent.count("/leaves") == 2);
        leaving.abort();
        lines(&patient, 2);
    });
    for count in [1, 2] {
        let (status, costs) = costs(&patient, count);
        assert!(status == 499 && costs[0] < DAY_MS && costs[1] == 3, "{status} {costs:?}");
    }
}

/// A client that leaves while it waits for a limit has its units back, but those of the arrival stage.
#[test]
fn a_line_of_a_client_that_leaves_a_wait_has_no_costs() {
    for wait in [
        "on_limit = \"hold\"\nhold = { max_wait = \"forever\" }",
        "on_limit = \"delay\"\ndelay = { step = \"1h\", max = \"1h\" }",
    ] {
        let limits = format!(
            "[[limit]]\nname = \"early\"\nstage = \"arrival\"\nkey = []\nrate = \"1000/day\"\n\
             [[limit]]\nname = \"all\"\nkey = []\nrate = \"1000/day\"\n[[limit]]\nname = \"slow\"\nkey = []\nrate = \"1/h\"\n{wait}\n"
        );
        let upstream = Upstream::start();
        let weir = Weir::start(&upstream, &in_file("access = \"all\"", &limits));
        assert_eq!(Client::connect(weir.address()).get("/").status, 200);
        lines(&weir, 1); // the line follows the answer
        let waits = || weir.wait_for_metric("weir_held_requests{limit=\"slow\"}", |held| held == 1.0);
        let costs = |count: usize| {
            let line: Value = serde_json::from_str(&lines(&weir, count)[count - 1]).unwrap();
            let keys = line["keys"].as_array().unwrap().iter().map(|key| key["cost"].as_u64().unwrap());
            (line["status"].clone(), keys.collect::<Vec<_>>())
        };
        let mut client = Client::connect(weir.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        waits();
        drop(client);
        assert_eq!(costs(2), (json!(499), vec![1, 0, 0]), "{wait}");
        over_h2(weir.address(), async |mut client, _| {
            let leaving = tokio::spawn(async move { client.get("/").await.map(drop) });
            waits();
            leaving.abort();
            assert_eq!(costs(3), (json!(499), vec![1, 0, 0]), "{wait}");
        });
    }
}

/// A line names the endpoint that answered, or failed last.
#[test]
fn a_line_names_the_endpoint_of_the_last_try() {
    let (stored, busy) =
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    // What each try gets; none for the end of its connection.
    let script = [Some(stored), None, Some(busy), None, Some(""), None, Some(busy), None, Some("")];
    let tries = Arc::new(Mutex::new((script.into_iter(), None)));
    let endpoint = || {
        let tries = Arc::clone(&tries);
        Upstream::serving(move |mut peer| {
            while peer.head().is_some() {
                let answer = {
                    let (script, last) = &mut *tries.lock().unwrap();
                    *last = Some(peer.address());
                    script.next().unwrap()
                };
                if !answer.is_some_and(|answer| peer.send(answer)) {
                    return;
                }
            }
        })
    };
    let (one, two) = (endpoint(), endpoint());
    let more = "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1000/h\"\nstale = {}\nstale_on = [\"upstream_error\"]\n\
                [timeouts]\nresponse_head = \"100ms\"\n";
    let text = Weir::text(&format!("{}{more}", routes::upstream("a", &[&one, &two], "")));
    let log = "[log]\naccess = \"all\"\naccess_file = \"access.log\"\n";
    let weir = Weir::start_as(&text.replacen("[log]\n", log, 1));
    let get = |path: &str| Client::connect(weir.address()).get(path).status;
    let get_h2 = |path: &str| over_h2(weir.address(), async |mut client, _| client.get(path).await.unwrap().status);
    let asked = [(false, "/", 200), (false, "/", 200), (false, "/late", 504), (true, "/", 200), (true, "/late", 504)];
    for (count, (is_h2, path, status)) in asked.into_iter().enumerate() {
        assert_eq!(if is_h2 { get_h2(path) } else { get(path) }, status, "{count}");
        let line: Value = serde_json::from_str(&lines(&weir, count + 1)[count]).unwrap();
        let last = tries.lock().unwrap().1.unwrap();
        assert_eq!(line["endpoint"], format!("http://{last}"), "{count}: {line}");
    }
}

#[test]
fn lines_have_routes_and_come_at_the_end_of_the_answer() {
    let upstream = Upstream::start();
    let routes = format!(
        "[upstreams.api]\nendpoints = [\"http://{}\"]\n[[route]]\nmatch = {{ path = [\"/api/{{*rest}}\"] }}\nupstream = \"api\"\n",
        upstream.address()
    );
    let config = Weir::config(&upstream, "", &in_file("access = \"all\"", &routes));
    let config = config.replacen(&format!("[upstream]\nurl = \"http://{}\"\n", upstream.address()), "", 1);
    let weir = Weir::start_as(&config);
    let mut client = Client::connect(weir.address());
    assert_eq!([client.get("/api/a").status, client.get("/other").status], [200, 404]);
    let lines: Vec<Value> = lines(&weir, 2).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["route"], &lines[0]["upstream"]), (&json!("/api/{*rest}"), &json!("api")));
    assert_eq!((&lines[1]["route"], &lines[1]["upstream_us"]), (&json!(null), &json!(null)));
}

#[test]
fn combined_and_templates_are_formats() {
    for (format, expected) in [
        ("combined", "127.0.0.1 - - [DATE +0000] \"GET /%22 HTTP/1.1\" 200 0 \"-\" \"a\\\"\\u202eb\"\n"),
        ("{client} {{{status}}}\\t{limit} {keys} {user_agent}", "127.0.0.1 {200}\t- per-ip=127.0.0.1 a\\\"\\u202eb\n"),
        ("text", "DATE"),
    ] {
        let log = format!("access = \"all\"\naccess_format = \"{format}\"");
        let limit = "[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nrate = \"1000/h\"\n";
        let weir =
            Weir::start(&Upstream::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), &in_file(&log, limit));
        let head = "GET /%22 HTTP/1.1\r\nHost: a\r\nUser-Agent: a\"\u{202e}b\r\n\r\n";
        assert_eq!(Client::connect(weir.address()).send(head).answer().status, 200);
        let line = lines(&weir, 1).remove(0);
        if format == "text" {
            assert!(line.contains(" INFO request client=127.0.0.1 method=\"GET\""), "{line}");
            assert!(line.ends_with(" user_agent=\"a\\\"\\u202eb\"\n"), "{line}");
            continue;
        }
        // The date has 20 characters.
        let line = match line.find('[') {
            Some(at) => format!("{}DATE{}", &line[..=at], &line[at + 21..]),
            None => line,
        };
        assert_eq!(line, expected);
    }
}

#[test]
fn a_renamed_file_is_opened_again() {
    let weir = Weir::start(&Upstream::start(), &in_file("access = \"all\"\naccess_format = \"{path}\"", ""));
    let old = weir.folder().join("access.log.1");
    let mut client = Client::connect(weir.address());
    client.get("/1");
    assert_eq!(lines(&weir, 1), ["/1\n"]);
    fs::rename(file(&weir), &old).unwrap();
    client.get("/2");
    assert_eq!(lines(&weir, 1), ["/2\n"]);
    fs::remove_file(file(&weir)).unwrap();
    client.get("/3");
    assert_eq!(lines(&weir, 1), ["/3\n"]);
    // Without a request, a signal does it.
    fs::remove_file(file(&weir)).unwrap();
    weir.signal("USR1");
    weir.wait_until("a new file", || file(&weir).is_file());
    client.get("/4");
    assert_eq!(lines(&weir, 1), ["/4\n"]);
    assert_eq!(fs::read_to_string(old).unwrap(), "/1\n");
    let again = weir.wait_for_line("SIGUSR1");
    assert!(again.contains("opening the access log again"), "{again}");
}

#[test]
fn a_sample_has_a_part_of_the_forwarded_requests_and_all_others() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"one\"\nkey = [\"path\"]\nrate = \"300/h\"\nmatch = { path = [\"/limited\"] }\n";
    let log = "access = \"all\"\naccess_sample = 10\naccess_format = \"{status} {path}\"";
    let weir = Weir::start(&upstream, &in_file(log, limit));
    let mut client = Client::connect(weir.address());
    for _ in 0..340 {
        client.get("/limited");
    }
    assert_eq!(client.get("/%").status, 400);
    weir.signal("TERM");
    weir.wait_for_line("\"stopped\"");
    let text = fs::read_to_string(file(&weir)).unwrap();
    let count = |line: &str| text.lines().filter(|other| *other == line).count();
    assert_eq!((count("429 /limited"), count("400 /%")), (40, 1), "{text}");
    // 30 are expected of 300; less than one run in 10^9 is outside of these bounds.
    assert!((2..80).contains(&count("200 /limited")), "{text}");
}

#[test]
fn a_fifo_without_a_reader_holds_nothing_up() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("access.log")).status().unwrap().success());
    let log = in_file("access = \"all\"\naccess_format = \"{path}\"", "");
    fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, "", &log)).unwrap();
    let weir = Weir::start_in(folder);
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/early").status, 200);
    let mut read = String::new();
    let mut reader = BufReader::new(fs::File::open(file(&weir)).unwrap());
    reader.read_line(&mut read).unwrap();
    assert_eq!(read, "/early\n");
    // More than a pipe holds.
    let long = format!("/{}", "x".repeat(4000));
    for _ in 0..40 {
        assert_eq!(client.get(&long).status, 200);
    }
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_the_start() {
    let upstream = Upstream::start();
    let config = Weir::config(&upstream, "", "[log]\naccess_file = \"none/access.log\"\n");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    fs::write(&path, config).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_weir")).arg("run").arg(&path).output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("log.access_file") && said.contains("none/access.log"), "{said}");
}
