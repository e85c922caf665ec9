//! The messages of one connection, in both directions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::hub::{Hub, Ticket};
use crate::engine::store::stream::message::Message;

/// The longest message. A part of the states has about 1 MB, unless a single key has more.
pub(super) const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// The messages to a peer, each made when the connection can take it.
pub(super) struct Outbound {
    hub: Arc<Hub>,
    joining: Joining,
}

enum Joining {
    /// The peer has not proved yet that it is a replica.
    Waiting(oneshot::Receiver<Ticket>),
    Joined(Ticket),
    Ended,
}

impl Outbound {
    /// The messages on a connection that has joined.
    pub(super) fn joined(hub: Arc<Hub>, ticket: Ticket) -> Self {
        Self { hub, joining: Joining::Joined(ticket) }
    }

    /// The messages on a connection that has joined once the ticket is sent.
    pub(super) fn joining(hub: Arc<Hub>) -> (Self, oneshot::Sender<Ticket>) {
        let (sender, ticket) = oneshot::channel();
        (Self { hub, joining: Joining::Waiting(ticket) }, sender)
    }
}

impl Stream for Outbound {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        if let Joining::Waiting(ticket) = &mut self.joining {
            let ticket = ready!(Pin::new(ticket).poll(cx));
            self.joining = ticket.map_or(Joining::Ended, Joining::Joined);
        }
        match self.joining {
            Joining::Joined(ticket) => self.hub.poll_message(ticket, cx),
            Joining::Waiting(_) | Joining::Ended => Poll::Ready(None),
        }
    }
}

/// The membership of a connection; over on drop.
pub(super) struct Membership {
    hub: Arc<Hub>,
    ticket: Ticket,
}

impl Membership {
    pub(super) fn new(hub: Arc<Hub>, ticket: Ticket) -> Self {
        Self { hub, ticket }
    }

    /// Takes messages of the peer until the connection ends.
    ///
    /// # Errors
    /// How the connection ended.
    pub(super) async fn receive_all(self, mut inbound: Streaming<Message>) -> Result<(), Status> {
        while let Some(message) = inbound.message().await? {
            if !self.hub.receive(self.ticket, &message) {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.hub.leave(self.ticket);
    }
}
