//! The start of a request's body that is read before its limits decide, and sent to its service first.

use std::future::poll_fn;
use std::task::Poll;

use super::context::{NotForwarded, RequestContext};
use super::error;
use super::service::GateInput;
use crate::base::fields::Fields;
use crate::base::telemetry::{Outcome, RefusedBy};
use crate::base::time::{self, Timestamp};
use crate::engine::policy::{BodyNeed, Facts, Stage, is_in_form};
use crate::engine::units::{RequestBody, RequestPointers, usage_option};
use crate::transport::http1::Framing;
use crate::transport::http1::encode::Encoder;
use crate::transport::net::deadline::Deadline;
use crate::transport::net::pace::Pace;
use crate::transport::proxy::replay::{GateBody, ReadAhead, Replayed};
use crate::transport::respond::{LocalReply, ProblemKind};
use crate::transport::upstream::ExchangeError;

/// Fields that the service compares with the bytes of the body (RFC 9530, RFC 3230, RFC 1864, RFC 9421; of AWS and Azure).
const SIGNATURES: [&str; 7] = [
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
    "signature",
    "x-amz-content-sha256",
    "x-ms-content-sha256",
];

/// Whether the service may compare the body with a signature or a digest, also of a trailer.
fn is_signed(fields: Fields<'_>) -> bool {
    let is_signature = |name: &[u8]| SIGNATURES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let mut names = fields.all("trailer").flat_map(|names| names.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    SIGNATURES.iter().any(|name| fields.contains(name))
        || names.any(is_signature)
        || fields.all("authorization").any(|value| value.starts_with(b"AWS4-"))
}

impl<'v> RequestContext<'v> {
    /// Reads the body as far as limits need it, and decides the identified stage.
    pub(super) async fn decide_with_body(
        &self,
        input: &mut GateInput<'_, '_, '_, 'v>,
        now: Timestamp,
    ) -> Result<(), NotForwarded<'v>> {
        let need = self.config.running.live.policy.body_need(input.facts);
        let body = match need {
            Some(need) => {
                let identified = self.worker.shared.gate.identify_early(&self.config.running.live, input.facts, now);
                identified.map_err(|unkeyed| self.unkeyed(unkeyed, input.is_grpc))?;
                self.read_ahead(input, &need).await?
            }
            None => None,
        };
        let now = if self.has_waited() { self.worker.shared.gate.clock().now() } else { now };
        let facts = Facts { body: body.as_ref(), ..*input.facts };
        if let Some((limit, reason)) = self.config.running.live.policy.unpriced(&facts) {
            self.count(ProblemKind::UnpricedModel);
            let detail = format!("limit {}: {reason}", limit.name);
            return Err(LocalReply::new(ProblemKind::UnpricedModel, detail, input.is_grpc).into());
        }
        let GateInput { is_grpc, wire, body, record, admission, .. } = input;
        let (wire, is_grpc) = (wire.as_deref_mut(), *is_grpc);
        let body = body.as_mut().map(GateBody::reborrow);
        let mut input = GateInput { facts: &facts, is_grpc, wire, body, record, admission };
        self.decide_stage(&mut input, Stage::Identified, now).await
    }

    /// Reads the body as far as `need` says; none if there is no body to read.
    async fn read_ahead(
        &self,
        input: &mut GateInput<'_, '_, '_, 'v>,
        need: &BodyNeed<'v>,
    ) -> Result<Option<RequestBody<'v>>, NotForwarded<'v>> {
        let GateInput { facts, is_grpc, wire, body, record, admission } = input;
        let Some(GateBody { framing, expects_continue, stream }) = body.as_mut() else { return Ok(None) };
        let announced = match *framing {
            Framing::Length(0) => return Ok(None),
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilEnd => None,
        };
        let pointers: &'v RequestPointers = need.pointers;
        let mut body = RequestBody::new(pointers, facts.headers, announced);
        if !body.is_decided(need.read_bytes) {
            let source = match (stream, wire) {
                (Some(stream), _) => &mut **stream,
                (None, Some(wire)) => &mut **wire as &mut dyn Replayed,
                (None, None) => return Ok(None),
            };
            if *expects_continue {
                source.expect_continue();
            }
            record.outcome = Outcome::Abandoned;
            let read = self.read(facts, source, &mut body, need.read_bytes).await;
            record.outcome = Outcome::Refused(RefusedBy::Other); // until another outcome is set
            let Some((mut bytes, has_ended)) = read.map_err(|failure| self.unread(&failure, *is_grpc))? else {
                return Err(self.no_capacity(*is_grpc));
            };
            if has_ended {
                body.compare_form(|name| is_in_form(&bytes, name));
            }
            let facts = Facts { body: Some(&body), ..**facts };
            if has_ended
                && !is_signed(facts.headers)
                && self.config.running.live.policy.asks_for_usage(&facts)
                && let Some(edit) = usage_option(&bytes)
            {
                admission.added_bytes = edit.added_bytes();
                bytes.splice(edit.range, edit.bytes);
            }
            source.put_back(ReadAhead::new(bytes, has_ended));
        }
        if need.refused_beyond.is_some_and(|bound| body.exceeds(bound)) {
            return Err(self.unread(&ExchangeError::BodyTooLarge, *is_grpc));
        }
        Ok(Some(body))
    }

    /// Reads until the end of the body, or until more of it changes nothing. Returns the bytes, and whether the body has
    /// ended; `None` if there is no capacity to wait for more.
    async fn read(
        &self,
        facts: &Facts<'_>,
        source: &mut dyn Replayed,
        body: &mut RequestBody<'_>,
        bound: u64,
    ) -> Result<Option<(Vec<u8>, bool)>, ExchangeError> {
        let (gate, live) = (&self.worker.shared.gate, &self.config.running.live);
        let (timeouts, mut reserved, mut is_full) = (&self.config.timeouts, None, false);
        let (mut bytes, mut piece, mut left) = (Vec::new(), Vec::new(), u64::MAX);
        let (mut deadline, mut pace, mut moved_at) = (Deadline::default(), Pace::default(), self.lately());
        let has_ended = loop {
            let moved = poll_fn(|cx| match source.poll_body(cx, &mut piece, &Encoder::Raw, &mut left) {
                Poll::Ready(read) => Poll::Ready(Some(read)),
                Poll::Pending => {
                    drop(reserved.take());
                    reserved = gate.reserve_body(live, facts, bytes.len() + piece.len());
                    is_full = reserved.is_none();
                    if is_full {
                        return Poll::Ready(None);
                    }
                    // The body takes time, so the decision has an instant of its own.
                    self.queried.set(true);
                    self.was_read_ahead.set(true);
                    pace.poll(cx, &mut deadline, moved_at + timeouts.body_idle, timeouts.min_send).map(|()| None)
                }
            });
            let moved = moved.await;
            if is_full {
                return Ok(None);
            }
            let has_more = moved.ok_or(ExchangeError::ClientTimeout)??;
            body.push(&piece);
            pace.moved(piece.len() as u64);
            bytes.append(&mut piece);
            if !has_more {
                body.end();
                break true;
            }
            if body.is_decided(bound) {
                break false;
            }
            moved_at = time::instant_now();
        };
        Ok(Some((bytes, has_ended)))
    }

    /// The answer to a request whose body is not read.
    fn unread(&self, failure: &ExchangeError, is_grpc: bool) -> NotForwarded<'v> {
        let (kind, detail) = error::exchange_error(failure, ("", None), &self.worker.problems);
        self.count(kind);
        LocalReply::new(kind, detail, is_grpc).into()
    }
}
