//! A TLS session on a client's socket.
//!
//! Records are opened and sealed in buffers of the worker, so that an idle connection holds none.
//!
//! Not here: the choice of the certificate, and the meaning of the bytes.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::ConnectionState;
use rustls::{ProtocolVersion, ServerConfig};
use tokio::io::Interest;

use super::acme::asks_for_challenge;
use super::certificate::ALPN_H2;
use super::names;
use super::sealed::Sealed;
use super::server::ServerTls;
use crate::base::opaque::opaque_debug;
use crate::engine::policy::Certificate;
use crate::transport::net::buffer::{BufferPool, InputBuffer, OutputBuffer, PENDING_MAX, Writable};
use crate::transport::net::socket::{ReadHalf, Socket};

/// Bytes of incomplete handshake messages; the bound that rustls has for its own buffers.
const UNOPENED_MAX: usize = 64 * 1024;

/// A socket with a TLS session.
pub(crate) struct TlsStream {
    socket: Socket,
    session: Session,
}

struct Session {
    tls: UnbufferedServerConnection,
    /// Bytes of incomplete records.
    records: InputBuffer,
    sealed: Sealed,
    /// Plain bytes that came with the end of the handshake.
    early: InputBuffer,
    /// The client sends no more.
    has_ended: bool,
    /// The client violated the protocol. The session may only send its alert.
    is_broken: bool,
}

/// The reason why there is no session.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The client closed the connection without a byte, as port scans and health checks do.
    NoData,
    /// The connection was for the validation of an ACME challenge, and has ended.
    Challenge,
    /// Any other reason.
    Failed(io::Error),
}

opaque_debug!(TlsStream);

impl TlsStream {
    /// Performs the handshake; `records` were received already.
    pub(crate) async fn accept(
        mut socket: Socket,
        mut records: InputBuffer,
        server: &ServerTls,
        buffers: &BufferPool,
    ) -> Result<Self, HandshakeError> {
        let mut challenges = server.acme().and_then(|acme| acme.challenges());
        if challenges.is_some() {
            let asks = asks_for_challenge(&mut socket, &mut records, buffers).await;
            challenges = challenges.filter(|_| asks);
        }
        let is_challenge = challenges.is_some();
        let config: Arc<ServerConfig> = challenges.unwrap_or_else(|| server.config());
        let tls = UnbufferedServerConnection::new(config).map_err(|error| HandshakeError::Failed(broken(error)))?;
        let (sealed, early) = Default::default();
        let mut stream =
            Self { socket, session: Session { tls, records, sealed, early, has_ended: false, is_broken: false } };
        let mut is_silent = stream.session.records.is_empty();
        if !is_silent {
            let opened = stream.session.open_early(buffers);
            // An alert may wait to be sent.
            poll_fn(|cx| stream.poll_flush(cx, buffers)).await.map_err(HandshakeError::Failed)?;
            opened.map_err(|error| HandshakeError::Failed(broken(error)))?;
        }
        while stream.session.tls.is_handshaking() {
            match poll_fn(|cx| stream.poll_handshake(cx, buffers)).await {
                Ok(0) if is_silent => return Err(HandshakeError::NoData),
                Ok(0) => return Err(HandshakeError::Failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => is_silent = false,
                Err(error) => return Err(HandshakeError::Failed(error)),
            }
            poll_fn(|cx| stream.poll_flush(cx, buffers)).await.map_err(HandshakeError::Failed)?;
        }
        if is_challenge {
            stream.close_notify(buffers);
            return Err(HandshakeError::Challenge);
        }
        Ok(stream)
    }

    /// Whether HTTP/2 was agreed on.
    pub(crate) fn is_h2(&self) -> bool {
        self.session.tls.alpn_protocol() == Some(ALPN_H2)
    }

    /// The name of the protocol version, as OpenSSL writes it.
    pub(crate) fn version(&self) -> &'static str {
        match self.session.tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "",
        }
    }

    /// The identity in the verified certificate of the client, if it has one.
    pub(crate) fn certificate(&self) -> Option<Certificate> {
        names::of_client(self.session.tls.peer_certificates()?.first()?)
    }

    /// The socket below the session.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads until there are plain bytes, and returns their number; 0 at the end of the stream.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        plain: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        self.session.poll_fill(cx, &mut self.socket.split().0, plain, buffers)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>, buffers: &BufferPool) -> Poll<io::Result<usize>> {
        let mut early = std::mem::take(&mut self.session.early);
        let read = self.session.poll_read(cx, &mut self.socket.split().0, &mut early, buffers);
        self.session.early = early;
        read
    }

    /// Sealed bytes that wait to be sent.
    pub(crate) fn pending(&self) -> usize {
        self.session.sealed.unsent().len()
    }

    /// Sends the sealed bytes; ready when none is left.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, buffers: &BufferPool) -> Poll<io::Result<()>> {
        let Self { socket, session: Session { sealed, .. } } = self;
        while !sealed.try_send(socket, buffers)? {
            ready!(socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Seals as much of `plain` as is sent at once, and returns its length. All sealed bytes must have been sent.
    pub(crate) fn seal(&mut self, plain: &[u8], buffers: &BufferPool) -> io::Result<usize> {
        let len = plain.len().min(PENDING_MAX);
        self.session.seal(Some(&plain[..len]), buffers)?;
        Ok(len)
    }

    /// Seals and sends until the socket accepts no more; ready when all of `out` is sent.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut OutputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(cx, buffers))?;
            if out.pending() == 0 {
                return Poll::Ready(Ok(()));
            }
            let len = self.seal(out.unsent(), buffers)?;
            out.advance(len);
        }
    }

    /// Sends `close_notify`, as far as the socket accepts it at once.
    pub(crate) fn close_notify(&mut self, buffers: &BufferPool) {
        let Self { socket, session } = self;
        if session.seal(None, buffers).is_ok() {
            let _ = session.sealed.try_send(socket, buffers);
        }
    }

    /// Waits until the client sends `close_notify`, closes its direction of the socket, or the connection is broken. Up
    /// to about `at_most` bytes are read into `input`; after that only the socket is watched.
    pub(crate) async fn gone(&mut self, input: &mut InputBuffer, at_most: usize, buffers: &BufferPool) {
        let Self { socket, session } = self;
        let (mut read, write) = socket.split();
        let mut closed = pin!(write.ready(Interest::PRIORITY));
        let gone = poll_fn(|cx| {
            if closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            while input.unread().len() < at_most {
                match ready!(session.poll_fill(cx, &mut read, input, buffers)) {
                    Ok(1..) => {}
                    _ => return Poll::Ready(()),
                }
            }
            Poll::Pending
        });
        gone.await;
    }
}

impl Session {
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut ReadHalf<'_>,
        plain: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        if !self.early.is_empty() {
            let len = self.early.unread().len();
            plain.extend(self.early.unread(), buffers);
            self.early.consume(len);
            self.early.release(buffers);
            return Poll::Ready(Ok(len));
        }
        if self.is_broken {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let before = plain.unread().len();
        while !self.has_ended {
            ready!(self.poll_read(cx, socket, plain, buffers))?;
            let filled = plain.unread().len() - before;
            if filled > 0 {
                return Poll::Ready(Ok(filled));
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Reads once and opens the records; 0 at the end of the stream. Holds no buffer while there is nothing to read.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut ReadHalf<'_>,
        plain: &mut InputBuffer,
        buffers: &BufferPool,
    ) -> Poll<io::Result<usize>> {
        let polled = if self.records.is_empty() && socket.poll_read_ready(cx)?.is_pending() {
            Poll::Pending
        } else {
            self.records.poll_fill(cx, socket, buffers)
        };
        if polled.is_pending() {
            self.records.release(buffers);
        }
        let len = ready!(polled)?;
        if len == 0 {
            self.has_ended = true;
            return Poll::Ready(Ok(0));
        }
        let opened = self.open(plain, buffers);
        // Replies to a handshake message or an alert. What is not sent now goes before all else.
        self.sealed.try_send(socket, buffers)?;
        opened.map_err(broken)?;
        if self.records.unread().len() >= UNOPENED_MAX {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(len))
    }

    /// Opens the bytes that came before the session began.
    fn open_early(&mut self, buffers: &BufferPool) -> Result<(), rustls::Error> {
        let mut early = std::mem::take(&mut self.early);
        let opened = self.open(&mut early, buffers);
        self.early = early;
        opened
    }

    /// Opens all complete records.
    fn open(&mut self, plain: &mut InputBuffer, buffers: &BufferPool) -> Result<(), rustls::Error> {
        let Self { tls, records, sealed, has_ended, is_broken, .. } = self;
        let mut failed = None;
        while failed.is_none() || tls.wants_write() {
            let status = tls.process_tls_records(records.unread_mut());
            let mut discard = status.discard;
            let mut is_done = false;
            match status.state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend(record.payload, buffers);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    sealed.put(buffers, |room| data.encode(room));
                }
                Ok(ConnectionState::TransmitTlsData(transmit)) => transmit.done(),
                Ok(ConnectionState::PeerClosed) => *has_ended = true,
                Ok(_) => is_done = true,
                // An alert may wait to be sent.
                Err(error) => is_done = failed.replace(error).is_some(),
            }
            records.consume(discard);
            if is_done {
                break;
            }
        }
        *is_broken = failed.is_some();
        failed.map_or(Ok(()), Err)
    }

    /// Seals `plain`, or `close_notify` if it is `None`.
    fn seal(&mut self, plain: Option<&[u8]>, buffers: &BufferPool) -> io::Result<()> {
        let Self { tls, records, sealed, .. } = self;
        if self.is_broken {
            return Err(io::ErrorKind::NotConnected.into());
        }
        loop {
            // No complete record is left, so that none is opened here.
            let status = tls.process_tls_records(records.unread_mut());
            let discard = status.discard;
            let is_done = match status.state {
                Ok(ConnectionState::WriteTraffic(mut state)) => {
                    let is_sealed = sealed.put(buffers, |room| match plain {
                        Some(plain) => state.encrypt(plain, room),
                        None => state.queue_close_notify(room),
                    });
                    if !is_sealed {
                        return Err(io::Error::other("the limit of the session key is reached"));
                    }
                    true
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    sealed.put(buffers, |room| data.encode(room));
                    false
                }
                Ok(ConnectionState::TransmitTlsData(transmit)) => {
                    transmit.done();
                    false
                }
                Ok(_) => return Err(io::ErrorKind::NotConnected.into()),
                Err(error) => {
                    self.is_broken = true;
                    return Err(broken(error));
                }
            };
            records.consume(discard);
            if is_done {
                return Ok(());
            }
        }
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
