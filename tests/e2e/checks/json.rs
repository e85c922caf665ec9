//! `POST /v1/check`.

use serde_json::{Value, json};

use super::{config, connect, detail, post, start};
use crate::support::{Client, Fleet, Redis, Weir};

fn body(path: &str, more: &str) -> String {
    format!("{{\"method\": \"GET\", \"path\": \"{path}\", \"host\": \"shop.test\", \"address\": \"192.0.2.1\"{more}}}")
}

/// The status and the body of an answer.
fn ask(client: &mut Client, body: &str) -> (u16, Value) {
    let answer = post(client, body);
    assert_eq!(answer.header("content-type"), Some("application/json"), "{} {}", answer.head, answer.text());
    let value: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (value["status"].as_u64(), &value["allowed"]),
        (Some(answer.status.into()), &json!(answer.status == 200))
    );
    (answer.status, value)
}

/// The body without times; those of limits that are spent are in range.
fn without_times(mut answer: Value) -> Value {
    for limit in answer["limits"].as_array_mut().unwrap() {
        let limit = limit.as_object_mut().unwrap();
        let (retry, reset) = (limit.remove("retry_after_ms").unwrap(), limit.remove("reset_after_ms").unwrap());
        assert_eq!(retry.is_null(), limit["admits"] == true, "{retry}");
        assert!(reset.as_u64().unwrap() >= retry.as_u64().unwrap_or(1), "{retry} {reset}");
    }
    answer
}

#[test]
fn the_answer_lists_every_limit() {
    let weir = start(
        "[[limit]]\nname = \"day\"\nkey = [\"header:x-key\"]\nalgorithm = \"sliding_log\"\nrate = [\"2/h\", \"5/day\"]\n\
         [[limit]]\nname = \"ip\"\nstage = \"arrival\"\nkey = [\"ip\"]\nrate = \"100/h\"\n\
         [[limit]]\nname = \"shadow\"\nmode = \"shadow\"\nkey = [\"ip\"]\nrate = \"1/h\"\n\
         [[limit]]\nname = \"other\"\nkey = [\"ip\"]\nrate = \"1/h\"\nmatch = { path = \"/other\" }\n",
    );
    let mut client = connect(&weir);
    let headers = ", \"headers\": {\"X-Key\": \"a\"}";
    let item = |limit: &str, rate: Option<u32>, numbers: [u64; 2], admits: bool| json!({ "limit": limit, "rate": rate, "capacity": numbers[0], "remaining": numbers[1], "admits": admits });
    let (_, first) = ask(&mut client, &body("/a", headers));
    let limits = json!([
        item("ip", None, [100, 99], true),
        item("day", Some(1), [2, 1], true),
        item("day", Some(2), [5, 4], true)
    ]);
    let expected = json!({ "allowed": true, "status": 200, "detail": null, "violated": [], "retry_after_ms": null, "limits": limits });
    assert_eq!(without_times(first), expected);
    ask(&mut client, &body("/a", headers));
    let (status, mut refused) = ask(&mut client, &body("/a", headers));
    assert_eq!((status, &refused["violated"]), (429, &json!(["day"])));
    let retry = refused["retry_after_ms"].take().as_u64().unwrap();
    assert!((3_590_000..=3_600_000).contains(&retry), "{retry}");
    let limits = json!([
        item("ip", None, [100, 97], true),
        item("day", Some(1), [2, 0], false),
        item("day", Some(2), [5, 3], true)
    ]);
    assert_eq!(without_times(refused)["limits"], limits);
}

#[test]
fn a_cost_replaces_that_of_the_limits() {
    let weir = start("[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"10/h\"\ncost = 3\n");
    let mut client = connect(&weir);
    for (cost, status, remaining) in [
        ("", 200, 7),
        (", \"cost\": 2", 200, 5),
        (", \"cost\": 0", 200, 5),
        (", \"cost\": 6", 429, 5),
        (", \"cost\": 5", 200, 0),
        (", \"cost\": 0", 429, 0),
        (", \"cost\": 1", 429, 0),
    ] {
        let (found, answer) = ask(&mut client, &body("/", cost));
        assert_eq!((found, &answer["limits"][0]["remaining"]), (status, &json!(remaining)), "{cost}");
    }
    let (status, never) = ask(&mut client, &body("/", ", \"cost\": 11"));
    assert_eq!(
        (status, &never["retry_after_ms"], &never["detail"]),
        (429, &Value::Null, &json!("this request costs more than l can ever hold"))
    );
}

/// A cost of 0 passes if 1 would pass now. It charges nothing, does not wait, and leads to no ban.
#[test]
fn a_cost_of_0_looks() {
    let redis = Redis::start();
    let store = format!(
        "[fleet]\nstrategy = \"redis\"\nreplicas = 1\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n\
         [store.main]\nredis = [\"{}\"]\ntimeout = \"5s\"\n",
        redis.url()
    );
    for (index, (store, more, spent)) in [
        ("", "", 429),
        ("", "stage = \"arrival\"", 429),
        ("", "on_limit = \"hold\"\nhold = { max_wait = \"1h\" }", 429),
        ("", "on_limit = \"delay\"\ndelay = { step = \"1h\", max = \"2h\" }", 429),
        ("", "ban = { after = \"2/h\", for = \"1h\" }", 429),
        ("", "mode = \"shadow\"", 200),
        (&*store, "", 429),
        (&store, "strategy = \"lease\"", 429),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("l{index}");
        let limit = format!("[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\nrate = \"2/h\"\n{more}\n");
        let fleet = Fleet::of(1, &config("", &format!("{store}{limit}")));
        if !store.is_empty() {
            fleet.wait_for_stores(true);
        }
        let weir = &fleet.weirs[0];
        let mut client = connect(weir);
        let mut status = |cost: u32| ask(&mut client, &body("/", &format!(", \"cost\": {cost}"))).0;
        let looks_and_charges = [0, 0, 1, 0, 1, 0, 0, 0].map(&mut status);
        assert_eq!(looks_and_charges, [200, 200, 200, 200, 200, spent, spent, spent], "{store}{more}");
        let refused = format!("weir_limit_decisions_total{{decision=\"refused\",limit=\"{name}\"}}");
        assert_eq!(weir.metric(&refused), 0.0, "{more}");
        if spent == 429 {
            let (_, refused) = ask(&mut client, &body("/", ", \"cost\": 0"));
            assert_eq!(refused["violated"], json!([name]));
            let retry = refused["retry_after_ms"].as_u64().unwrap();
            assert!((1_700_000..=1_800_000).contains(&retry), "{retry} {more}");
        }
    }
}

#[test]
fn refusals_of_all_kinds_are_json() {
    let weir = start(
        "[access]\ndeny = { path = \"/secret\" }\nallow = { path = \"/free\" }\n\
         [identity.key]\nheader = \"x-api-key\"\n\
         [[limit]]\nname = \"l\"\nkey = [\"key\"]\nmatch = { path = \"/key\" }\nrate = \"1/h\"\n",
    );
    let mut client = connect(&weir);
    for (path, more, status, detail) in [
        ("/free", "", 200, Value::Null),
        ("/secret", "", 403, json!("this path is refused")),
        ("/key", "", 401, json!("key: none given")),
        ("/key", ", \"headers\": {\"x-api-key\": [\"a\", \"b\"]}", 401, json!("key: more than one given")),
        ("/a%zz", "", 400, json!("the path has an invalid percent-escape")),
    ] {
        let (found, answer) = ask(&mut client, &body(path, more));
        assert_eq!((found, &answer["detail"], &answer["limits"]), (status, &detail, &json!([])), "{path}");
    }
    let key = body("/key", ", \"headers\": {\"x-api-key\": \"a\"}");
    assert_eq!(ask(&mut client, &key).0, 200);
    let length = key.len();
    let head = format!("POST /v1/check?refuse=503 HTTP/1.1\r\nHost: weir\r\nContent-Length: {length}\r\n\r\n");
    let refused = client.send(format!("{head}{key}")).answer();
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (503, Some("0")));
    assert!(refused.header("retry-after").is_some() && refused.text().contains("\"status\":503"), "{}", refused.text());
}

#[test]
fn bodies_that_are_wrong() {
    let weir = start("");
    let mut client = connect(&weir);
    for (text, what) in [
        ("", "the body: expected a JSON object"),
        ("{", "the body: EOF while parsing"),
        ("[]", "the body: expected a JSON object"),
        (&body("/", ", \"x\": 1"), "the body: unknown field `x`"),
        (&body("a", ""), "path: expected a path"),
        (&body("/", "").replace("192.0.2.1", "me"), "the body: invalid IP address"),
        (&body("/", ", \"cost\": -1"), "the body: invalid value: integer `-1`"),
    ] {
        let answer = post(&mut client, text);
        assert_eq!(answer.status, 400, "{text}");
        assert!(detail(&answer).starts_with(what), "{text}: {}", answer.text());
    }
    assert_eq!(weir.metric("weir_problems_total{kind=\"bad_check\"}"), 7.0);
    let wrong = client.get("/v1/check");
    assert_eq!(
        (wrong.status, wrong.header("allow"), &*detail(&wrong)),
        (405, Some("POST"), "the method of /v1/check is POST")
    );
}

#[test]
fn bodies_arrive_in_every_way() {
    let weir = Weir::start_as(&config("", "[timeouts]\nrequest_head = \"2s\"\n"));
    let (good, head) = (body("/", ""), "POST /v1/check HTTP/1.1\r\nHost: weir\r\n");
    let length = format!("Content-Length: {}\r\n", good.len());
    let mut client = connect(&weir);
    // Two at once, one in pieces, and one that waits for 100 Continue.
    let one = format!("{head}{length}\r\n{good}");
    client.send(format!("{one}{one}"));
    assert_eq!([client.answer().status, client.answer().status], [200, 200]);
    let (start, end) = good.split_at(10);
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\na\r\n{start}\r\n"));
    client.send(format!("{:x}\r\n{end}\r\n0\r\n\r\n", end.len()));
    assert_eq!(client.answer().status, 200);
    client.send(format!("{head}{length}Expect: 100-continue\r\n\r\n"));
    assert_eq!(client.head().unwrap().status, 100);
    assert_eq!(client.send(&good).answer().status, 200);
    // Too long, by its announcement or not; too slow; cut off.
    let long = "a".repeat(65_537);
    for (text, status) in [
        (format!("{head}Content-Length: 65537\r\n\r\n{long}"), 413),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n10001\r\n{long}\r\n0\r\n\r\n"), 413),
        (format!("{head}{length}\r\n{{"), 408),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\nx\r\n"), 400),
    ] {
        let mut client = connect(&weir);
        let answer = client.send(text).answer();
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(client.rest(), b"", "{status}");
    }
    let mut cut = connect(&weir);
    cut.send(format!("{head}{length}\r\n{{")).finish();
    assert_eq!(cut.answer().status, 400);
}
