//! A limit whose bound follows its service.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::{Client, SetOnDrop, Upstream, Weir};

/// A service with a few workers, and a queue of requests for them.
#[derive(Default)]
pub struct SlowService {
    busy: Mutex<usize>,
    changed: Condvar,
    is_failing: AtomicBool,
    in_flight: AtomicUsize,
    /// The most requests at once.
    pub most: AtomicUsize,
}

const WORKERS: usize = 4;

impl SlowService {
    fn answer(&self, stream: &mut std::net::TcpStream) -> bool {
        self.most.fetch_max(self.in_flight.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let answered = self.work(stream);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        answered
    }

    fn work(&self, stream: &mut std::net::TcpStream) -> bool {
        if self.is_failing.load(Ordering::Relaxed) {
            return stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        let mut busy = self.changed.wait_while(self.busy.lock().unwrap(), |busy| *busy >= WORKERS).unwrap();
        *busy += 1;
        drop(busy);
        std::thread::sleep(Duration::from_millis(20)); // the work
        *self.busy.lock().unwrap() -= 1;
        self.changed.notify_one();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok()
    }

    pub fn start() -> (Arc<Self>, Upstream) {
        let service = Arc::<Self>::default();
        let answering = Arc::clone(&service);
        (service, Upstream::answering(move |_, stream| answering.answer(stream)))
    }

    /// Runs `test` while 24 clients of `weir` ask again and again, 200 ms after a refusal. Returns the answers of the
    /// service.
    pub fn under_load(weir: &Weir, test: impl FnOnce()) -> usize {
        let address = weir.address();
        let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    let mut client = Client::connect(address);
                    while !is_over.load(Ordering::Relaxed) {
                        match client.get("/").status {
                            200 => _ = answered.fetch_add(1, Ordering::Relaxed),
                            429 | 502 | 503 => std::thread::sleep(Duration::from_millis(200)),
                            other => panic!("{other}"),
                        }
                    }
                });
            }
            let _ends = SetOnDrop(&is_over);
            test();
        });
        answered.into_inner()
    }
}

/// The bound rises to the workers, falls while the service fails, and returns. The page and a reload show it.
#[test]
fn the_bound_follows_the_service() {
    let (service, upstream) = SlowService::start();
    let limit = |ceiling: u64| {
        format!(
            "[[limit]]\nname = 'a'\nkey = []\nalgorithm = 'concurrency'\nmax = 'auto'\nfloor = 2\nceiling = {ceiling}"
        )
    };
    let weir = Weir::start(&upstream, &limit(64));
    let bound = "weir_limit_bound{limit=\"a\"}";
    assert!((2.0..=3.0).contains(&weir.metric(bound)));
    let answered = SlowService::under_load(&weir, || {
        weir.wait_for_metric(bound, |units| units >= 4.0);
        service.is_failing.store(true, Ordering::Relaxed);
        weir.wait_for_metric(bound, |units| units <= 3.0);
        service.is_failing.store(false, Ordering::Relaxed);
        weir.wait_for_metric(bound, |units| units >= 4.0);
        let ask = "GET /limit?name=a HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let page = Client::connect(weir.admin()).send(ask).answer().text();
        assert!(page.contains("max auto from 2 to 64, concurrency, now "), "{page}");
    });
    assert!(answered > 50, "{answered}");
    let known = weir.metric(bound);
    std::fs::write(weir.config_file(), Weir::config(&upstream, "", &limit(50))).unwrap();
    weir.signal("HUP");
    weir.wait_for_lines("\"reloaded\"", 1);
    assert!((weir.metric(bound) - known).abs() <= 1.0, "{known}");
}
