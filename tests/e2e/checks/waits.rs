//! Limits that hold or delay: the check waits as a request would.

use std::time::{Duration, Instant, SystemTime};

use super::{Asked, GET, config, connect, detail, post, start};
use crate::hold::check_date;
use crate::ops::replace;
use crate::support::Weir;

fn hold(rest: &str) -> Weir {
    start(&format!("[[limit]]\nname = \"l\"\nkey = []\non_limit = \"hold\"\n{rest}\n"))
}

fn wait_for_held(weir: &Weir, count: f64) {
    weir.wait_for_metric("weir_held_requests{limit=\"l\"}", |held| held == count);
}

#[test]
fn a_check_waits_for_its_turn() {
    let weir = hold("rate = \"1/3s\"");
    let mut client = connect(&weir);
    let (began, since) = (Instant::now(), SystemTime::now());
    let body = "{\"method\": \"GET\", \"path\": \"/\", \"host\": \"\", \"address\": \"192.0.2.1\"}";
    let answers = [GET.ask(&mut client), GET.ask(&mut client), post(&mut client, body)];
    for (turn, answer) in (0..).zip(&answers) {
        assert_eq!(answer.status, 200);
        check_date(answer.header("date"), since + Duration::from_secs(3) * turn);
    }
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(weir.metric("weir_requests_total{verdict=\"held\"}"), 2.0);
}

#[test]
fn a_proxy_that_leaves_leaves_the_queue() {
    let weir = hold("rate = \"1/h\"\nhold = { max_waiting = 2 }");
    assert_eq!(GET.ask(&mut connect(&weir)).status, 200);
    let mut waiting: Vec<_> = (0..2)
        .map(|_| {
            let mut client = connect(&weir);
            client.send(GET.bytes("/auth"));
            client
        })
        .collect();
    wait_for_held(&weir, 2.0);
    let refused = connect(&weir).send(GET.bytes("/auth?refuse=403")).answer();
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("too many are waiting"), "{}", refused.text());
    drop(waiting.pop());
    wait_for_held(&weir, 1.0);
    // One that has sent a body, and still waits for its answer, leaves too.
    let mut last = connect(&weir);
    let text = GET.bytes("/auth").replacen("Host", "Content-Length: 5\r\nHost", 1);
    last.send(text + "hel");
    wait_for_held(&weir, 2.0);
    drop(last);
    wait_for_held(&weir, 1.0);
    drop(waiting);
    wait_for_held(&weir, 0.0);
    weir.wait_for_metric("weir_requests_total{verdict=\"abandoned\"}", |count| count == 3.0);
}

#[test]
fn a_wait_that_is_too_long_is_refused_at_once() {
    let weir = hold("rate = \"1/h\"\nhold = { max_wait = \"1s\" }");
    let mut client = connect(&weir);
    assert_eq!([GET.ask(&mut client).status, GET.ask(&mut client).status], [200, 429]);
    assert_eq!(weir.metric("weir_requests_total{verdict=\"held\"}"), 0.0);
}

#[test]
fn a_delayed_check_is_answered_later() {
    let weir = start(
        "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"\non_limit = \"delay\"\ndelay = { step = \"300ms\" }\n",
    );
    let mut client = connect(&weir);
    assert_eq!(GET.ask(&mut client).status, 200);
    let began = Instant::now();
    assert_eq!(GET.ask(&mut client).status, 200);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!(Asked { client: "192.0.2.2", ..GET }.ask(&mut client).status, 200);
}

#[test]
fn a_check_that_waits_needs_the_newest_access_lists() {
    let weir = hold("rate = \"1/5s\"");
    let mut client = connect(&weir);
    assert_eq!(GET.ask(&mut client).status, 200);
    client.send(GET.bytes("/auth?refuse=403"));
    wait_for_held(&weir, 1.0);
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &format!("{text}\n[access]\ndeny = {{ ip = [\"192.0.2.1\"] }}\n"));
    weir.wait_for_line("\"reloaded\"");
    let denied = client.answer();
    assert_eq!((denied.status, &*detail(&denied)), (403, "this address is refused"));
}

#[test]
fn a_shutdown_refuses_what_waits() {
    let limit = "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/h\"\non_limit = \"hold\"\n";
    let text = config("", limit).replacen("[server]\n", "[server]\nshutdown_grace = \"100ms\"\n", 1);
    let weir = Weir::start_as(&text);
    let (mut idle, mut waiting) = (connect(&weir), connect(&weir));
    assert_eq!(GET.ask(&mut idle).status, 200);
    waiting.send(GET.bytes("/auth?refuse=403"));
    wait_for_held(&weir, 1.0);
    weir.signal("TERM");
    let refused = waiting.answer();
    assert_eq!((refused.status, &*detail(&refused)), (503, "the proxy is shutting down"));
    assert_eq!(weir.wait(), Some(0));
}

/// The headers of a check are those of a client, which cannot raise its priority in them.
#[test]
fn a_described_request_cannot_name_its_priority() {
    let weir = hold("rate = \"1/day\"\nhold = { max_wait = \"1s\" }\n[priority]\nheader = \"x-priority\"");
    let mut client = connect(&weir);
    assert_eq!(GET.ask(&mut client).status, 200);
    let refused = Asked { more: "X-Priority: critical\r\n", ..GET }.ask(&mut client);
    // The wait of a critical request would be exact.
    assert_eq!(refused.status, 429);
    let detail = detail(&refused);
    assert!(
        detail.starts_with("beyond l, and the wait of about ") && detail.ends_with(" is longer than allowed"),
        "{detail}"
    );
}
