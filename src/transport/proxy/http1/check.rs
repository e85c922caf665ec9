//! A check on an HTTP/1 connection: reads the description of a request, and writes the decision.

use std::future::poll_fn;
use std::task::Poll;

use http::{Method, Uri};
use tokio::time::Instant;

use super::connection::{AfterResponse, H1Connection};
use super::wire::Wire;
use crate::base::time;
use crate::engine::gate::Budgets;
use crate::transport::http1::encode::Encoder;
use crate::transport::http1::{HeadFault, RequestHead};
use crate::transport::net::deadline::Deadline;
use crate::transport::proxy::access_record::AccessRecord;
use crate::transport::proxy::answer::ResponseForm;
use crate::transport::proxy::check::{BODY_BYTES_MAX, CheckBody, CheckForm, CheckTarget, DescribedRequest};
use crate::transport::proxy::context::{NotForwarded, RequestContext};
use crate::transport::proxy::replay::Replayed as _;
use crate::transport::proxy::request::Request;
use crate::transport::respond::{CheckReply, LocalReply, ProblemKind};
use crate::transport::upstream::{BodyFault, Source};

/// The detail of a 403.
const UNTRUSTED: &str = "the address of this peer is not in server.trusted_proxies";

impl<'w> H1Connection<'w> {
    /// Answers the check whose head is in `memory`.
    pub(super) async fn check(
        &mut self,
        context: &RequestContext<'_>,
        head: &RequestHead,
        mut record: AccessRecord<'_>,
    ) -> AfterResponse<'w> {
        let mut form = ResponseForm::unreadable();
        match self.decide_check(context, head, &mut form, &mut record).await {
            Ok(reply) => self.reply(context, &reply, form, record).await,
            Err(not_forwarded) => self.respond(context, not_forwarded, form, record).await,
        }
    }

    async fn decide_check<'v>(
        &mut self,
        context: &RequestContext<'v>,
        head: &RequestHead,
        form: &mut ResponseForm,
        record: &mut AccessRecord<'_>,
    ) -> Result<CheckReply<'v>, NotForwarded<'v>> {
        let Self { wire, memory, deadline, .. } = self;
        let mut uri = Uri::default();
        let Some(asked) = Request::of_h1(head, memory.bytes(), memory.fields(), &mut uri) else {
            return Err(context.refuse(HeadFault::Malformed("target")));
        };
        *form = ResponseForm::of(&asked);
        context.trace(asked.fields, record);
        record.spoken(asked.version);
        record.requested(&asked.method, asked.target.path, asked.fields);
        let rules = &context.config.running.live.policy.client_ip;
        if !rules.is_trusted(context.peer.ip) {
            return Err(context.problem(ProblemKind::UntrustedPeer, UNTRUSTED));
        }
        let target = CheckTarget::of(asked.target);
        let CheckTarget { form, refuse } = target.map_err(|(kind, detail)| context.problem(kind, detail))?;
        let Some(settings) = &context.config.running.settings.check else {
            return Err(context.problem(ProblemKind::NoRoute, "the configuration has no `[check]` any more"));
        };
        let bad = |detail| context.problem(ProblemKind::BadCheck, detail);
        match form {
            CheckForm::Headers => {
                let described = DescribedRequest::of_fields(asked.fields, settings.headers, rules, context.peer.ip);
                let decision = context.check(&described.map_err(bad)?, wire, record, None).await?;
                Ok(CheckReply::for_proxy(decision, refuse))
            }
            CheckForm::Json if asked.method != Method::POST => {
                Err(context.counted(LocalReply::method_refused("the method of /v1/check is POST", "POST")))
            }
            CheckForm::Json => {
                if asked.expects_continue() {
                    wire.expect_continue();
                }
                let by = context.began + context.config.timeouts.request_head;
                let bytes = read_body(wire, deadline, by).await;
                // The body took time, so the decision has an instant of its own.
                context.queried.set(true);
                let bytes = bytes.map_err(|(kind, detail)| context.problem(kind, detail))?;
                let body = CheckBody::read(&bytes).map_err(bad)?;
                let described = body.described().map_err(bad)?;
                let decided = RequestContext::new(context.worker, context.config, context.peer, time::instant_now());
                decided.trace(asked.fields, record);
                let mut budgets = Budgets::new();
                let decision = decided.check(&described, wire, record, Some(&mut budgets)).await?;
                Ok(CheckReply::in_json(decision, refuse, budgets))
            }
        }
    }
}

/// Reads the body of a check until `by`.
async fn read_body(
    wire: &mut Wire,
    deadline: &mut Deadline,
    by: Instant,
) -> Result<Vec<u8>, (ProblemKind, &'static str)> {
    let (mut body, mut piece, mut left) = (Vec::new(), Vec::new(), BODY_BYTES_MAX);
    loop {
        let read = poll_fn(|cx| match wire.poll_body(cx, &mut piece, &Encoder::Raw, &mut left) {
            Poll::Ready(read) => Poll::Ready(Some(read)),
            Poll::Pending => deadline.poll(cx, by).map(|()| None),
        });
        let read = read.await;
        body.append(&mut piece);
        match read {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Ok(body),
            Some(Err(BodyFault::TooLarge)) => return Err((ProblemKind::BodyTooLarge, "the body is too long")),
            Some(Err(BodyFault::Broken)) => {
                return Err((ProblemKind::Malformed, "the body is incomplete or malformed"));
            }
            None => return Err((ProblemKind::RequestTimeout, "the body did not arrive in time")),
        }
    }
}
