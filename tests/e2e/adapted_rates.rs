//! Limits whose rate follows a signal.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::adaptive::SlowService;
use crate::support::{Client, PATIENCE_OF_TEST, Upstream, Weir};

/// A service that answers each request after so many milliseconds, and fails at zero.
pub fn service() -> (Arc<AtomicU64>, Upstream) {
    let ms = Arc::new(AtomicU64::new(1));
    let time = Arc::clone(&ms);
    let upstream = Upstream::answering(move |_, stream| {
        let ms = time.load(Ordering::Relaxed);
        if ms == 0 {
            return stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        std::thread::sleep(Duration::from_millis(ms)); // the work
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    (ms, upstream)
}

/// The series of the part of the rate of the limit `name`.
pub fn part_of(name: &str) -> String {
    format!("weir_limit_adapted_ratio{{limit=\"{name}\"}}")
}

/// Reads a metric until it is enough. No line of the log tells when it changes.
pub fn wait_for(weir: &Weir, series: &str, is_enough: impl Fn(f64) -> bool) -> f64 {
    let began = Instant::now();
    loop {
        let value = weir.metric(series);
        if is_enough(value) || began.elapsed() > PATIENCE_OF_TEST {
            assert!(is_enough(value), "{series} {value}");
            return value;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn get(weir: &Weir, target: &str) -> String {
    Client::connect(weir.admin()).send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer().text()
}

fn explained(weir: &Weir) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["explain", "--admin", &weir.admin().to_string(), "--path", "/"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The rate falls while the service is slow, and returns by itself. The metric, the page and `weir explain` show it, and a
/// reload keeps it.
#[test]
fn a_rate_follows_the_latency_of_its_service() {
    let (ms, upstream) = service();
    let limit = |rate: &str| {
        format!(
            "[[limit]]\nname = 'a'\nkey = []\nrate = '{rate}'\nadapt = {{ by = 'upstream_p90', target = '400ms' }}
             [[limit]]\nname = 'shown'\nmode = 'shadow'\nkey = []\nrate = '{rate}'
             adapt = {{ by = 'upstream_p90', target = '400ms', floor = '50%', ceiling = '90%' }}
             [[limit]]\nname = 'idle'\nmatch = {{ path = '/idle' }}\nkey = []\nrate = '1/s'
             adapt = {{ by = 'upstream_p90', target = '400ms' }}"
        )
    };
    let weir = Weir::start(&upstream, &limit("50/s"));
    let (a, shown, idle) = (part_of("a"), part_of("shown"), part_of("idle"));
    SlowService::under_load(&weir, || {
        wait_for(&weir, "weir_limit_decisions_total{decision=\"refused\",limit=\"a\"}", |refused| refused > 20.0);
        for (series, part) in [(&a, 1.0), (&shown, 0.9), (&idle, 1.0)] {
            wait_for(&weir, series, |seen| seen == part);
        }
        ms.store(1200, Ordering::Relaxed);
        wait_for(&weir, &a, |part| part <= 0.5);
        let (page, said) = (get(&weir, "/limit?name=a"), explained(&weir));
        assert!(page.contains(" % of the rate; upstream_p90 is ") && page.contains(", target 400ms"), "{page}");
        assert!(said.contains("adapt: ") && said.contains(" of 50/s, token bucket"), "{said}");
        assert_eq!(wait_for(&weir, &shown, |part| part <= 0.5), 0.5);
        ms.store(1, Ordering::Relaxed);
        let low = weir.metric(&a);
        wait_for(&weir, &a, |part| part >= low + 0.03);
    });
    assert_eq!(weir.metric(&idle), 1.0);
    let known = weir.metric(&a);
    assert!(known < 1.0, "{known}");
    std::fs::write(weir.config_file(), Weir::config(&upstream, "", &limit("40/s"))).unwrap();
    weir.signal("HUP");
    weir.wait_for_lines("\"reloaded\"", 1);
    // The last requests of the load may change the rate by one more step.
    let kept = weir.metric(&a);
    assert!((kept - known).abs() < 0.05, "{kept} {known}");
    let limit: f64 = Client::connect(weir.address()).get("/").header("x-ratelimit-limit").unwrap().parse().unwrap();
    assert!((limit - 40.0 * kept).abs() <= 1.0, "{limit} {kept}");
}

/// Failures, and waits for a connection, lower the rate of the limits that follow them.
#[test]
fn a_rate_follows_failures_and_waits_for_a_connection() {
    let limits =
        "[[limit]]\nname = 'errors'\nkey = []\nrate = '1000/s'\nadapt = { by = 'upstream_errors', target = '5%' }
        [[limit]]\nname = 'queue'\nkey = []\nrate = '1000/s'\nadapt = { by = 'queue_delay', target = '20ms' }
        [[limit]]\nname = 'cpu'\nkey = []\nrate = '1000/s'\nadapt = { by = 'cpu', target = '1%' }";
    let (ms, upstream) = service();
    let config = Weir::config(&upstream, "", limits).replace("[upstream]\n", "[upstream]\nmax_connections = 1\n");
    let weir = Weir::start_as(&config);
    let [errors, queue, cpu] = ["errors", "queue", "cpu"].map(part_of);
    ms.store(10, Ordering::Relaxed);
    SlowService::under_load(&weir, || {
        wait_for(&weir, &queue, |part| part < 0.8);
        wait_for(&weir, &cpu, |part| part < 0.8);
        assert_eq!(weir.metric(&errors), 1.0);
        ms.store(0, Ordering::Relaxed);
        wait_for(&weir, &errors, |part| part < 0.8);
    });
}
