//! Orders of operators about endpoints: drains and weights, over requests, reloads and takeovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::ops::replace;
use crate::routes::upstream;
use crate::support::{Answer, Client, NEVER, Upstream, Weir, echo};
use crate::upstreams::{asked, endpoint};

/// Gives an order by the API.
fn order(weir: &Weir, action: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let head = format!(
        "POST /v1/upstreams/{action} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    Client::connect(weir.admin()).send(head).send(body).answer()
}

fn accepted(weir: &Weir, action: &str, body: &Value) {
    let answer = order(weir, action, body);
    assert_eq!(answer.status, 200, "{action} {body}: {}", answer.text());
}

/// The order about an endpoint of `app`.
fn about(endpoint: &Upstream) -> Value {
    json!({ "upstream": "app", "endpoint": endpoint.address().to_string() })
}

/// A service that answers `/slow` when the flag is true.
fn slow() -> (Upstream, Arc<AtomicBool>) {
    let may_answer = Arc::new(AtomicBool::new(false));
    let current = Arc::clone(&may_answer);
    let upstream = Upstream::answering(move |request, stream| {
        while request.target() == "/slow" && !current.load(Ordering::SeqCst) {
            thread::park_timeout(std::time::Duration::from_millis(2));
        }
        echo(request, stream)
    });
    (upstream, may_answer)
}

fn statuses(weir: &Weir, count: usize) -> Vec<u16> {
    (0..count).map(|_| Client::connect(weir.address()).get("/").status).collect()
}

fn count(endpoint: &Upstream) -> usize {
    endpoint.targets().iter().filter(|target| *target != "/health").count()
}

#[test]
fn a_drain_under_load_loses_no_request() {
    let ((first, may_answer), second) = (slow(), Upstream::answering(echo));
    let health = "health = { path = \"/health\", interval = \"20ms\" }";
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&first, &second], health)));
    let mut running = Vec::new();
    weir.wait_until("a request runs at the first endpoint", || {
        let mut client = Client::connect(weir.address());
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        running.push(client);
        weir.wait_until("an endpoint has it", || count(&first) + count(&second) == running.len());
        count(&first) == 1
    });
    let labels = format!("{{endpoint=\"http://{}\",upstream=\"app\"}}", first.address());
    let draining = || weir.metric(&format!("weir_endpoint_draining{labels}"));
    let (is_over, address) = (&AtomicBool::new(false), weir.address());
    thread::scope(|scope| {
        let ask = move || {
            let (mut client, mut asked) = (Client::connect(address), 0);
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(client.get("/load").status, 200);
                asked += 1;
            }
            asked
        };
        let load: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        weir.wait_until("both have some load", || count(&first) > 20 && count(&second) > 20);
        accepted(&weir, "drain", &about(&first));
        weir.wait_until("the load is elsewhere", || endpoint(&weir, 0)["active"] == 1);
        let (at_first, at_second) = (count(&first), count(&second));
        assert_eq!(endpoint(&weir, 0)["state"], "draining");
        assert_eq!(draining(), 1.0);
        weir.wait_until("more load", || count(&second) > at_second + 100);
        assert_eq!(count(&first), at_first, "a drained endpoint gets no new request");
        is_over.store(true, Ordering::SeqCst);
        assert!(load.into_iter().map(|load| load.join().unwrap()).sum::<usize>() > 100);
    });
    // Checks go on, and connections close.
    let checks = |endpoint: &Upstream| endpoint.targets().iter().filter(|target| *target == "/health").count();
    let before = checks(&first);
    weir.wait_until("more checks", || checks(&first) > before);
    weir.wait_until("only the running request has a connection", || endpoint(&weir, 0)["connections"] == 1);
    may_answer.store(true, Ordering::SeqCst);
    assert!(running.iter_mut().all(|client| client.answer().status == 200));
    weir.wait_until("the endpoint is drained", || endpoint(&weir, 0)["state"] == "drained");
    let before = count(&first);
    accepted(&weir, "undrain", &about(&first));
    assert_eq!((&endpoint(&weir, 0)["state"], draining()), (&json!("up"), 0.0));
    assert_eq!(statuses(&weir, 10), [200; 10]);
    assert!(count(&first) > before);
}

#[test]
fn without_an_endpoint_left_a_drain_must_be_forced_and_clients_get_503() {
    let only = Upstream::answering(echo);
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&only], "")));
    let refused = order(&weir, "drain", &about(&only));
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("`force`"), "{}", refused.text());
    assert_eq!(statuses(&weir, 2), [200; 2]);
    let mut forced = about(&only);
    forced["force"] = true.into();
    accepted(&weir, "drain", &forced);
    let answer = Client::connect(weir.address()).get("/");
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("drained all endpoints of the upstream"), "{}", answer.text());
    assert_eq!(weir.metric("weir_problems_total{kind=\"upstream_drained\"}"), 1.0);
    accepted(&weir, "undrain", &about(&only));
    assert_eq!(statuses(&weir, 2), [200; 2]);
    assert_eq!(order(&weir, "undrain", &about(&only)).status, 404, "it is not drained");
}

#[test]
fn a_request_in_the_queue_does_not_wait_for_a_drained_endpoint() {
    let (only, may_answer) = slow();
    let more = "max_connections = 1\nmax_queued = 5\nqueue_timeout = \"1h\"";
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&only], more)));
    let [mut running, mut waiting] = ["/slow", "/"].map(|target| {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        weir.wait_until("the first one runs", || count(&only) == 1);
        client
    });
    weir.wait_until("the second one waits", || weir.metric("weir_upstream_queued{upstream=\"app\"}") == 1.0);
    let mut forced = about(&only);
    forced["force"] = true.into();
    accepted(&weir, "drain", &forced);
    assert_eq!(waiting.answer().status, 503);
    may_answer.store(true, Ordering::SeqCst);
    assert_eq!(running.answer().status, 200);
}

#[test]
fn a_weight_changes_the_distribution() {
    let (first, second) = (Upstream::answering(echo), Upstream::answering(echo));
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&first, &second], "")));
    let share = |requests: usize| {
        let before = count(&first);
        assert!(statuses(&weir, requests).iter().all(|status| *status == 200));
        count(&first) - before
    };
    let weight =
        |weight: Value| json!({ "upstream": "app", "endpoint": first.address().to_string(), "weight": weight });
    let even = share(100);
    assert!((48..=52).contains(&even), "{even}");
    accepted(&weir, "weight", &weight(9.into()));
    assert_eq!([&endpoint(&weir, 0)["weight"], &endpoint(&weir, 1)["weight"]], [9, 1]);
    // The mean is 360 of 400 with a deviation of 6.
    let heavy = share(400);
    assert!((324..=396).contains(&heavy), "{heavy}");
    let refused = order(&weir, "weight", &weight(0.into()));
    assert!(refused.status == 400 && refused.text().contains("drain the endpoint"), "{}", refused.text());
    assert_eq!(order(&weir, "weight", &weight(65_536.into())).status, 400);
    accepted(&weir, "weight", &weight(Value::Null));
    let even = share(100);
    assert!((48..=52).contains(&even), "{even}");
}

#[test]
fn an_order_ends_by_itself_and_the_audit_log_has_begin_and_end() {
    let (first, second) = (Upstream::answering(echo), Upstream::answering(echo));
    let text = Weir::text(&format!("{}{NEVER}", upstream("app", &[&first, &second], "")));
    let weir = Weir::start_as(&text.replacen("[admin]\n", "[admin]\naudit = \"audit.jsonl\"\n", 1));
    let name = format!("http://{}", first.address());
    let changed = asked(&weir, &["upstreams", "drain", "app", &name, "--for", "5s", "--reason", "new disk"]);
    let drained = &changed["endpoints"][0];
    assert_eq!((&drained["state"], &drained["why"]), (&json!("drained"), &json!("new disk")));
    assert!(drained["until"].as_str() > drained["since"].as_str(), "{drained}");
    weir.wait_until("the drain ends", || endpoint(&weir, 0)["state"] == "up");
    let back = endpoint(&weir, 0);
    assert!(
        back["orders"].as_array().unwrap().is_empty() && back["since"].as_str() >= drained["until"].as_str(),
        "{back}"
    );
    asked(&weir, &["upstreams", "weight", "app", &name, "5", "--for", "1h"]);
    asked(&weir, &["upstreams", "weight", "app", &name, "default"]);
    let audit = weir.wait_for("four lines", || {
        let lines = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap_or_default();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == 4).then_some(lines)
    });
    let target = json!({ "upstream": "app", "endpoint": name });
    assert!(audit.iter().all(|line| line["target"] == target), "{audit:?}");
    let actions: Vec<_> = audit.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["drain", "undrain", "weight", "weight"]);
    assert_eq!((&audit[0]["reason"], &audit[0]["before"]), (&json!("new disk"), &Value::Null));
    assert_eq!(audit[0]["after"], audit[1]["before"]);
    assert_eq!((&audit[1]["reason"], &audit[1]["address"]), (&json!("its time is over"), &json!("weir")));
    assert_eq!((&audit[2]["after"]["weight"], &audit[3]["after"]), (&json!(5), &Value::Null));
    assert_eq!(weir.wait_for_lines("changed by an operator", 3).len(), 3);
    assert!(weir.wait_for_line("ended by itself").contains("its time is over"));
}

#[test]
fn an_order_outlives_a_reload_as_long_as_its_endpoint_is_configured() {
    let (first, second) = (Upstream::answering(echo), Upstream::answering(echo));
    let text =
        |endpoints: &[&Upstream], more: &str| Weir::text(&format!("{}{NEVER}", upstream("app", endpoints, more)));
    let weir = Weir::start_as(&text(&[&first, &second], ""));
    accepted(&weir, "drain", &about(&first));
    let since = endpoint(&weir, 0)["since"].clone();
    replace(&weir.config_file(), &text(&[&first, &second], "max_connections = 9"));
    weir.wait_for_lines("\"reloaded\"", 1);
    assert_eq!((&endpoint(&weir, 0)["state"], &endpoint(&weir, 0)["since"]), (&json!("drained"), &since));
    assert_eq!((statuses(&weir, 6), count(&first)), (vec![200; 6], 0));
    replace(&weir.config_file(), &text(&[&second], ""));
    weir.wait_for_lines("\"reloaded\"", 2);
    assert!(weir.wait_for_line("has the endpoint no more").contains("\"upstream\":\"app\""));
    replace(&weir.config_file(), &text(&[&first, &second], ""));
    weir.wait_for_lines("\"reloaded\"", 3);
    assert_eq!(endpoint(&weir, 0)["state"], "up");
}

#[test]
fn wrong_names_are_answered_with_the_right_ones() {
    let (first, second) = (Upstream::answering(echo), Upstream::answering(echo));
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&first, &second], "")));
    let name = format!("http://{}", second.address());
    for (body, status, words) in [
        (json!({ "upstream": "ap", "endpoint": "a" }), 404, "there are app"),
        (json!({ "upstream": "app", "endpoint": "a" }), 404, &*name),
        (json!({ "upstream": "app" }), 400, "missing field `endpoint`"),
        (json!({ "upstream": "app", "endpoint": name, "for": "soon" }), 400, "such as `10min`"),
        (json!({ "upstream": "app", "endpoint": name, "length": "1h" }), 400, "unknown field"),
    ] {
        let answer = order(&weir, "drain", &body);
        assert!(answer.status == status && answer.text().contains(words), "{body}: {}", answer.text());
    }
}
