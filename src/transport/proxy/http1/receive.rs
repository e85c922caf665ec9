//! Sends a request to its service, and waits for the head of the response.

use std::future::poll_fn;
use std::task::Poll;

use super::relay::write_interim;
use super::wire::Wire;
use crate::transport::net::deadline::Deadline;
use crate::transport::proxy::access_record::AccessRecord;
use crate::transport::proxy::admission::Admission;
use crate::transport::proxy::answer::ResponseForm;
use crate::transport::proxy::forward::ForwardedHead;
use crate::transport::proxy::upgrade;
use crate::transport::upstream::{Exchange, ExchangeError, ResponseEvent};

/// The reason why there is no response.
pub(super) enum ReceiveError {
    /// The client left.
    Gone,
    Exchange(ExchangeError),
}

/// Sends the request, and waits for the head of the response.
pub(super) async fn receive<'v>(
    wire: &mut Wire,
    exchange: &mut Exchange,
    form: ResponseForm,
    head: &ForwardedHead<'_, 'v>,
    (record, admission): (&mut AccessRecord<'_>, &mut Admission<'_>),
    deadline: &mut Deadline,
) -> Result<Option<&'v str>, ReceiveError> {
    loop {
        admission.identified.charged.commit(true);
        let arrived = poll_fn(|cx| {
            let polled = exchange.poll_head(cx, wire, deadline);
            if polled.is_pending() && wire.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(ReceiveError::Gone));
            }
            polled.map_err(ReceiveError::Exchange)
        });
        let arrived = arrived.await;
        admission.identified.charged.commit(exchange.is_touched());
        match arrived? {
            ResponseEvent::Final => return Ok(None),
            ResponseEvent::Switch => {
                return upgrade::confirm(head.admitted.upgrade.as_deref(), exchange)
                    .map(Some)
                    .map_err(ReceiveError::Exchange);
            }
            ResponseEvent::Retry => {
                let reopened = tokio::select! {
                    biased;
                    reopened = exchange.reopen(head) => reopened,
                    () = wire.gone() => return Err(ReceiveError::Gone),
                };
                reopened.map_err(ReceiveError::Exchange)?;
                record.sent(exchange);
            }
            ResponseEvent::Interim => write_interim(wire, exchange, form),
        }
    }
}
