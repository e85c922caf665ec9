//! What operators see of upstreams and endpoints: the API, `weir upstreams` and `weir top`.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::ops::{replace, until};
use crate::routes::upstream;
use crate::support::{Client, NEVER, Upstream, Weir, echo};

/// The JSON that a command prints.
pub fn asked(weir: &Weir, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).env("WEIR_ADMIN", weir.admin().to_string()).env_remove("WEIR_ADMIN_TOKEN");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn listed(weir: &Weir) -> Value {
    let answer = Client::connect(weir.admin()).send("GET /v1/upstreams HTTP/1.1\r\nHost: localhost\r\n\r\n").answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// The endpoint at this place of the first upstream.
pub fn endpoint(weir: &Weir, index: usize) -> Value {
    listed(weir)["upstreams"][0]["endpoints"][index].clone()
}

/// A service that answers checks with 503 while the flag is true.
fn checked() -> (Upstream, Arc<AtomicBool>) {
    let is_ill = Arc::new(AtomicBool::new(false));
    let current = Arc::clone(&is_ill);
    let upstream = Upstream::answering(move |request, stream| {
        if request.target() == "/health" && current.load(Ordering::SeqCst) {
            return std::io::Write::write_all(stream, b"HTTP/1.1 503 Unwell\r\ncontent-length: 0\r\n\r\n").is_ok();
        }
        echo(request, stream)
    });
    (upstream, is_ill)
}

#[test]
fn the_state_of_an_endpoint_has_its_reason_and_its_begin() {
    let ((first, is_ill), second) = (checked(), Upstream::answering(echo));
    let health = "health = { path = \"/health\", interval = \"20ms\", timeout = \"30s\", healthy_after = 1, unhealthy_after = 1 }";
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&first, &second], health)));
    let before = endpoint(&weir, 0);
    assert_eq!((&before["state"], &before["why"], &before["until"]), (&"up".into(), &Value::Null, &Value::Null));
    assert_eq!(before["endpoint"], format!("http://{}", first.address()));

    is_ill.store(true, Ordering::SeqCst);
    weir.wait_until("the endpoint is out", || endpoint(&weir, 0)["state"] == "unhealthy");
    let ill = endpoint(&weir, 0);
    assert_eq!(ill["why"], "the status is 503");
    assert!(ill["since"].as_str() > before["since"].as_str(), "{ill} after {before}");
    assert_eq!(endpoint(&weir, 1)["state"], "up");
    let line = weir.wait_for_line("an endpoint is unhealthy");
    assert!(line.contains("\"upstream\":\"app\""), "{line}");
    // It stays as it is across a reload.
    weir.signal("HUP");
    weir.wait_for_lines("\"reloaded\"", 1);
    assert_eq!(endpoint(&weir, 0)["since"], ill["since"]);

    is_ill.store(false, Ordering::SeqCst);
    weir.wait_until("the endpoint is back", || endpoint(&weir, 0)["state"] == "up");
    let back = endpoint(&weir, 0);
    assert!(back["why"].is_null() && back["since"].as_str() > ill["since"].as_str(), "{back}");
}

#[test]
fn an_ejected_endpoint_says_which_failure_ejected_it_and_for_how_long() {
    let (gone, alive) = (Upstream::start(), Upstream::answering(echo));
    let eject = "eject = { after = 2, for = \"1h\" }";
    let text = format!("{}{NEVER}", upstream("app", &[&gone, &alive], eject));
    gone.stop();
    let weir = Weir::with(&text);
    until("the endpoint is ejected", || {
        assert_eq!(Client::connect(weir.address()).get("/").status, 200);
        endpoint(&weir, 0)["state"] == "ejected"
    });
    let ejected = endpoint(&weir, 0);
    assert!(ejected["why"].as_str().unwrap().contains("refused"), "{ejected}");
    assert!(ejected["until"].as_str() > ejected["since"].as_str(), "{ejected}");
    assert_eq!((&ejected["requests"], &ejected["errors"]), (&2.into(), &2.into()));
    let line = weir.wait_for_line("keeps failing and is ejected");
    assert!(line.contains("\"upstream\":\"app\"") && line.contains("refused"), "{line}");
    // The running ejection is no longer than a new one.
    replace(&weir.config_file(), &Weir::text(&text.replace("1h", "1ms")));
    weir.wait_for_lines("\"reloaded\"", 1);
    weir.wait_until("the endpoint is back", || endpoint(&weir, 0)["state"] == "up");
}

#[test]
fn requests_latency_connections_and_queue_are_counted_for_each_endpoint() {
    let busy = Upstream::answering(|request, stream| {
        if request.target() == "/wait" {
            std::thread::park(); // until the process ends
        }
        echo(request, stream)
    });
    let weir = Weir::with(&format!("{}{NEVER}", upstream("app", &[&busy], "max_connections = 1\nmax_queued = 5")));
    for _ in 0..10 {
        assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    }
    let quiet = endpoint(&weir, 0);
    assert_eq!((&quiet["requests"], &quiet["errors"], &quiet["active"]), (&10.into(), &0.into(), &0.into()));
    let minute = &quiet["last_minute"];
    assert_eq!((&minute["requests"], &minute["errors"]), (&10.into(), &0.into()));
    let ms = |name: &str| minute[name].as_f64().unwrap();
    assert!(ms("mean_ms") > 0.0 && ms("p50_ms") > 0.0 && ms("p50_ms") <= ms("p90_ms"), "{minute}");

    let mut running = Client::connect(weir.address());
    running.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_until("the request runs", || endpoint(&weir, 0)["active"] == 1);
    let mut waiting = Client::connect(weir.address());
    waiting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_until("a request waits", || listed(&weir)["upstreams"][0]["queued"] == 1);
    assert_eq!(endpoint(&weir, 0)["connections"], 1);
    drop((running, waiting));
    weir.wait_until("both clients have left", || {
        endpoint(&weir, 0)["active"] == 0 && listed(&weir)["upstreams"][0]["queued"] == 0
    });
    assert_eq!(asked(&weir, &["upstreams", "list"])["upstreams"][0]["upstream"], "app");
    assert_eq!(asked(&weir, &["top", "--once", "--json"])["upstreams"]["upstreams"][0]["upstream"], "app");
}

/// A failed handshake says more than an endpoint that refuses connections, which is tried before or after it.
#[test]
fn the_log_has_the_telling_error_of_several_endpoints() {
    let plain = Upstream::serving(|mut peer| _ = peer.send("HTTP/1.1 400 Bad Request\r\n\r\n"));
    let gone = Upstream::start().stop();
    let endpoints = format!("endpoints = [\"https://{}\", \"https://{gone}\"]", plain.address());
    let weir = Weir::with(&format!("[upstreams.app]\n{endpoints}\n{NEVER}\n[[route]]\nupstream = \"app\"\n"));
    for _ in 0..2 {
        assert_eq!(Client::connect(weir.address()).get("/").status, 502);
    }
    let causes = || weir.lines().into_iter().filter(|line| line.contains("\"cause\":")).collect::<Vec<_>>();
    weir.wait_until("two lines", || causes().len() == 2);
    for line in causes() {
        assert!(line.contains(&plain.address().to_string()) && !line.contains("refused"), "{line}");
    }
}
