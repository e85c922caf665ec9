//! A stream whose first bytes, the preface of HTTP/2, have been read. So a peer that sends nothing can be left.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::transport::http2::PREFACE;

/// A stream that yields the preface again.
pub(super) struct Prefaced<S> {
    stream: S,
    /// Bytes of the preface that were yielded.
    yielded: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prefaced<S> {
    /// Reads the preface.
    ///
    /// # Errors
    /// If the peer sends other bytes, or closes.
    pub(super) async fn read(mut stream: S) -> io::Result<Self> {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await?;
        if preface != *PREFACE {
            return Err(io::Error::new(ErrorKind::InvalidData, "the peer does not speak HTTP/2"));
        }
        Ok(Self { stream, yielded: 0 })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefaced<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let unread = PREFACE.get(self.yielded..).unwrap_or_default();
        if unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, into);
        }
        let piece = unread.get(..into.remaining()).unwrap_or(unread);
        into.put_slice(piece);
        self.yielded += piece.len();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefaced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
