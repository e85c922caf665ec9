//! One request over HTTP/1: on a connection of its own, which nobody drives but the request.

use std::task::{Context, Poll, ready};

use super::connection::Connection;
use super::lease::Origin;
use super::outcome::closed;
use super::upload::{Sent, Upload};
use super::way::replace_host;
use super::way::{Broken, Cause, Lost, PIECE_MAX, Progress};
use crate::http1::encode::Encoder;
use crate::http1::{self, Decoder, ResponseHead, Step};
use crate::net::buffer::{Buffers, Out};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct WayH1 {
    /// None once it was given back.
    pub(super) connection: Option<Box<Connection>>,
    pub(super) decoder: Decoder,
}

impl WayH1 {
    /// One on a connection that has the head of the request.
    pub(super) fn new(connection: Box<Connection>) -> Self {
        Self { connection: Some(connection), decoder: Decoder::none() }
    }

    /// Puts the same head on another connection.
    pub(super) fn reopen(&mut self, head: Out, mut connection: Box<Connection>, origin: &Origin, request: Sent) {
        connection.out = head;
        connection.out.rewind();
        if request.has_own_host {
            replace_host(connection.out.bytes(), origin.host());
        }
        self.connection = Some(connection);
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: Sent,
        upload: &Upload,
        buffers: &Buffers,
    ) -> Poll<Result<ResponseHead, Lost>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Err(Lost::gone())) };
        loop {
            let Connection { input, spans, .. } = &mut **connection;
            if !input.is_empty() {
                match http1::parse(input.unread_mut(), request.is_head, spans) {
                    Ok(Some(head)) => {
                        self.decoder = Decoder::of_response(head.framing);
                        return Poll::Ready(Ok(head));
                    }
                    Ok(None) => {}
                    Err(fault) => return Poll::Ready(Err(Lost::Malformed(fault))),
                }
            }
            let error = match ready!(connection.input.poll_fill(cx, &mut connection.stream, buffers)) {
                Ok(1..) => continue,
                Ok(0) => closed(),
                Err(error) => error,
            };
            return Poll::Ready(Err(Lost::Broken(Broken {
                error,
                // A fresh connection that breaks off says something about its endpoint, an old one need not.
                was_idle: connection.idle_since.take().is_some(),
                may_repeat: (request.may_repeat || !upload.is_touched) && connection.input.is_empty(),
                may_help: false,
            })));
        }
    }

    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        buffers: &Buffers,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        let before = out.len();
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        loop {
            match self.decoder.next(connection.input.unread()) {
                Step::Data { skipped, len } => {
                    encoder.data(out, &connection.input.unread()[skipped..skipped + len]);
                    connection.input.consume(skipped + len);
                    progress.bytes += len as u64;
                    if out.len() - before >= PIECE_MAX {
                        return Poll::Ready(Ok(true));
                    }
                }
                Step::End(len) => {
                    connection.input.consume(len);
                    encoder.end(out, self.decoder.trailers());
                    return Poll::Ready(Ok(false));
                }
                Step::Broken(_) => return Poll::Ready(Err("the framing of a chunk")),
                Step::More => {
                    connection.input.consume(connection.input.unread().len());
                    if out.len() > before {
                        return Poll::Ready(Ok(true));
                    }
                    match ready!(connection.input.poll_fill(cx, &mut connection.stream, buffers)) {
                        Ok(1..) => progress.has_moved = true,
                        Ok(0) if self.decoder.end() => {}
                        Ok(0) => return Poll::Ready(Err("the connection ended")),
                        Err(_) => return Poll::Ready(Err("the connection broke")),
                    }
                }
            }
        }
    }
}
