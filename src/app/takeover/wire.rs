//! The protocol of a takeover, over a Unix socket that also carries sockets.
//!
//! A frame is one byte for its kind, four for its length (little-endian), and the payload: a message in JSON, or a
//! piece of the state. A message may carry one socket. Unknown fields are ignored, so that later versions can add
//! fields.

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

use crate::transport::upstream::orders::EndpointOrder;

/// The version of the protocol. Processes with different versions do not hand over.
pub(super) const PROTOCOL: u32 = 2;

/// The time in which each side must send its next message.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The messages, in the usual order.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// From both processes: version and protocol.
    Hello {
        protocol: u32,
        version: String,
        /// From the predecessor: the number under which other replicas know it.
        #[serde(default)]
        instance: Option<u64>,
        /// From the predecessor: the text of its overrides, if they are in memory.
        #[serde(default)]
        overrides: Option<Box<str>>,
        /// From the predecessor: the orders of operators about endpoints.
        #[serde(default)]
        orders: Vec<EndpointOrder>,
    },
    /// A refusal. A predecessor that is shutting down (`is_ending`) keeps the connection open until it has ended.
    Refused {
        why: String,
        #[serde(default)]
        is_ending: bool,
    },
    /// A socket. The sockets of one group have one address.
    Socket { group: usize, purpose: Purpose, configured: String, has_file: bool },
    /// A fetched key set, so that tokens can be verified from the first request on.
    Keys { url: String, jwks: String },
    /// All sockets and keys are sent.
    Prepare,
    /// From the successor: it lacks only the state, and uses these groups of sockets.
    Prepared { groups: Vec<usize> },
    /// The whole state is sent.
    StateEnd,
    /// From the successor: it has the state.
    Taken,
    /// The successor owns the sockets.
    Yours,
    /// From the successor: it is about to accept connections.
    Serving,
    /// From the predecessor: it accepts no more and cannot resume. Now the successor may accept.
    Committed,
    /// A charge that the predecessor made after `Committed`.
    Charged { limit: String, key: (u64, u64), plan: Option<String>, units: i64 },
}

/// The use of a socket.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::app) enum Purpose {
    Requests,
    Checks,
    Grpc,
    Fleet,
    Operators,
    Takeover,
}

/// A received frame.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message, Option<OwnedFd>),
    /// A piece of the state.
    Piece(Vec<u8>),
}

const MESSAGE: u8 = 1;
const PIECE: u8 = 2;
/// A key set has at most 1 MiB, and JSON escapes can double its length several times.
const FRAME_BYTES_MAX: usize = 8 << 20;
const PIECE_BYTES: usize = 256 << 10;

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    /// Whether the last frame was sent in part. The peer would read a further frame as its rest.
    is_cut: bool,
}

impl Channel {
    /// Uses `stream`, if the peer has the same user or is root.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STEP_TIMEOUT))?;
        stream.set_write_timeout(Some(STEP_TIMEOUT))?;
        let peer = socket_peercred(&stream)?.uid;
        if may_take_part(peer, rustix::process::geteuid()) {
            Ok(Self { stream, is_cut: false })
        } else {
            Err(io::Error::new(ErrorKind::PermissionDenied, format!("it runs as another user, {}", peer.as_raw())))
        }
    }

    /// Waits until the other process closes the connection.
    pub(super) fn wait_for_end(&mut self) {
        if self.clear_timeout().is_ok() {
            let mut ignored = [0; 256];
            while self.stream.read(&mut ignored).is_ok_and(|read| read > 0) {}
        }
    }

    /// The process id of the peer, by the kernel.
    pub(super) fn peer(&self) -> io::Result<u32> {
        Ok(socket_peercred(&self.stream)?.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Waits for messages without a timeout from now on.
    pub(super) fn clear_timeout(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }

    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_kind(MESSAGE, &serde_json::to_vec(message)?, None)
    }

    /// Sends a message with a socket.
    pub(super) fn send_with_socket(&mut self, message: &Message, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.send_kind(MESSAGE, &serde_json::to_vec(message)?, Some(socket))
    }

    fn send_kind(&mut self, kind: u8, payload: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
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
            return Err(io::Error::other("the socket does not fit the message"));
        }
        let sent = retry_on_intr(|| sendmsg(&self.stream, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL))?;
        self.stream.write_all(frame.get(sent..).unwrap_or_default())
    }

    /// The next message or piece of the peer. A refusal by a peer that is shutting down counts as its end: this waits
    /// for the end. [`is_gone`] tells whether an error means that the peer has ended.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        let received = self.receive_any()?;
        if let Received::Message(Message::Refused { is_ending: true, .. }, _) = received {
            self.wait_for_end();
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(received)
    }

    fn receive_any(&mut self) -> io::Result<Received> {
        self.receive_frame().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                io::Error::new(ErrorKind::TimedOut, format!("it has not answered for {} s", STEP_TIMEOUT.as_secs()))
            }
            _ => error,
        })
    }

    fn receive_frame(&mut self) -> io::Result<Received> {
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
            return Err(io::Error::other("a frame is too long"));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        match kind {
            MESSAGE => Ok(Received::Message(serde_json::from_slice(&payload)?, socket)),
            PIECE => Ok(Received::Piece(payload)),
            _ => Err(io::Error::other("a frame has an unknown kind")),
        }
    }

    /// The next message. A refusal is an error with its reason.
    pub(super) fn receive_message(&mut self) -> io::Result<Message> {
        match self.receive()? {
            Received::Message(Message::Refused { why, .. }, _) => Err(io::Error::other(why)),
            Received::Message(message, _) => Ok(message),
            Received::Piece(_) => Err(unexpected()),
        }
    }
}

/// Whether a process of the user `peer` may take over: only the same user and root may.
fn may_take_part(peer: Uid, own: Uid) -> bool {
    peer.is_root() || peer == own
}

/// The error for a message out of order.
pub(super) fn unexpected() -> io::Error {
    io::Error::other("a message is out of order")
}

/// Whether an error means that the peer has ended.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Sends written bytes as pieces of the state.
pub(super) struct StateWriter<'c>(pub(super) &'c mut Channel);

impl Write for StateWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        self.0.send_kind(PIECE, piece, None)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the pieces of the state up to its end.
pub(super) struct StateReader<'c> {
    channel: &'c mut Channel,
    piece: Vec<u8>,
    read: usize,
    has_ended: bool,
    /// The error of the connection. The reader of the state gets only the kind of an error.
    failed: Option<io::Error>,
}

impl<'c> StateReader<'c> {
    pub(super) fn new(channel: &'c mut Channel) -> Self {
        Self { channel, piece: Vec::new(), read: 0, has_ended: false, failed: None }
    }

    /// The error of the connection that ended the reading.
    pub(super) fn failed(self) -> Option<io::Error> {
        self.failed
    }

    fn next(&mut self) -> io::Result<()> {
        match self.channel.receive()? {
            Received::Piece(piece) => (self.piece, self.read) = (piece, 0),
            Received::Message(Message::StateEnd, _) => self.has_ended = true,
            Received::Message(Message::Refused { why, .. }, _) => return Err(io::Error::other(why)),
            Received::Message(..) => return Err(unexpected()),
        }
        Ok(())
    }
}

impl Read for StateReader<'_> {
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
        one.send_with_socket(&about, socket.as_fd()).unwrap();
        one.send(&Message::Prepare).unwrap();
        let Received::Message(Message::Socket { group: 3, purpose: Purpose::Operators, .. }, Some(given)) =
            other.receive().unwrap()
        else {
            unreachable!("it was another")
        };
        assert_eq!(TcpListener::from(given).local_addr().unwrap(), socket.local_addr().unwrap());
        assert!(matches!(other.receive().unwrap(), Received::Message(Message::Prepare, None)));
        one.send(&Message::Refused { why: "no".to_owned(), is_ending: false }).unwrap();
        assert_eq!(other.receive_message().unwrap_err().to_string(), "no");
        drop(one);
        assert!(is_gone(&other.receive().unwrap_err()));
        assert_eq!(other.peer().unwrap(), std::process::id());
    }

    #[test]
    fn a_state_of_any_length_arrives_whole() {
        for length in [0, 1, PIECE_BYTES, 5 * PIECE_BYTES + 7] {
            let (mut one, mut other) = ends();
            let state: Vec<u8> = (0_u32..).map(|number| number.to_le_bytes()[0]).take(length).collect();
            let sent = state.clone();
            let sending = std::thread::spawn(move || {
                StateWriter(&mut one).write_all(&sent).unwrap();
                one.send(&Message::StateEnd).unwrap();
                one.send(&Message::Yours).unwrap();
            });
            let mut read = Vec::new();
            StateReader::new(&mut other).read_to_end(&mut read).unwrap();
            assert!(read == state, "{length}");
            assert!(matches!(other.receive_message(), Ok(Message::Yours)));
            sending.join().unwrap();
        }
    }

    #[test]
    fn a_refusal_at_shutdown_is_an_end_that_is_waited_for() {
        let (mut one, mut other) = ends();
        one.send(&Message::Refused { why: "it is shutting down".to_owned(), is_ending: true }).unwrap();
        let (heard, waits) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || heard.send(is_gone(&other.receive().unwrap_err())));
        // Shorter than STEP_TIMEOUT: only the end of the other process is waited for.
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
            assert!(other.receive().is_err(), "{bytes:?}");
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
