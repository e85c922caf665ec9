//! The old process ends at every moment of a hand-over. There is always a Weir afterwards.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::{Place, fails, left, status};
use crate::ops::until;
use crate::support::{Client, PATIENCE, Weir};

const BUDGET: &str = "[[limit]]\nname = \"spent\"\nkey = []\nrate = \"100/day\"\n";

/// A frame and the socket that came with it.
struct Frame {
    bytes: Vec<u8>,
    socket: Option<OwnedFd>,
}

impl Frame {
    /// The next frame; none at the end.
    fn read(from: &mut UnixStream) -> Option<Self> {
        let mut bytes = vec![0; 5];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(from.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).ok()?.bytes;
        let socket = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        if received == 0 {
            return None;
        }
        from.read_exact(&mut bytes[received..]).ok()?;
        let length = u32::from_le_bytes(bytes[1..].try_into().unwrap()) as usize;
        bytes.resize(5 + length, 0);
        from.read_exact(&mut bytes[5..]).ok()?;
        Some(Self { bytes, socket })
    }

    fn write(&self, to: &mut UnixStream) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets = self.socket.as_ref().map(|socket| [socket.as_fd()]);
        if let Some(sockets) = &sockets {
            assert!(control.push(SendAncillaryMessage::ScmRights(sockets)));
        }
        if let Ok(sent) = sendmsg(to.as_fd(), &[IoSlice::new(&self.bytes)], &mut control, SendFlags::NOSIGNAL) {
            let _ = to.write_all(&self.bytes[sent..]);
        }
    }
}

/// Stands between two processes that hand over. Once it has passed on so many frames, the old process gets a signal.
struct Relay {
    left: Mutex<Option<usize>>,
    old: Mutex<Option<Weir>>,
    signal: &'static str,
}

impl Relay {
    /// Whether one more frame passes. Sends the signal if that was the last one.
    fn may_pass(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        match left.as_mut() {
            Some(0) if self.signal == "KILL" => {
                if let Some(old) = self.old.lock().unwrap().take() {
                    old.signal("KILL");
                    old.wait();
                }
                return false;
            }
            Some(0) => {
                self.old.lock().unwrap().as_ref().unwrap().signal(self.signal);
                *left = None;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        true
    }

    fn pass(&self, mut from: UnixStream, mut to: UnixStream) {
        while let Some(frame) = Frame::read(&mut from).filter(|_| self.may_pass()) {
            frame.write(&mut to);
        }
        for end in [from, to] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Passes on the words of the process that connects to `at` and the one at `old`.
    fn run(&self, at: UnixListener, old: &Path) {
        let new = at.accept().unwrap().0;
        close(at);
        let old = UnixStream::connect(old).unwrap();
        let (new_too, old_too) = (new.try_clone().unwrap(), old.try_clone().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| self.pass(new_too, old_too));
            self.pass(old, new);
        });
    }
}

/// Closes a socket so that nobody can connect to it any more. A process that another test starts has a copy of it until
/// its `exec`.
fn close(listener: UnixListener) {
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
    drop(listener);
}

/// Two addresses and a path to listen on, beside the socket for take-overs.
fn config(place: &Place, [requests, operators]: [SocketAddr; 2], takeover: &Path) -> String {
    let unix = place.folder.path().join("weir.sock");
    let config = place.config("").replace(place.socket().to_str().unwrap(), takeover.to_str().unwrap());
    let config = config.replacen("\"127.0.0.1:0\"", &format!("[\"{requests}\", \"unix:{}\"]", unix.display()), 1);
    config.replacen("127.0.0.1:0", &operators.to_string(), 1)
}

const ANY: [SocketAddr; 2] = [SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)); 2];

/// Whether a Weir answers wherever the old one did.
fn answers(weir: &Weir, place: &Place, [requests, operators]: [SocketAddr; 2]) {
    assert_eq!((weir.address(), weir.admin()), (requests, operators));
    // One that drains may have the connection still.
    until("it is ready", || Client::connect(operators).get("/readyz").status == 200);
    assert_eq!(status(weir, "/"), 200);
    let stream = UnixStream::connect(place.folder.path().join("weir.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(Client::over(stream).get("/").status, 200);
}

/// The old process gets `signal` when `frames` frames have passed. Whether there were more.
fn succeeds(frames: usize, signal: &'static str) -> bool {
    let place = Place::new(BUDGET);
    let old = Weir::start_as(&config(&place, ANY, &place.socket()));
    let addresses = [old.address(), old.admin()];
    assert_eq!(left(&old, "/"), Some(99));
    let at = place.folder.path().join("relay.sock");
    let listener = UnixListener::bind(&at).unwrap();
    let relay = Relay { left: Mutex::new(Some(frames)), old: Mutex::new(Some(old)), signal };
    let socket = place.socket();
    let new = thread::scope(|scope| {
        scope.spawn(|| relay.run(listener, &socket));
        let new = Weir::start_as(&config(&place, addresses, &at));
        answers(&new, &place, addresses);
        new
    });
    let ends = ["\"took over\"", "the predecessor ended during the takeover", "without a handover"];
    let line = new.wait_for("the end of the takeover", || {
        new.lines().into_iter().find(|line| ends.iter().any(|end| line.contains(end)))
    });
    let has_state = line.contains(ends[0]) || line.contains("\"has_state\":true");
    // It was asked twice above, and once before if it knows of that.
    assert_eq!(left(&new, "/"), Some(if has_state { 96 } else { 97 }), "after {frames} frames");
    let old = relay.old.into_inner().unwrap();
    let is_signalled = old.is_none() || relay.left.into_inner().unwrap().is_none();
    assert!(old.is_none_or(|old| old.wait() == Some(0)));
    answers(&new, &place, addresses);
    is_signalled
}

#[test]
fn a_weir_answers_if_the_old_one_is_killed_at_any_message() {
    let frames = (0..100).take_while(|frames| succeeds(*frames, "KILL")).count();
    assert!((10..100).contains(&frames), "{frames}");
}

#[test]
fn a_weir_answers_if_the_old_one_is_stopped_at_any_message() {
    let frames = (0..100).take_while(|frames| succeeds(*frames, "TERM")).count();
    assert!((10..100).contains(&frames), "{frames}");
}

/// The successor freezes when it has everything, and asks only after the old process has resumed.
#[test]
fn a_successor_that_is_too_late_does_not_serve() {
    let place = Place::new(BUDGET);
    let old = Weir::start_as(&config(&place, ANY, &place.socket()));
    let addresses = [old.address(), old.admin()];
    let old = Mutex::new(old);
    let at = place.folder.path().join("relay.sock");
    let listener = UnixListener::bind(&at).unwrap();
    let (old_process, socket) = (&old, place.socket());
    thread::scope(|scope| {
        scope.spawn(move || {
            let new = listener.accept().unwrap().0;
            close(listener); // the successor binds this path
            let old_end = UnixStream::connect(socket).unwrap();
            let (mut from_new, mut to_old) = (new.try_clone().unwrap(), old_end.try_clone().unwrap());
            let (mut from_old, mut to_new) = (old_end, new);
            scope.spawn(move || {
                while let Some(frame) = Frame::read(&mut from_old) {
                    frame.write(&mut to_new);
                }
            });
            while let Some(frame) = Frame::read(&mut from_new) {
                if frame.bytes.ends_with(b"\"serving\"") {
                    old_process.lock().unwrap().wait_for_line("a takeover failed");
                }
                frame.write(&mut to_old);
            }
        });
        let said = fails(&config(&place, addresses, &at), 1);
        assert!(said.contains("cannot take over from the running process, which continues"), "{said}");
    });
    let old = old.into_inner().unwrap();
    answers(&old, &place, addresses);
    assert_eq!(left(&old, "/"), Some(97));
}

#[test]
fn a_weir_answers_if_the_old_one_is_killed_at_any_time() {
    let place = Place::new(BUDGET);
    let mut weir = Weir::start_as(&config(&place, ANY, &place.socket()));
    let addresses = [weir.address(), weir.admin()];
    for delay_ms in (0..=60).step_by(5) {
        let old = weir;
        let pid = old.pid().to_string();
        let killing = thread::spawn(move || {
            // This waits for nothing: the time of the kill is the case under test.
            thread::sleep(Duration::from_millis(delay_ms));
            old.signal("KILL");
            old.wait();
        });
        weir = Weir::start_as(&config(&place, addresses, &place.socket()));
        answers(&weir, &place, addresses);
        killing.join().unwrap_or_else(|_| panic!("{pid} after {delay_ms} ms"));
        answers(&weir, &place, addresses);
    }
}
