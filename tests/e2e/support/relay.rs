//! A TCP proxy that fails on command: it delays, resets or forgets what a server and its clients send.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use weir::base::split_mix::{STEP, mix};

/// How a relay treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Bytes pass at once.
    Clear,
    /// Bytes of the server arrive this much later.
    Slow(Duration),
    /// Bytes of the server wait until this ends.
    Held,
    /// Connections are accepted, and bytes wait until this ends.
    Silent,
    /// Connections are reset as soon as they open.
    Reset,
    /// Connections are accepted, and end at the first byte of the client.
    Ended,
    /// A connection is reset at so many of a hundred pieces that the relay would pass on.
    Flapping(u64),
}

/// A relay in front of a server. Its threads end with the process.
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    server: SocketAddr,
    link: Mutex<Link>,
    changed: Condvar,
    /// Bytes of a client after which the answers on its connection are lost, and the link from then on.
    loses: Mutex<Option<(Vec<u8>, Link)>>,
    open: Mutex<HashMap<u64, Arc<Pair>>>,
    accepted: AtomicU64,
    /// Pieces that the relay has passed on, or reset a connection at, while it flapped.
    pieces: AtomicU64,
}

/// A connection of a client, and the relay's own connection to the server.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    is_reset: AtomicBool,
    is_mute: AtomicBool,
}

impl Relay {
    /// Starts a relay to `server`, with a clear link.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            server,
            link: Mutex::new(Link::Clear),
            changed: Condvar::new(),
            loses: Mutex::default(),
            open: Mutex::default(),
            accepted: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&accepting);
                let id = state.accepted.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || state.serve(id, client));
            }
        });
        Self { address, state }
    }

    /// The address of the relay.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as configurations write it, without TLS.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Sets how bytes pass from now on, on open connections too. `Reset` and `Ended` reset all of them.
    pub fn set(&self, link: Link) {
        *self.state.link.lock().unwrap() = link;
        self.state.changed.notify_all();
        if matches!(link, Link::Reset | Link::Ended) {
            self.reset();
        }
    }

    /// Loses all answers on the next connection whose client sends `words` in one piece, from these words on. The link is
    /// `then` by the time the server gets them; open connections stay.
    pub fn lose_answers(&self, words: &str, then: Link) {
        *self.state.loses.lock().unwrap() = Some((words.as_bytes().to_vec(), then));
    }

    /// Resets all open connections once.
    pub fn reset(&self) {
        for pair in self.state.open.lock().unwrap().values() {
            pair.reset();
        }
        self.state.changed.notify_all();
    }

    /// Connections that clients have opened so far.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Relaxed)
    }
}

impl State {
    fn link(&self) -> Link {
        *self.link.lock().unwrap()
    }

    fn serve(self: Arc<Self>, id: u64, mut client: TcpStream) {
        if self.link() == Link::Ended {
            let _ = client.read(&mut [0]);
            return;
        }
        // A reset relay closes its client's connection with a reset too.
        let server = if self.link() == Link::Reset { None } else { TcpStream::connect(self.server).ok() };
        let Some(server) = server else { return close_by_reset(&client) };
        for socket in [&client, &server] {
            socket.set_nodelay(true).unwrap();
        }
        let pair = Arc::new(Pair { client, server, is_reset: AtomicBool::new(false), is_mute: AtomicBool::new(false) });
        self.open.lock().unwrap().insert(id, Arc::clone(&pair));
        thread::scope(|scope| {
            scope.spawn(|| self.copy(&pair, &pair.server, &pair.client));
            self.copy(&pair, &pair.client, &pair.server);
        });
        self.open.lock().unwrap().remove(&id);
    }

    /// Copies bytes to the end of the stream, each when it is due.
    fn copy(&self, pair: &Pair, mut from: &TcpStream, to: &TcpStream) {
        let (send, due) = channel();
        let is_answer = std::ptr::eq(from, &raw const pair.server);
        thread::scope(|scope| {
            scope.spawn(|| self.write(pair, due, to));
            let mut bytes = vec![0; 1 << 16];
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                if is_answer && pair.is_mute.load(Ordering::Acquire) {
                    continue;
                }
                if self.breaks_now() {
                    pair.reset();
                    self.changed.notify_all();
                    break;
                }
                if !is_answer {
                    self.lose(pair, &bytes[..len]);
                }
                let delay = match self.link() {
                    Link::Slow(delay) if is_answer => delay,
                    _ => Duration::ZERO,
                };
                let _ = send.send((Instant::now() + delay, bytes[..len].to_vec()));
            }
            drop(send);
        });
        if !pair.is_reset.load(Ordering::Relaxed) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    /// Whether the link resets a connection at this piece: by turns that are the same in each run.
    fn breaks_now(&self) -> bool {
        let Link::Flapping(percent) = self.link() else { return false };
        let piece = self.pieces.fetch_add(1, Ordering::Relaxed);
        mix(piece.wrapping_mul(STEP)) % 100 < percent
    }

    /// Loses the answers of `pair` if its client sends the words for it.
    fn lose(&self, pair: &Pair, bytes: &[u8]) {
        let mut loses = self.loses.lock().unwrap();
        let is_next = |(words, _): &mut (Vec<u8>, Link)| bytes.windows(words.len()).any(|found| found == &words[..]);
        if let Some((_, then)) = loses.take_if(is_next) {
            pair.is_mute.store(true, Ordering::Release);
            *self.link.lock().unwrap() = then;
        }
    }

    fn write(&self, pair: &Pair, due: Receiver<(Instant, Vec<u8>)>, mut to: &TcpStream) {
        let is_open = |_: &mut Link| !pair.is_reset.load(Ordering::Relaxed);
        let is_answer = std::ptr::eq(to, &raw const pair.client);
        let waits = |link: &mut Link| *link == Link::Silent || (*link == Link::Held && is_answer);
        for (at, bytes) in due {
            let delay = at.saturating_duration_since(Instant::now());
            let link = self.link.lock().unwrap();
            let (link, _) = self.changed.wait_timeout_while(link, delay, is_open).unwrap();
            drop(self.changed.wait_while(link, |link| waits(link) && is_open(link)).unwrap());
            if pair.is_reset.load(Ordering::Relaxed) || to.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

impl Pair {
    fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
        close_by_reset(&self.client);
        close_by_reset(&self.server);
    }
}

/// Lets the last close of a socket send a reset, and ends its reads, so that it is closed soon.
fn close_by_reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Read);
}
