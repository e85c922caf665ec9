//! Responses of Weir itself over HTTP/1.

use std::future::poll_fn;
use std::task::Poll;

use super::connection::{AfterResponse, H1Connection};
use crate::transport::proxy::access_record::AccessRecord;
use crate::transport::proxy::answer::{self, ResponseForm};
use crate::transport::proxy::context::{NotForwarded, RequestContext};
use crate::transport::respond::Reply;

impl<'w> H1Connection<'w> {
    /// Writes a response of Weir, unless the client has left.
    pub(super) async fn respond(
        &mut self,
        context: &RequestContext<'_>,
        not_forwarded: NotForwarded<'_>,
        form: ResponseForm,
        mut record: AccessRecord<'_>,
    ) -> AfterResponse<'w> {
        match not_forwarded {
            NotForwarded::Reply(mut own) => {
                context.name(&mut own, &mut record);
                self.reply(context, &*own, form, record).await
            }
            NotForwarded::Stored(mut stored) => {
                context.name_stored(&mut stored, &mut record);
                // Boxed, so that connections are smaller.
                Box::pin(self.send_stored(context, &stored, form, record)).await
            }
            NotForwarded::OwnLimits(own) => self.reply(context, &*own, form, record).await,
            NotForwarded::Abandoned => AfterResponse::Close,
        }
    }

    /// Writes a response of Weir.
    pub(super) async fn reply(
        &mut self,
        context: &RequestContext<'_>,
        own: &impl Reply,
        form: ResponseForm,
        mut record: AccessRecord<'_>,
    ) -> AfterResponse<'w> {
        let keeps_alive = self.keeps_alive(form) && !own.closes();
        let Self { wire, memory, deadline, .. } = self;
        wire.give_back(memory);
        let keeps_alive = keeps_alive && wire.skip_body();
        let (profiles, answered_at) = (context.config.running.settings.profiles, context.lately());
        let body = answer::write_own_h1(wire.out(), own, form, profiles, context.date(answered_at), keeps_alive);
        record.replied(own, body);
        drop(record);
        let by = answered_at + context.config.timeouts.body_idle;
        let flushed = poll_fn(|cx| match wire.poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed.is_ok()),
            Poll::Pending => deadline.poll(cx, by).map(|()| false),
        });
        match (flushed.await, keeps_alive) {
            (false, _) => AfterResponse::Close,
            (true, true) => AfterResponse::Next(answered_at),
            (true, false) => AfterResponse::Linger,
        }
    }
}
