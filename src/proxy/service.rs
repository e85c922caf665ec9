//! The life of a request up to its admission, whichever protocol it came by.
//!
//! Not here: reading it, sending it on, and writing its answer.

use std::borrow::Cow;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;

use super::answer::Asked;
use super::context::{Life, Stop};
use super::error;
use super::host;
use super::http1::wire::Wire;
use super::passed::Passed;
use super::request::Request;
use super::tally::Tally;
use super::upgrade::Upgrade;
use crate::gate::{Pass, Refusal, Shut, Step, Unkeyed};
use crate::http1::Framing;
use crate::policy::access::{Access, DenialReason};
use crate::policy::client_ip::AddressHeader;
use crate::policy::path::escaped_query;
use crate::policy::route::Rewrite;
use crate::policy::upgrades::Upgrades;
use crate::policy::{Facts, Stage};
use crate::respond::{Answer, ProblemKind};
use crate::telemetry::Outcome;
use crate::time::Timestamp;
use crate::upstream::{Endpoints, Requirements};

/// What was found out about a request that may be forwarded.
pub(super) struct Admitted<'r, 'v> {
    pub(super) path: Cow<'r, str>,
    /// Escaped, without `?`.
    pub(super) query: Option<Cow<'r, str>>,
    pub(super) authority: &'r str,
    /// Where its peer is believed whom it stands for, if anywhere.
    pub(super) believed: Option<AddressHeader>,
    pub(super) client: IpAddr,
    /// Where it goes.
    pub(super) upstream: &'v Rc<Endpoints>,
    pub(super) rewrite: Option<&'v Arc<Rewrite>>,
    /// Bytes that its body may have.
    pub(super) max_body: u64,
    /// The change of protocol that it asks for and may have.
    pub(super) upgrade: Option<Box<Upgrade<'v>>>,
    /// What it needs of a connection.
    pub(super) requirements: Requirements,
}

/// Where a request goes, and how.
struct Way<'v> {
    upstream: &'v Rc<Endpoints>,
    rewrite: Option<&'v Arc<Rewrite>>,
    /// What its client may change to.
    upgrades: &'v Upgrades,
    max_body: u64,
}

/// A request at the gate.
struct Check<'a, 'f, 'm, 'v> {
    facts: &'a Facts<'f>,
    is_grpc: bool,
    /// Where a client is noticed that leaves while it waits.
    wire: Option<&'a mut Wire>,
    tally: &'a mut Tally<'m>,
    passed: &'a mut Passed<'v>,
}

/// What a CONNECT is told.
const NO_TUNNEL: &str = "this is no tunnel";

impl<'v> Life<'v> {
    /// Takes the request through both stages of the gate. A client on `wire` that leaves while it waits is noticed;
    /// one on HTTP/2 takes this future with it.
    pub(super) async fn admit<'r>(
        &self,
        request: &Request<'r>,
        asked: Asked,
        wire: Option<&mut Wire>,
        tally: &mut Tally<'_>,
        passed: &mut Passed<'v>,
    ) -> Result<Admitted<'r, 'v>, Stop<'v>> {
        tally.asked(&request.method, request.target.path);
        if request.method == Method::CONNECT {
            return Err(self.stop(ProblemKind::MethodRefused, NO_TUNNEL));
        }
        let policy = &self.view.current.live.policy;
        let path = policy.paths.normalise(request.target.path);
        let path = path.map_err(|error| self.stop(ProblemKind::BadPath, error.to_string()))?;
        let query = request.target.query.map(escaped_query);
        let authority = host::authority(request).map_err(|detail| self.stop(ProblemKind::BadHost, detail))?;
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
            certificate: self.peer.certificate.as_deref(),
        };
        let gate = &self.worker.shared.gate;
        // Over HTTP/2 a body may come without a field that says so.
        facts.is_free_preflight =
            request.is_bodyless() && gate.frees_preflight(policy, &facts, gate.clock().at(self.began));
        tally.identified(facts.client_ip, facts.host, &path);
        let mut check = Check { facts: &facts, is_grpc: asked.is_grpc, wire, tally, passed };
        let way = self.both_stages(&mut check, request).await?;
        let Way { upstream, rewrite, upgrades, max_body } = way;
        let upgrade = request.upgrade(upgrades);
        let requirements = Requirements {
            affinity: upstream.affinity(&facts),
            is_exclusive: upgrade.is_some() || upstream.proxy_protocol().is_some(),
            preamble: upstream.proxy_protocol().map(|version| self.peer.header(version)),
            client: self.peer.client.clone(),
        };
        let client = facts.client_ip;
        Ok(Admitted { path, query, authority, believed, client, upstream, rewrite, max_body, upgrade, requirements })
    }

    /// Gives the way that it goes.
    async fn both_stages(&self, check: &mut Check<'_, '_, '_, 'v>, request: &Request<'_>) -> Result<Way<'v>, Stop<'v>> {
        let (facts, is_grpc) = (check.facts, check.is_grpc);
        let clock = self.worker.shared.gate.clock();
        let now = clock.at(self.began);
        let policy = &self.view.current.live.policy;
        let access = policy.access.as_deref();
        let mut is_free = match access {
            Some(access) => self.arrive(access, facts, is_grpc)?,
            None => false,
        };
        if !is_free && policy.has_arrival() {
            // In the place of what comes after it, so that those who wait are smaller.
            self.pass(check, Stage::Arrival, now).await?;
            check.passed.arrived(self.view.current.settings.profiles);
        }
        // After the stage that counts every request, and before anything is charged that has to do with services.
        let way = self.way(facts, request, is_grpc)?;
        let now = if self.waited.get() { clock.now() } else { now };
        if let Some(access) = access.filter(|access| access.looks_beyond_arrival()) {
            is_free |= self.enter(access, facts, is_grpc, now)?;
        }
        if !is_free {
            self.pass(check, Stage::Identified, now).await?;
        }
        check.passed.was_held = self.waited.get();
        check.tally.outcome = if check.passed.was_held { Outcome::Held } else { Outcome::Forwarded };
        Ok(way)
    }

    /// The way of the first route that takes the request, or of all if there are no routes.
    fn way(&self, facts: &Facts<'_>, request: &Request<'_>, is_grpc: bool) -> Result<Way<'v>, Stop<'v>> {
        let (view, mut route) = (self.view, None);
        if let Some(routes) = &view.current.settings.routes {
            route = Some(routes.find(facts).ok_or_else(|| {
                self.count(ProblemKind::NoRoute);
                Answer::new(ProblemKind::NoRoute, "no route leads anywhere for this request", is_grpc)
            })?);
        }
        let upstream = &view.upstreams[route.map_or(0, |route| route.upstream)];
        let upgrades = route.and_then(|route| route.upgrades.as_ref()).unwrap_or_else(|| upstream.upgrades());
        if request.is_refused_connect(upgrades) {
            return Err(self.stop(ProblemKind::MethodRefused, NO_TUNNEL));
        }
        let max_body = route.and_then(|route| route.max_body_bytes);
        let max_body = max_body.unwrap_or(view.current.settings.bounds.max_body_bytes);
        if matches!(request.framing, Framing::Length(len) if len > max_body) {
            self.count(ProblemKind::BodyTooLarge);
            return Err(Answer::new(ProblemKind::BodyTooLarge, error::BODY_TOO_LARGE, is_grpc).into());
        }
        Ok(Way { upstream, rewrite: route.and_then(|route| route.rewrite.as_ref()), upgrades, max_body })
    }

    /// Whether its address or its path frees the request from all limits.
    fn arrive(&self, access: &Access, facts: &Facts<'_>, is_grpc: bool) -> Result<bool, Stop<'v>> {
        access.on_arrival(facts.client_ip, facts.path).map_err(|ground| self.denied(ground, is_grpc))
    }

    /// Whether who it is from frees the request from the limits of the identified stage.
    fn enter(&self, access: &'v Access, facts: &Facts<'_>, is_grpc: bool, now: Timestamp) -> Result<bool, Stop<'v>> {
        let entered = self.worker.shared.gate.enter(&self.view.current.live, access, facts, now);
        entered.map_err(|shut| match shut {
            Shut::Denied(ground) => self.denied(ground, is_grpc),
            Shut::Unidentified(missing) => self.unkeyed(missing.into(), is_grpc),
        })
    }

    fn denied(&self, ground: DenialReason<'_>, is_grpc: bool) -> Stop<'v> {
        self.count(ProblemKind::Denied);
        Answer::denied(ground, is_grpc).into()
    }

    fn unkeyed(&self, unkeyed: Unkeyed<'_>, is_grpc: bool) -> Stop<'v> {
        let answer = match unkeyed {
            Unkeyed::Unidentified(missing) => Answer::unidentified(&missing, is_grpc),
            Unkeyed::Several(part) => {
                Answer::new(ProblemKind::SeveralValues, self.view.current.live.policy.several(part), is_grpc)
            }
        };
        self.count(answer.kind());
        answer.into()
    }

    /// Decides one stage, and waits if it must.
    async fn pass(&self, check: &mut Check<'_, '_, '_, 'v>, stage: Stage, now: Timestamp) -> Result<(), Stop<'v>> {
        let Check { facts, is_grpc, wire, tally, passed: so_far } = check;
        let (facts, is_grpc, wire) = (*facts, *is_grpc, wire.as_deref_mut());
        let gate = &self.worker.shared.gate;
        let live = &self.view.current.live;
        let passed = match gate.admit_into(&mut so_far.identified, (live, stage), facts, || facts.head_bytes(), now) {
            Ok(None) => return Ok(()),
            Ok(Some(Step::Pass(passed))) => Ok(*passed),
            Ok(Some(Step::Refuse(refusal))) => Err(*refusal),
            // Boxed, so that those who need not wait are smaller.
            Ok(Some(Step::Wait(waiting))) => {
                let held_by = waiting.held_by();
                self.held(held_by, wait(Box::pin(waiting.wait()), wire), tally).await?
            }
            Ok(Some(Step::Delay(delayed))) => {
                let held_by = delayed.held_by();
                self.held(held_by, wait(Box::pin(delayed.wait()), wire), tally).await?
            }
            Err(unkeyed) => return Err(self.unkeyed(unkeyed, is_grpc)),
        };
        match passed {
            Ok(passed) => so_far.identified = passed,
            Err(refusal) => {
                tally.rejected(&refusal);
                return Err(Answer::refusal(so_far.refused(refusal), is_grpc).into());
            }
        }
        Ok(())
    }

    /// Waits for a turn, and takes note of it.
    async fn held(
        &self,
        held_by: &'v str,
        turn: Pin<Box<dyn Future<Output = Turn<'v>> + '_>>,
        tally: &mut Tally<'_>,
    ) -> Turn<'v> {
        tally.outcome = Outcome::Abandoned;
        tally.waits(held_by);
        self.waited.set(true);
        let passed = turn.await?;
        tally.waited();
        tally.outcome = Outcome::Refused; // until something else becomes of it
        Ok(passed)
    }
}

/// How a wait ended.
type Turn<'v> = Result<Result<Pass<'v>, Refusal<'v>>, Stop<'v>>;

/// Waits until the request passes, is refused after all, or has nobody left to answer.
fn wait<'w, 'v: 'w>(
    turn: Pin<Box<dyn Future<Output = Result<Pass<'v>, Refusal<'v>>> + 'w>>,
    wire: Option<&'w mut Wire>,
) -> Pin<Box<dyn Future<Output = Turn<'v>> + 'w>> {
    let Some(wire) = wire else { return Box::pin(async { Ok(turn.await) }) };
    Box::pin(async {
        tokio::select! {
            biased;
            passed = turn => Ok(passed),
            () = wire.gone() => Err(Stop::Abandoned),
        }
    })
}
