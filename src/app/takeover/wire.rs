//! What two processes say to each other, over a Unix socket that also carries sockets.
//!
//! A frame is its kind in a byte, its length in four (little-endian), and so many bytes: a message in JSON, or a piece of
//! the state. With a message there may be one socket. Fields that are not known are left out of account, so that a later
//! version can say more.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::Uid;
use serde::{Deserialize, Serialize};

/// Which of these messages there are. A process that speaks another takes nothing over.
pub(super) const PROTOCOL: u32 = 1;

/// How long either side waits for the next word of the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What is said, in about this order.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// By both: who speaks.
    Hello { protocol: u32, version: String },
    /// Nothing is given, or taken. If the old process is shutting down (`is_ending`), it keeps the connection open until
    /// it has ended.
    Refused {
        why: String,
        #[serde(default)]
        is_ending: bool,
    },
    /// A socket comes with this. Those of one group are of one place.
    Socket { group: usize, purpose: Purpose, configured: String, has_file: bool },
    /// What was fetched from a URL, so that tokens can be checked from the first request on.
    Keys { url: String, jwks: String },
    /// Nothing more to prepare with.
    Prepare,
    /// By the new one: it needs nothing but the state, and has use for these groups.
    Prepared { groups: Vec<usize> },
    /// The state has been sent whole.
    StateEnd,
    /// By the new one: it has the state.
    Taken,
    /// The sockets are its own from here on.
    Yours,
    /// By the new one: it accepts.
    Serving,
    /// A charge that the old one has made since.
    Charged { limit: String, key: (u64, u64), plan: Option<String>, units: i64 },
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::app) enum Purpose {
    Requests,
    Operators,
    Takeover,
}

/// What is heard.
#[derive(Debug)]
pub(super) enum Heard {
    Message(Message, Option<OwnedFd>),
    /// A piece of the state.
    Piece(Vec<u8>),
}

const MESSAGE: u8 = 1;
const PIECE: u8 = 2;
/// A set of keys has at most 1 MiB, and escapes in JSON can double it several times.
const FRAME_BYTES_MAX: usize = 8 << 20;
const PIECE_BYTES: usize = 256 << 10;

/// One of the two ends.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    /// Whether a frame was not sent whole. What follows it would be taken for the rest of it.
    is_cut: bool,
}

impl Channel {
    /// Over `stream`, if whoever is at its other end may: the same user, or root.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let peer = socket_peercred(&stream)?.uid;
        if may_take_part(peer, rustix::process::geteuid()) {
            Ok(Self { stream, is_cut: false })
        } else {
            Err(io::Error::new(ErrorKind::PermissionDenied, format!("it runs as another user, {}", peer.as_raw())))
        }
    }

    /// Waits until the other process closes the connection.
    pub(super) fn wait_for_end(&mut self) {
        if self.wait_forever().is_ok() {
            let mut ignored = [0; 256];
            while self.stream.read(&mut ignored).is_ok_and(|read| read > 0) {}
        }
    }

    /// The process at the other end, as the kernel says.
    pub(super) fn peer(&self) -> io::Result<u32> {
        Ok(socket_peercred(&self.stream)?.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Waits for the other's next word for as long as there is one at the other end.
    pub(super) fn wait_forever(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }

    pub(super) fn say(&mut self, message: &Message) -> io::Result<()> {
        self.send(MESSAGE, &serde_json::to_vec(message)?, None)
    }

    /// Says something and gives a socket with it.
    pub(super) fn give(&mut self, message: &Message, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.send(MESSAGE, &serde_json::to_vec(message)?, Some(socket))
    }

    fn send(&mut self, kind: u8, payload: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if self.is_cut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.is_cut = true;
        self.send_frame(kind, payload, socket)?;
        self.is_cut = false;
        Ok(())
    }

    fn send_frame(&mut self, kind: u8, payload: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let mut frame = vec![kind];
        frame.extend(length.to_le_bytes());
        frame.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets = socket.map(|socket| [socket]);
        if let Some(sockets) = &sockets
            && !control.push(SendAncillaryMessage::ScmRights(sockets))
        {
            return Err(io::Error::other("no room for a socket"));
        }
        let sent = retry_on_intr(|| sendmsg(&self.stream, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL))?;
        self.stream.write_all(frame.get(sent..).unwrap_or_default())
    }

    /// The next message or piece of the other process. A refusal by a process that is shutting down counts as its end, and
    /// is waited for. [`is_gone`] tells whether an error means that the other process has ended.
    pub(super) fn hear(&mut self) -> io::Result<Heard> {
        let heard = self.hear_any()?;
        if let Heard::Message(Message::Refused { is_ending: true, .. }, _) = heard {
            self.wait_for_end();
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(heard)
    }

    fn hear_any(&mut self) -> io::Result<Heard> {
        let mut head = [0; 5];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            recvmsg(self.stream.as_fd(), &mut [IoSliceMut::new(&mut head)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut socket = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                socket = sockets.last();
            }
        }
        self.stream.read_exact(head.get_mut(received.bytes..).unwrap_or_default())?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other("it says more than it may"));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        match kind {
            MESSAGE => Ok(Heard::Message(serde_json::from_slice(&payload)?, socket)),
            PIECE => Ok(Heard::Piece(payload)),
            _ => Err(io::Error::other("it says something unknown")),
        }
    }

    /// What the other says next, if that is not a refusal. Its words are the error then.
    pub(super) fn hear_message(&mut self) -> io::Result<Message> {
        match self.hear()? {
            Heard::Message(Message::Refused { why, .. }, _) => Err(io::Error::other(why)),
            Heard::Message(message, _) => Ok(message),
            Heard::Piece(_) => Err(unexpected()),
        }
    }
}

/// Root could do all of this to any process; nobody else may to another user's.
fn may_take_part(peer: Uid, own: Uid) -> bool {
    peer.is_root() || peer == own
}

/// It does not keep to the order.
pub(super) fn unexpected() -> io::Error {
    io::Error::other("it says something that is not its turn")
}

/// Whether the other has ended, and not only failed to answer.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Sends what is written to it as pieces.
pub(super) struct Pieces<'c>(pub(super) &'c mut Channel);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        self.0.send(PIECE, piece, None)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the pieces that come, up to the end of the state.
pub(super) struct Joined<'c> {
    channel: &'c mut Channel,
    piece: Vec<u8>,
    read: usize,
    has_ended: bool,
    /// Why no more comes: whoever reads may take that for the end of the state.
    failed: Option<io::Error>,
}

impl<'c> Joined<'c> {
    pub(super) fn new(channel: &'c mut Channel) -> Self {
        Self { channel, piece: Vec::new(), read: 0, has_ended: false, failed: None }
    }

    /// Why reading failed, if it was for want of pieces.
    pub(super) fn failed(self) -> Option<io::Error> {
        self.failed
    }

    fn next(&mut self) -> io::Result<()> {
        match self.channel.hear()? {
            Heard::Piece(piece) => (self.piece, self.read) = (piece, 0),
            Heard::Message(Message::StateEnd, _) => self.has_ended = true,
            Heard::Message(Message::Refused { why, .. }, _) => return Err(io::Error::other(why)),
            Heard::Message(..) => return Err(unexpected()),
        }
        Ok(())
    }
}

impl Read for Joined<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() && !self.has_ended {
            if let Err(error) = self.next() {
                self.failed = Some(error);
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        let mut left = self.piece.get(self.read..).unwrap_or_default();
        let read = left.read(into)?;
        self.read += read;
        Ok(read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on says so
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn ends() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one).unwrap(), Channel::new(other).unwrap())
    }

    #[test]
    fn words_and_sockets_arrive_in_order() {
        let (mut one, mut other) = ends();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let about = Message::Socket {
            group: 3,
            purpose: Purpose::Operators,
            configured: "127.0.0.1:0".to_owned(),
            has_file: false,
        };
        one.give(&about, socket.as_fd()).unwrap();
        one.say(&Message::Prepare).unwrap();
        let Heard::Message(Message::Socket { group: 3, purpose: Purpose::Operators, .. }, Some(given)) =
            other.hear().unwrap()
        else {
            unreachable!("it was another")
        };
        assert_eq!(TcpListener::from(given).local_addr().unwrap(), socket.local_addr().unwrap());
        assert!(matches!(other.hear().unwrap(), Heard::Message(Message::Prepare, None)));
        one.say(&Message::Refused { why: "no".to_owned(), is_ending: false }).unwrap();
        assert_eq!(other.hear_message().unwrap_err().to_string(), "no");
        drop(one);
        assert!(is_gone(&other.hear().unwrap_err()));
        assert_eq!(other.peer().unwrap(), std::process::id());
    }

    #[test]
    fn a_state_of_any_length_arrives_whole() {
        for length in [0, 1, PIECE_BYTES, 5 * PIECE_BYTES + 7] {
            let (mut one, mut other) = ends();
            let state: Vec<u8> = (0_u32..).map(|number| number.to_le_bytes()[0]).take(length).collect();
            let sent = state.clone();
            let sending = std::thread::spawn(move || {
                Pieces(&mut one).write_all(&sent).unwrap();
                one.say(&Message::StateEnd).unwrap();
                one.say(&Message::Yours).unwrap();
            });
            let mut read = Vec::new();
            Joined::new(&mut other).read_to_end(&mut read).unwrap();
            assert!(read == state, "{length}");
            assert!(matches!(other.hear_message(), Ok(Message::Yours)));
            sending.join().unwrap();
        }
    }

    #[test]
    fn a_refusal_at_shutdown_is_an_end_that_is_waited_for() {
        let (mut one, mut other) = ends();
        one.say(&Message::Refused { why: "it is shutting down".to_owned(), is_ending: true }).unwrap();
        let (heard, waits) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || heard.send(is_gone(&other.hear().unwrap_err())));
        // Shorter than PATIENCE: only the end of the other process is waited for.
        assert!(waits.recv_timeout(Duration::from_millis(20)).is_err());
        drop(one);
        assert!(waits.recv().unwrap());
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn nonsense_is_an_error() {
        let cases: [&[u8]; 4] =
            [&[MESSAGE, 255, 255, 255, 255], &[MESSAGE, 2, 0, 0, 0, b'{', b'}'], &[9, 0, 0, 0, 0], &[MESSAGE, 1, 0]];
        for bytes in cases {
            let (mut one, mut other) = ends();
            one.stream.write_all(bytes).unwrap();
            drop(one);
            assert!(other.hear().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn later_versions_may_say_more() {
        let text = br#"{"hello":{"protocol":7,"version":"9.0.0","and":"more"}}"#;
        assert!(matches!(serde_json::from_slice(text), Ok(Message::Hello { protocol: 7, .. })));
    }

    #[test]
    fn only_the_same_user_and_root_take_part() {
        let [root, one, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(may_take_part(root, one) && may_take_part(one, one) && may_take_part(root, root));
        assert!(!may_take_part(other, one) && !may_take_part(one, root));
    }
}
