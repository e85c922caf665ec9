//! Streams that are cut when their budget ends.

use std::io::Write;

use crate::ops::refill;
use crate::support::{Client, Received, Upstream, Weir, over_h2, poll};

const ERROR: &str = "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"code\":\"quota-exceeded\",\
    \"message\":\"the answer was cut, because its budget ended\",\"violated-policies\":[\"tokens\"]}}\n";

/// An event of a chat, which is about a token.
const EVENT: &str =
    "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"\\n\\\"data: }\"}}],\"usage\":null}\r\n\r\n";
/// The last events of a chat of 200 tokens.
const END: &str = "data: {\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":200}}\r\n\r\ndata: [DONE]\r\n\r\n";

/// Lines with the numbers up to `last`.
fn lines_up_to(last: usize) -> String {
    let lines: Vec<_> = (1..=last).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    lines.concat()
}

/// A service that answers `/FORM/EVENTS/CHUNK`: a form of streams, its events, and the bytes of a chunk.
fn streams() -> Upstream {
    Upstream::answering(|request: &Received, stream| {
        let parts: Vec<_> = request.target().split('/').skip(1).collect();
        let [form, count, size] = parts[..] else { return false };
        let (count, size): (usize, usize) = (count.parse().unwrap(), size.parse().unwrap());
        let (kind, body) = match form {
            "lines" => ("application/x-ndjson", lines_up_to(count)),
            _ => ("text/event-stream", EVENT.repeat(count) + END),
        };
        let framing = match form {
            "length" => format!("content-length: {}", body.len()),
            _ => "transfer-encoding: chunked".to_owned(),
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{framing}\r\n\r\n");
        let mut is_sent = stream.write_all(head.as_bytes()).is_ok();
        for piece in body.as_bytes().chunks(size) {
            let framed = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            is_sent = is_sent && stream.write_all(if form == "length" { piece } else { &framed }).is_ok();
        }
        is_sent && (form == "length" || stream.write_all(b"0\r\n\r\n").is_ok())
    })
}

/// A limit of 40 tokens, of which none comes back within a test.
fn tokens(rest: &str) -> String {
    format!("[[limit]]\nname = \"tokens\"\nkey = []\nrate = \"1/day\"\nburst = 40\ncost = 10\n{rest}")
}

const CHAT: &str = "settle = { by = \"openai-chat\", on_exhausted = \"cut\" }\n";

/// The units that are spent, with the debt.
fn spent(weir: &Weir) -> u64 {
    let answer = weir.ask_admin("GET", "/v1/keys?limit=tokens&key=", &serde_json::Value::Null);
    let key: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    40 - key["remaining"].as_u64().unwrap_or_else(|| panic!("{key}")) + key["debt"].as_u64().unwrap()
}

#[track_caller]
fn wait_for_spent(weir: &Weir, expected: u64) {
    let mut last = 0;
    poll(|| {
        last = spent(weir);
        (last == expected).then_some(())
    });
}

fn events(count: usize) -> String {
    format!("{}event: error\ndata: {ERROR}\n", EVENT.repeat(count))
}

#[test]
fn a_stream_is_cut_where_its_budget_ends() {
    let upstream = streams();
    let lines = "settle = { by = \"json:/n\", on_exhausted = \"cut\" }\n";
    let all = format!("{}{END}", EVENT.repeat(100));
    for (limit, form, body, units) in [
        // The balance is looked at behind each sixteenth event; one more follows.
        (tokens(CHAT), "chat", events(49), 49),
        (tokens(&format!("{CHAT}max_debt = 20\n")), "chat", events(65), 60),
        // A number is looked at at once.
        (tokens(lines), "lines", format!("{}{ERROR}", lines_up_to(42)), 42),
        (tokens("settle = { by = \"openai-chat\" }\n"), "chat", all.clone(), 200),
        (tokens(&format!("{CHAT}mode = \"shadow\"\n")), "chat", all.clone(), 200),
        (tokens(CHAT), "length", all, 200),
    ] {
        let weir = Weir::start(&upstream, &limit);
        let cuts = || weir.metric("weir_cut_streams_total{limit=\"tokens\"}");
        for size in [1, 7, 100_000] {
            let (target, before) = (format!("/{form}/100/{size}"), cuts());
            refill(&weir, "tokens");
            let mut client = Client::connect(weir.address());
            assert_eq!(client.get(&target).text(), body, "{limit} {target}");
            wait_for_spent(&weir, units);
            let is_cut = body.contains("error");
            assert_eq!(cuts() - before, f64::from(u8::from(is_cut)), "{limit} {target}");
            if is_cut {
                // The end is one of HTTP too, so the connection can be used again.
                assert_eq!(client.get("/chat/1/9").status, 429);
            }
            refill(&weir, "tokens");
            over_h2(weir.address(), async |mut client, _| {
                assert_eq!(client.get(&target).await.unwrap().body, body, "{limit} {target}");
            });
            wait_for_spent(&weir, units);
        }
    }
}

#[test]
fn an_answer_that_is_complete_is_not_cut() {
    let upstream = streams();
    // 5 events, then the number that ends the budget, and the event that ends the answer.
    let weir = Weir::start(&upstream, &tokens(CHAT));
    for size in [1, 100_000] {
        refill(&weir, "tokens");
        let answer = Client::connect(weir.address()).get(&format!("/chat/5/{size}"));
        assert_eq!(answer.text(), format!("{}{END}", EVENT.repeat(5)));
        wait_for_spent(&weir, 200);
        assert_eq!(weir.metric("weir_cut_streams_total{limit=\"tokens\"}"), 0.0);
    }
}

#[test]
fn parallel_streams_share_what_is_left() {
    let upstream = streams();
    let limit = tokens(CHAT).replace("burst = 40", "burst = 1000");
    let weir = Weir::start(&upstream, &limit);
    let mut clients: Vec<_> = (0..50).map(|_| Client::connect(weir.address())).collect();
    for client in &mut clients {
        client.send("GET /chat/900/100 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let answers: Vec<_> = clients.iter_mut().map(Client::answer).collect();
    let events: usize = answers.iter().map(|answer| answer.text().matches("choices").count()).sum();
    // Each may look at the balance too late by 16 events, and gets one more.
    assert!((1000..1000 + 50 * 17).contains(&events), "{events}");
}

#[test]
fn the_log_names_the_limit_that_cut_a_stream() {
    let upstream = streams();
    let log = "[log]\nformat = \"json\"\naccess = \"all\"\n";
    let weir = Weir::start(&upstream, &format!("{log}{}", tokens(CHAT)));
    Client::connect(weir.address()).get("/chat/100/50");
    // Also behind `keys`, a limit has a name.
    let line: serde_json::Value = serde_json::from_str(&weir.wait_for_line("/chat/100/50")).unwrap();
    assert_eq!((&line["verdict"], &line["limit"]), (&"forwarded".into(), &"tokens".into()), "{line}");
}
