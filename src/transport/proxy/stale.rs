//! Stored answers in place of a refusal, or of a failure of the service.
//!
//! A request gets one only after access lists have let it pass and its identities were verified: limits with stored
//! answers are decided after both. Not here: what may be stored and used again (stale).

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::Method;
use smallvec::SmallVec;

use super::access_record::AccessRecord;
use super::admission::Admission;
use super::answer::UpstreamResponse;
use super::context::{NotForwarded, RequestContext};
use super::own_fields::is_written;
use super::request::Request;
use crate::base::fields::Fields;
use crate::base::time;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::{Facts, StaleCause};
use crate::transport::http1::Framing;
use crate::transport::http1::hop;
use crate::transport::respond::{ProblemKind, StoredReply};
use crate::transport::stale::{AnswerCache, AnswerCaches, Found, NewAnswer, Recording, forbids_storage};
use crate::transport::upstream::{Exchange, ExchangeError};

/// Fields of a request with which stored answers are not used. A stored answer is whole, and only the service can judge
/// the last two (RFC 9111, section 4.3.2).
const EXCLUDED: [&str; 4] = ["range", "upgrade", "if-match", "if-unmodified-since"];

/// Fields that tell no client from another, beside those of connections. `Vary` names those by which an answer varies.
const NEUTRAL: [&str; 27] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-length",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "host",
    "if-modified-since",
    "if-none-match",
    "max-forwards",
    "pragma",
    "priority",
    "purpose",
    "referer",
    "save-data",
    "traceparent",
    "tracestate",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "x-correlation-id",
    "x-forwarded-for",
    "x-request-id",
];

const OK: u16 = 200;
const TOO_MANY_REQUESTS: u16 = 429;

/// The texts that select an answer.
type Selectors<'t> = SmallVec<[Option<&'t [u8]>; 24]>;

/// The stored answers of a request: those that it may get, and where its own answer is stored.
pub(super) struct StaleRequest<'v> {
    /// By limit, each with the name of the limit and the key of the answer. Empty for an unsafe method.
    caches: SmallVec<[(&'v str, &'v Arc<AnswerCache>, Key); 1]>,
    all: &'v AnswerCaches,
    /// The key of its resource.
    resource: Key,
}

/// A stored answer for a request, and why the request gets it.
pub(super) struct InPlace {
    found: Found,
    cause: StaleCause,
}

impl<'v> RequestContext<'v> {
    /// The stored answers of a request for this authority, path and query.
    #[inline]
    pub(super) fn stale(
        &self,
        request: &Request<'_>,
        facts: &Facts<'_>,
        target: (&str, &str, Option<&str>),
    ) -> Option<Box<StaleRequest<'v>>> {
        let all = self.config.running.stale.as_deref()?;
        self.stale_of(all, request, facts, target)
    }

    #[inline(never)]
    fn stale_of(
        &self,
        all: &'v AnswerCaches,
        request: &Request<'_>,
        facts: &Facts<'_>,
        (authority, path, query): (&str, &str, Option<&str>),
    ) -> Option<Box<StaleRequest<'v>>> {
        let (fields, is_unsafe) = (request.fields, !request.method.is_safe());
        let is_plain = matches!(request.method, Method::GET | Method::HEAD)
            && request.connect.is_none()
            && request.is_bodyless()
            && !EXCLUDED.iter().any(|name| fields.contains(name))
            && !removes_fields(fields)
            && !forbids_storage(fields);
        if !is_plain && !is_unsafe {
            return None;
        }
        let gate = &self.worker.shared.gate;
        let running = &self.config.running;
        let scheme = if self.peer.is_tls { "https" } else { "http" };
        // Any spelling of a host, with any port: at worst an unsafe request ends one answer more.
        let url = [Some(scheme), Some(facts.host), Some(path), query];
        let mut texts: Selectors<'_> = url.into_iter().map(|text| text.map(str::as_bytes)).collect();
        let (resource, mut caches) = (gate.resource_key(&texts), SmallVec::new());
        if is_plain {
            let route = match &running.settings.routes {
                Some(routes) => Some(routes.find(facts)?),
                None => None,
            };
            let upstream = self.config.upstreams.get(route.map_or(0, |route| route.upstream))?.label();
            let rewrite = route.and_then(|route| route.rewrite.as_ref());
            let (start, rest) = rewrite.map_or(("", path), |rewrite| rewrite.apply(path));
            texts.extend([upstream, authority, start, rest].map(|text| Some(text.as_bytes())));
            self.add_credentials(facts, &mut texts);
            for (index, key) in gate.answer_keys(&running.live, facts, &texts, gate.clock().at(self.began)) {
                caches.extend(all.of_limit(index).map(|(name, cache)| (name, cache, key)));
            }
        }
        (is_unsafe || !caches.is_empty()).then(|| Box::new(StaleRequest { caches, all, resource }))
    }

    /// Adds everything that may tell one client from another, with and without the knowledge of Weir: the names of a
    /// certificate, and all fields but neutral ones that neither an identity nor the plan is read from.
    fn add_credentials<'f>(&self, facts: &Facts<'f>, texts: &mut Selectors<'f>) {
        for (name, value) in facts.headers.iter().filter(|(name, _)| !is_neutral(name) || self.is_read(name)) {
            texts.extend([Some(name), Some(value)]);
        }
        if let Some(certificate) = facts.certificate {
            for names in [&certificate.subject_cn, &certificate.san_dns, &certificate.san_uri] {
                texts.push(None);
                texts.extend(names.iter().map(|name| Some(name.as_bytes())));
            }
        }
    }

    /// Whether an identity or the plan of a request is read from this field.
    pub(super) fn is_read(&self, name: &[u8]) -> bool {
        let mut read = self.config.running.live.policy.read_headers();
        read.any(|field| name.eq_ignore_ascii_case(field.as_str().as_bytes()))
    }

    /// The stored answer in place of a refusal, if each limit that refuses the request has stored answers. Limits that
    /// are decided before identities are verified have none, so that their refusals verify nothing.
    pub(super) fn in_place_of_refusal(
        &self,
        stop: NotForwarded<'v>,
        request: &Request<'_>,
        facts: &Facts<'_>,
        target: (&str, &str, Option<&str>),
    ) -> NotForwarded<'v> {
        let Some(all) = self.config.running.stale.as_deref() else { return stop };
        let NotForwarded::Reply(own) = &stop else { return stop };
        let limits = own.violated();
        let is_stored = |limit: &&str| all.all().any(|(name, _)| name == *limit);
        if own.kind() != ProblemKind::Limited || limits.is_empty() || !limits.iter().all(is_stored) {
            return stop;
        }
        let Some(stale) = self.stale_of(all, request, facts, target) else { return stop };
        let is_used = |limit: &&str| stale.uses(StaleCause::Refused).any(|(name, ..)| name == limit);
        if !limits.iter().all(is_used) {
            return stop;
        }
        match stale.find(StaleCause::Refused, request.fields, self.now()) {
            Some(in_place) => in_place.of(stop),
            None => stop,
        }
    }

    /// The stored answer in place of a failure, or of the answer of the service that has arrived. Any other answer to
    /// the request is recorded.
    pub(super) fn after_exchange(
        &self,
        stale: &StaleRequest<'v>,
        request: &Request<'_>,
        result: Result<&mut Exchange, &ExchangeError>,
        admission: &Admission<'v>,
    ) -> Option<InPlace> {
        // No limit was charged: access lists or a plan exempt the request.
        let is_charged = admission.identified.standing.is_some();
        let exchange = match result {
            Ok(exchange) => exchange,
            Err(error) if is_charged && is_of_upstream(error) => {
                return stale.find(StaleCause::UpstreamError, request.fields, self.now());
            }
            Err(_) => return None,
        };
        let status = exchange.response()?.0.status;
        let cause = match status {
            200..400 if stale.caches.is_empty() => {
                let now = self.now();
                stale.all.all().for_each(|(_, cache)| cache.change(stale.resource, now));
                return None;
            }
            OK if is_charged && request.method == Method::GET => {
                let recording = self.recording(stale, request, exchange);
                exchange.record_body(recording);
                return None;
            }
            TOO_MANY_REQUESTS => StaleCause::Upstream429,
            502..=504 => StaleCause::UpstreamError,
            _ => return None,
        };
        if is_charged { stale.find(cause, request.fields, self.now()) } else { None }
    }

    /// The recording of an answer, if it may be stored.
    fn recording(
        &self,
        stale: &StaleRequest<'v>,
        request: &Request<'_>,
        exchange: &Exchange,
    ) -> Option<Box<Recording>> {
        let (head, reason, fields) = exchange.response()?;
        // The end of the connection does not tell whether such a body is complete.
        if head.framing == Framing::UntilEnd {
            return None;
        }
        let (profiles, back) = (self.config.running.settings.profiles, exchange.locations());
        let upstream = UpstreamResponse { head, reason, fields, standing: None, budgets: Vec::new(), profiles, back };
        let (mut fields, at) = (upstream.forwarded_fields(), self.now());
        if !fields.fields().contains("date") {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at.as_secs()));
            fields.push(b"date", date.as_bytes());
        }
        let new = NewAnswer { fields, length: head.length, request: request.fields, resource: stale.resource, at };
        let caches: SmallVec<[_; 1]> = stale.caches.iter().map(|(_, cache, key)| (*cache, *key)).collect();
        let own = &self.config.running.live.policy.identity_headers;
        Recording::begin(new, &caches, |name| {
            let name = name.as_str().as_bytes();
            is_written(name) || own.iter().any(|header| header.is_read_from(name))
        })
    }

    /// The reply with a stored answer in place of the one that has arrived, which settles the charges.
    pub(super) fn in_place_of_answer(
        &self,
        in_place: InPlace,
        exchange: &mut Exchange,
        admission: &mut Admission<'v>,
        record: &mut AccessRecord<'_>,
    ) -> NotForwarded<'v> {
        let arrived = time::instant_now();
        self.measure(exchange, arrived, admission.was_held);
        self.was_sent.set(true);
        let response = exchange.response();
        let limits = (admission.standing(), admission.budgets(self.config.running.settings.profiles));
        if let Some((head, _, fields)) = response {
            record.answered(head.status, arrived);
            if let Some(mut bill) = admission.identified.charged.bill() {
                bill.answered((head.status, fields), exchange.handed_over());
                bill.end(0, None, record.for_gate());
            }
        }
        let (InPlace { found, cause }, status) = (in_place, response.map(|(head, ..)| head.status));
        exchange.discard_body();
        NotForwarded::Stored(Box::new(StoredReply::new(found, cause, status, limits)))
    }

    fn now(&self) -> Timestamp {
        self.worker.shared.gate.clock().now()
    }
}

impl StaleRequest<'_> {
    /// The stored answers that are used for this cause.
    fn uses(&self, cause: StaleCause) -> impl Iterator<Item = &(&str, &Arc<AnswerCache>, Key)> {
        self.caches.iter().filter(move |(_, cache, _)| cache.rule().is_for(cause))
    }

    /// The answer for a request with these fields, counted.
    fn find(&self, cause: StaleCause, fields: Fields<'_>, now: Timestamp) -> Option<InPlace> {
        let found = self.uses(cause).find_map(|(_, cache, key)| Some((cache, cache.find(*key, fields, now)?)));
        let (cache, found) = found?;
        cache.count(cause);
        Some(InPlace { found, cause })
    }
}

impl InPlace {
    /// The reply with the stored answer, with the limit headers of the reply whose place it takes.
    pub(super) fn of(self, stop: NotForwarded<'_>) -> NotForwarded<'_> {
        let NotForwarded::Reply(own) = stop else { return stop };
        let Self { found, cause } = self;
        NotForwarded::Stored(Box::new(StoredReply::new(found, cause, None, own.into_limits())))
    }
}

/// Whether `Connection` lists a field of the request, which the service does not get then.
fn removes_fields(fields: Fields<'_>) -> bool {
    let options = hop::ConnectionOptions::of(fields);
    fields.iter().any(|(name, _)| !hop::is_hop_by_hop(name) && options.contains(name))
}

/// The starts of names of such fields.
const NEUTRAL_STARTS: [&[u8]; 2] = [b"sec-ch-", b"sec-fetch-"];

/// Whether a field of a request tells no client from another.
fn is_neutral(name: &[u8]) -> bool {
    NEUTRAL.iter().any(|neutral| name.eq_ignore_ascii_case(neutral.as_bytes()))
        || hop::is_hop_by_hop(name) && !name.eq_ignore_ascii_case(b"proxy-authorization")
        || NEUTRAL_STARTS.iter().any(|start| name.get(..start.len()).is_some_and(|of| of.eq_ignore_ascii_case(start)))
}

/// Whether the service or the way to it is the cause of an error.
fn is_of_upstream(error: &ExchangeError) -> bool {
    use ExchangeError as E;
    !matches!(error, E::TooMany | E::Unencodable | E::Ignored | E::ClientTimeout | E::ClientBroken | E::BodyTooLarge)
}
