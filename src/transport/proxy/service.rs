//! The service of a request up to its admission: its parts, access lists, routes, and both stages of the gate.
//!
//! Not here: parsing, forwarding, and writing the response.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;

use super::access_record::AccessRecord;
use super::admission::Admission;
use super::answer::ResponseForm;
use super::context::{NotForwarded, RequestContext};
use super::error;
use super::host;
use super::http1::wire::Wire;
use super::leaving::gone_meanwhile;
use super::replay::{GateBody, Replayed};
use super::request::{HttpVersion, Request};
use super::stale::StaleRequest;
use super::upgrade::Upgrade;
use crate::base::telemetry::{Outcome, RefusedBy};
use crate::base::time::Timestamp;
use crate::engine::gate::{AccessError, Asking, EntryError, IdentityFields, Step};
use crate::engine::policy::client_ip::AddressHeader;
use crate::engine::policy::path::escaped_query;
use crate::engine::policy::route::{Rewrite, Route};
use crate::engine::policy::upgrades::Upgrades;
use crate::engine::policy::{Facts, Stage};
use crate::transport::http1::{Framing, hop};
use crate::transport::net::client_usage::ClientHandle;
use crate::transport::respond::{LocalReply, ProblemKind};
use crate::transport::upstream::{Endpoints, Requirements};

/// A request that is admitted and has a destination.
pub(super) struct RoutedRequest<'r, 'v> {
    pub(super) path: Cow<'r, str>,
    /// Escaped, without `?`.
    pub(super) query: Option<Cow<'r, str>>,
    pub(super) authority: &'r str,
    /// The field in which its peer, a trusted proxy, names the client.
    pub(super) believed: Option<AddressHeader>,
    pub(super) client: IpAddr,
    /// The fields in which its service gets its identities and its plan.
    pub(super) identity_fields: IdentityFields<'v>,
    /// The upstream that serves it.
    pub(super) upstream: Rc<Endpoints>,
    pub(super) rewrite: Option<&'v Arc<Rewrite>>,
    /// The most bytes of its body, with those that were added.
    pub(super) max_body: u64,
    /// Bytes that were added to its body, or taken from it.
    pub(super) added_bytes: i64,
    /// The requested change of protocol, if it is allowed.
    pub(super) upgrade: Option<Box<Upgrade<'v>>>,
    /// It authenticates its connection to the service (NTLM or Negotiate).
    pub(super) authenticates_connection: bool,
    /// Its requirements for a connection.
    pub(super) requirements: Requirements,
    /// The body of its response is read.
    pub(super) reads_body: bool,
    /// Its stored answers; none if no limit stores answers.
    pub(super) stale: Option<Box<StaleRequest<'v>>>,
}

/// The destination of a request.
struct Destination<'v> {
    upstream: &'v Rc<Endpoints>,
    rewrite: Option<&'v Arc<Rewrite>>,
    /// The protocols that its client may change to.
    upgrades: &'v Upgrades,
    max_body: u64,
}

/// A request at the gate.
pub(super) struct GateInput<'a, 'f, 'm, 'v> {
    pub(super) facts: &'a Facts<'f>,
    pub(super) is_grpc: bool,
    /// The connection of an HTTP/1 client, to notice that it leaves.
    pub(super) wire: Option<&'a mut Wire>,
    /// Its body; none if limits cannot read it.
    pub(super) body: Option<GateBody<'a>>,
    pub(super) record: &'a mut AccessRecord<'m>,
    pub(super) admission: &'a mut Admission<'v>,
}

impl<'v> RequestContext<'v> {
    /// Passes the request through access lists, routes and both stages of the gate. If a client on `wire` leaves while
    /// it waits, the request ends. Over HTTP/2 the caller drops this future instead, and the body comes on `stream`.
    pub(super) async fn admit<'r>(
        &self,
        request: &Request<'r>,
        form: ResponseForm,
        wire: Option<&mut Wire>,
        stream: Option<&mut dyn Replayed>,
        record: &mut AccessRecord<'_>,
        admission: &mut Admission<'v>,
    ) -> Result<RoutedRequest<'r, 'v>, NotForwarded<'v>> {
        self.begin_record(request, record)?;
        let (gate, policy) = (&self.worker.shared.gate, &self.config.running.live.policy);
        let path = policy.paths.normalise(request.target.path);
        let path = path.map_err(|error| self.problem_to(form, ProblemKind::BadPath, error.to_string()))?;
        let query = request.target.query.map(escaped_query);
        let authority = host::authority(request).map_err(|text| self.problem_to(form, ProblemKind::BadHost, text))?;
        let client_ip = &policy.client_ip;
        let believed = client_ip.is_trusted(self.peer.ip).then_some(client_ip.header);
        let mut facts = Facts {
            method: &request.method,
            host: &host::host(authority),
            path: &policy.paths.fold(&path),
            query: query.as_deref(),
            headers: request.fields,
            client_ip: believed.map_or(self.peer.ip, |_| client_ip.client_ip(self.peer.ip, request.fields)),
            is_free_preflight: false,
            is_proxied: believed.is_some(),
            certificate: self.peer.certificate.as_deref(),
            cost: None,
            body: None,
        };
        self.answer_itself(request, &facts, (authority, &*path), form.is_grpc, record)?;
        let now = gate.clock().at(self.began);
        // Over HTTP/2 a body may come without a field that announces it.
        facts.is_free_preflight = request.is_bodyless() && gate.frees_preflight(policy, &facts, now);
        record.identified(facts.client_ip, facts.host, &path);
        let body = Some(GateBody::of(request, stream.map(|stream| stream as &mut dyn Replayed)));
        let mut input = GateInput { facts: &facts, is_grpc: form.is_grpc, wire, body, record, admission };
        let destination =
            |facts: &Facts<'_>, record: &mut AccessRecord<'_>| self.destination(facts, request, form.is_grpc, record);
        let decided = self.check_newest(self.both_stages(&mut input, destination).await, &mut input, true);
        let target = (authority, &*path, query.as_deref());
        let Destination { upstream, rewrite, upgrades, max_body } = match decided {
            Ok(destination) => destination,
            Err(stop) => return Err(self.in_place_of_refusal(stop, request, &facts, target)),
        };
        let upstream = if self.has_waited() { self.newest(upstream) } else { Rc::clone(upstream) };
        let stale = self.stale(request, &facts, target);
        let identity_fields = gate.identity_fields(&self.config.running.live, &facts, now);
        let upgrade = request.upgrade(upgrades);
        let authenticates_connection = hop::authenticates_connection(request.fields);
        let requirements = self.requirements(request, &facts, &upstream, upgrade.is_some(), authenticates_connection);
        let client = facts.client_ip;
        Ok(RoutedRequest {
            path,
            query,
            authority,
            believed,
            client,
            identity_fields,
            upstream,
            rewrite,
            max_body: max_body.saturating_add_signed(admission.added_bytes),
            added_bytes: admission.added_bytes,
            upgrade,
            authenticates_connection,
            requirements,
            reads_body: admission.identified.charged.reads_body(),
            stale: stale.filter(|_| !authenticates_connection),
        })
    }

    /// This upstream in the newest configuration. While a request waited, its endpoints may have been replaced.
    fn newest(&self, upstream: &Rc<Endpoints>) -> Rc<Endpoints> {
        let config = self.worker.config.current();
        Rc::clone(config.upstreams.iter().find(|newest| newest.name() == upstream.name()).unwrap_or(upstream))
    }

    /// Records the head of a request, and refuses CONNECT.
    #[inline]
    fn begin_record(&self, request: &Request<'_>, record: &mut AccessRecord<'_>) -> Result<(), NotForwarded<'v>> {
        self.trace(request.fields, record);
        record.spoken(request.version);
        record.requested(&request.method, request.target.path, request.fields);
        if request.method == Method::CONNECT {
            return Err(self.counted(error::no_connect()));
        }
        Ok(())
    }

    /// The requirements of a request for its connection to `upstream`.
    #[inline]
    fn requirements(
        &self,
        request: &Request<'_>,
        facts: &Facts<'_>,
        upstream: &Endpoints,
        is_upgrade: bool,
        authenticates_connection: bool,
    ) -> Requirements {
        // A proxy may send requests of several clients on one connection, so nothing is pinned to that connection.
        let is_pinnable = request.version != HttpVersion::Http2 && self.peer.client.is_some();
        Requirements {
            affinity: upstream.affinity(facts),
            is_exclusive: is_upgrade
                || upstream.proxy_protocol().is_some()
                || (authenticates_connection && !is_pinnable),
            preamble: upstream.proxy_protocol().map(|version| self.peer.header(version)),
            client: self.client(facts.client_ip),
            pin: None,
        }
    }

    /// The usage that the request counts to: of its connection's client, or of the client behind a trusted proxy. None
    /// if a trusted proxy names no client.
    fn client(&self, ip: IpAddr) -> Option<Rc<ClientHandle>> {
        if self.peer.client.is_some() || ip == self.peer.ip {
            return self.peer.client.clone();
        }
        let running = &self.config.running;
        let ip = running.live.policy.client_ip.prefixes.network(ip);
        let max_requests = running.settings.bounds.max_requests_per_ip;
        self.peer.proxied.handle(&self.worker.shared.clients, ip, max_requests)
    }

    /// Decides both stages. Returns the destination, which is found between them, with the identities of which its route
    /// needs one.
    pub(super) async fn both_stages<D>(
        &self,
        input: &mut GateInput<'_, '_, '_, 'v>,
        destination: impl FnOnce(&Facts<'_>, &mut AccessRecord<'_>) -> Result<(D, &'v [usize]), NotForwarded<'v>>,
    ) -> Result<D, NotForwarded<'v>> {
        let (facts, is_grpc) = (input.facts, input.is_grpc);
        let clock = self.worker.shared.gate.clock();
        let now = clock.at(self.began);
        if let Some(refusal) = self.worker.shared.gate.refuse_address(facts.client_ip, now) {
            input.record.refused(&refusal);
            return Err(LocalReply::refusal(refusal, facts.headers, is_grpc).into());
        }
        let policy = &self.config.running.live.policy;
        let access = policy.access.as_deref();
        let mut is_free = match access {
            Some(access) => self.check_arrival_access(access, facts, is_grpc)?,
            None => false,
        };
        if !is_free && policy.has_arrival() {
            // Into the field of the identified stage, so that waiting requests are smaller.
            self.decide_stage(input, Stage::Arrival, now).await?;
            input.admission.finish_arrival(self.config.running.settings.profiles);
        }
        // After the stage that counts all requests, before charges that concern services.
        let (destination, required) = destination(facts, input.record)?;
        let now = if self.has_waited() { clock.now() } else { now };
        let entered = self.worker.shared.gate.enter(&self.config.running.live, required, facts, is_free, now);
        if let Some(record) = input.record.for_gate() {
            let (live, is_limited) = (&self.config.running.live, matches!(entered, Ok(false)));
            self.worker.shared.gate.describe_identities(live, is_limited, facts, now, record);
        }
        is_free = entered.map_err(|error| match error {
            EntryError::Access(AccessError::Denied(reason)) => self.denied(reason, is_grpc),
            EntryError::Access(AccessError::Unidentified(missing)) => self.unkeyed(missing.into(), is_grpc),
            EntryError::Shed(shed) => self.shed(&shed, is_grpc),
        })?;
        if !is_free {
            if policy.body_pointers.is_none() {
                self.decide_stage(input, Stage::Identified, now).await?;
            } else {
                Box::pin(self.decide_with_body(input, now)).await?;
            }
        }
        input.admission.was_held = self.waited.get();
        input.record.outcome = if input.admission.was_held { Outcome::Held } else { Outcome::Forwarded };
        Ok(destination)
    }

    /// The destination of the first matching route, or of all requests if there are no routes, with the identities of
    /// which the route needs one.
    fn destination(
        &self,
        facts: &Facts<'_>,
        request: &Request<'_>,
        is_grpc: bool,
        record: &mut AccessRecord<'_>,
    ) -> Result<(Destination<'v>, &'v [usize]), NotForwarded<'v>> {
        let config = self.config;
        let no_route = || {
            self.count(ProblemKind::NoRoute);
            LocalReply::new(ProblemKind::NoRoute, "no route matches the request", is_grpc)
        };
        let route = match &config.running.settings.routes {
            Some(routes) => Some(routes.find(facts).ok_or_else(no_route)?),
            None => None,
        };
        // A reload may have removed the only service.
        let upstream = config.upstreams.get(route.map_or(0, |route| route.upstream)).ok_or_else(no_route)?;
        let upgrades = route.and_then(|route| route.upgrades.as_ref()).unwrap_or_else(|| upstream.upgrades());
        record.routed(route.map(Route::label), upstream);
        if request.is_refused_connect(upgrades) {
            return Err(self.counted(error::no_connect()));
        }
        let max_body = route.and_then(|route| route.max_body_bytes);
        let max_body = max_body.unwrap_or(config.running.settings.bounds.max_body_bytes);
        if matches!(request.framing, Framing::Length(len) if len > max_body) {
            self.count(ProblemKind::BodyTooLarge);
            return Err(LocalReply::new(ProblemKind::BodyTooLarge, error::BODY_TOO_LARGE, is_grpc).into());
        }
        let rewrite = route.and_then(|route| route.rewrite.as_ref());
        let required = route.map_or(&[][..], |route| &route.require);
        Ok((Destination { upstream, rewrite, upgrades, max_body }, required))
    }

    /// Decides one stage, and waits if it must.
    pub(super) async fn decide_stage(
        &self,
        input: &mut GateInput<'_, '_, '_, 'v>,
        stage: Stage,
        now: Timestamp,
    ) -> Result<(), NotForwarded<'v>> {
        let (facts, is_grpc) = (input.facts, input.is_grpc);
        let gate = &self.worker.shared.gate;
        let live = &self.config.running.live;
        let pass = &mut input.admission.identified;
        let bytes = || waiting_bytes(facts, input.body.as_ref());
        let decided = gate.admit_into(pass, (live, stage), facts, bytes, now, input.record.for_gate());
        let Some(mut step) = decided.map_err(|unkeyed| self.unkeyed(unkeyed, is_grpc))? else { return Ok(()) };
        let decided = loop {
            match step {
                Step::Ask(asking) => step = self.ask(asking, input).await?,
                Step::Pass(pass) => break Ok(pass),
                Step::Refuse(refusal) => break Err(refusal),
                Step::Wait(waiting) => {
                    break self.hold(waiting.held_by(), || waiting.wait(&*self.worker.stores), input).await?;
                }
                Step::Delay(delayed) => break self.hold(delayed.held_by(), || delayed.wait(), input).await?,
            }
        };
        let GateInput { record, admission, .. } = input;
        match decided {
            Ok(pass) => {
                if let Some(record) = record.for_gate() {
                    pass.describe_turn(record);
                }
                admission.identified = *pass;
            }
            Err(refusal) => {
                record.refused(&refusal);
                let refusal = admission.complete_refusal(*refusal, &live.policy);
                return Err(LocalReply::refusal(refusal, facts.headers, is_grpc).into());
            }
        }
        Ok(())
    }

    /// Asks the stores of its limits.
    async fn ask(
        &self,
        asking: Box<Asking<'v>>,
        input: &mut GateInput<'_, '_, '_, 'v>,
    ) -> Result<Step<'v>, NotForwarded<'v>> {
        let GateInput { facts, wire, body, record, .. } = input;
        let (facts, wire, body) = (*facts, wire.as_deref_mut(), body.as_ref());
        record.outcome = Outcome::Abandoned;
        self.queried.set(true);
        // Boxed, so that requests with local limits only are smaller.
        let answered = Box::pin(async {
            let asked = asking.ask(&*self.worker.stores, facts, || waiting_bytes(facts, body));
            let Some(wire) = wire else { return Ok(asked.await) };
            tokio::select! {
                biased;
                step = asked => Ok(step),
                () = gone_meanwhile(wire) => Err(NotForwarded::Abandoned),
            }
        });
        let step = answered.await?;
        record.outcome = Outcome::Refused(RefusedBy::Other); // until another outcome is set
        Ok(step)
    }
}

/// The bytes that a request takes when it begins to wait.
fn waiting_bytes(facts: &Facts<'_>, body: Option<&GateBody<'_>>) -> usize {
    facts.head_bytes() + body.map_or(0, GateBody::unread)
}
