//! Clients that ask again and again.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, PATIENCE, SetOnDrop};

/// The pause of clients after an answer where a trial takes none. The benchmark asks as often as it can.
pub const PAUSE: Duration = if cfg!(test) { Duration::from_millis(5) } else { Duration::ZERO };

/// What became of all requests so far.
#[derive(Default)]
pub struct Load {
    answered: AtomicU64,
    good: AtomicU64,
    /// Answers other than 200, and when their requests began.
    other: Mutex<Vec<(Instant, u16)>>,
    /// Connections that were refused, and requests without an answer.
    failed: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Load {
    /// Lets so many clients ask at `address` while `during` runs. Every second one connects anew for each request.
    /// Each pauses for `pause` after an answer.
    pub fn during<T>(
        address: SocketAddr,
        clients: usize,
        pause: Duration,
        during: impl FnOnce(&Self) -> T,
    ) -> (Self, T) {
        let load = Self::default();
        let result = std::thread::scope(|scope| {
            for client in 0..clients {
                let load = &load;
                scope.spawn(move || load.ask(address, pause, client.is_multiple_of(2)));
            }
            // Also if it panics, so that there is an end.
            let _over = SetOnDrop(&load.is_over);
            during(&load)
        });
        (load, result)
    }

    fn ask(&self, address: SocketAddr, pause: Duration, is_kept: bool) {
        while !self.is_over.load(Ordering::Relaxed) {
            let stream = match TcpStream::connect(address) {
                Ok(stream) => stream,
                Err(error) => return self.fail(format!("connecting: {error}")),
            };
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut client, mut last) = (Client::over(stream), Instant::now());
            loop {
                let began = Instant::now();
                match one(&mut client) {
                    Ok((status, is_last)) => {
                        self.answered(began, status);
                        last = Instant::now();
                        std::thread::sleep(pause);
                        if is_last || !is_kept || self.is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    Err(why) => {
                        // A Weir that drains ends a connection without requests after a second.
                        if began - last < Duration::from_millis(900) {
                            self.fail(why);
                        }
                        break;
                    }
                }
            }
        }
    }

    fn answered(&self, began: Instant, status: u16) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if status == 200 {
            self.good.fetch_add(1, Ordering::Relaxed);
        } else {
            self.other.lock().unwrap().push((began, status));
        }
    }

    fn fail(&self, why: String) {
        self.failed.lock().unwrap().push(why);
    }

    /// Answers so far.
    pub fn answers(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Answers of 200 so far.
    pub fn good(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }

    /// The statuses other than 200, and when their requests began.
    pub fn other(&self) -> Vec<(Instant, u16)> {
        self.other.lock().unwrap().clone()
    }

    /// Asserts that every request had an answer.
    pub fn assert_answered(&self) {
        let failed = self.failed.lock().unwrap();
        assert!(failed.is_empty(), "{} of {} requests: {:?}", failed.len(), self.answers(), failed.first());
    }

    /// Asserts that every request had an answer of 200.
    pub fn assert_good(&self) {
        self.assert_answered();
        assert_eq!(self.other().first(), None);
    }

    /// Waits for so many more answers of 200.
    pub fn wait_for(&self, more: u64) {
        let before = self.good();
        crate::ops::until("answers", || self.good() >= before + more);
    }
}

/// The status of one request, and whether its connection ends with it.
fn one(client: &mut Client) -> Result<(u16, bool), String> {
    let sent = client.stream().write_all(b"GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n");
    sent.map_err(|error| format!("sending: {error}"))?;
    let answer = client.try_answer().ok_or("no answer")?;
    let is_last = answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok((answer.status, is_last))
}
