//! Explains what would happen to a request now. Charges nothing, counts nothing, and takes no place in a queue.
//!
//! Limits are matched, keyed and decided by the code that decides requests. Not here: the JSON of the operators' API
//! (admin).

mod budget;
mod remote;
mod routing;
mod tightness;

pub use self::budget::{BudgetExplanation, RuleSource};
pub use self::remote::RemoteExplanation;
pub use self::routing::{RouteExplanation, Routing};

use std::fmt;
use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method};
use smallvec::SmallVec;

use self::budget::known_ns;
pub(super) use self::budget::{budget_of, retry_ns};
use super::access::{AccessError, enter_as};
use super::adapted_rate::AdaptedRate;
use super::admit::{Requester, holding};
use super::check::{Check, Checked as _, Checks, banned_ns, enforce_rejection, is_delayed, is_denied, is_limited};
use super::identify::{RequestIdentities, identify_for};
use super::queue::enqueue::Candidate;
use super::refusal::Cause;
use super::state::{Gate, Live};
use super::stated::Stated;
use super::verdict::{Rejection, Verdict};
use crate::base::fields::FieldBuf;
use crate::base::time::Timestamp;
use crate::engine::limit::Retry;
use crate::engine::limit::tightness::Tightness;
use crate::engine::policy::path::escaped_query;
use crate::engine::policy::{Facts, Limit, Mismatch, Mode, Priority, Stage, client_ip, host};
use crate::engine::store::Charge;

/// A request to explain.
#[derive(Clone, Debug)]
pub struct Question {
    /// The method.
    pub method: String,
    /// The path, with the query if there is one.
    pub path: String,
    /// The host, with the port if there is one.
    pub host: String,
    /// The client's address, as trusted proxies would report it.
    pub ip: IpAddr,
    /// Names and values of the headers.
    pub headers: Vec<(String, String)>,
    /// Names and texts of identities, in place of those that the headers show.
    pub identities: Vec<(String, String)>,
    /// The plan, in place of that of the headers.
    pub plan: Option<String>,
}

/// Why a question cannot be answered, as a message for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuestionError(String);

/// What would happen to a request, and why.
#[derive(Clone, Debug)]
pub struct Explanation<'l> {
    /// The request as limits see it: method, host and path without the query.
    pub request: String,
    /// The client's address.
    pub ip: IpAddr,
    /// The route; `None` if no route takes the request.
    pub route: Option<RouteExplanation>,
    /// Every limit, in the order of the configuration.
    pub limits: Vec<LimitExplanation<'l>>,
    /// The verdict.
    pub verdict: Verdict<'l>,
    /// The names of the limits that refuse the request, hold it or delay it.
    pub violated: Vec<&'l str>,
    /// Nanoseconds until the request passes, or could; `None` if it passes at once or never, or the wait is unknown.
    pub retry_after_ns: Option<u64>,
    /// Whole units that remain of the tightest limit, as in the headers of the answer; `None` if no limit applies, or if
    /// the key is banned.
    pub remaining: Option<u64>,
}

/// One limit, as far as it concerns a request.
#[derive(Clone, Debug)]
pub struct LimitExplanation<'l> {
    /// The limit.
    pub limit: &'l Limit,
    /// Its mode for the key of the request.
    pub mode: Mode,
    /// Why it does not apply; empty if it does.
    pub mismatches: Vec<Mismatch>,
    /// The budget of the request, if the limit applies and the request gets so far.
    pub budget: Option<BudgetExplanation<'l>>,
    /// Nanoseconds until the ban of the key ends; `None` if it is not banned.
    pub banned_ns: Option<u64>,
    /// The part of its rate; `None` if the limit follows no signal.
    pub adapted: Option<AdaptedRate>,
}

/// A question in the form of a request.
struct StatedRequest<'q, 'f> {
    facts: &'q Facts<'f>,
    stated: &'q Stated,
    /// The identities of which its route needs one; `None` if no route takes it.
    required: Option<&'q [usize]>,
    now: Timestamp,
}

/// The verdict of the stages so far.
#[derive(Default)]
struct Explained<'l> {
    verdict: Option<Verdict<'l>>,
    violated: Vec<&'l str>,
    retry_after_ns: Option<u64>,
    /// The tightness of the limit that the headers of the answer report.
    tightness: Option<Tightness>,
}

impl<'l> Explained<'l> {
    /// The explanation with another verdict. Of the limits only the tightness stays.
    fn ended(self, verdict: Verdict<'l>) -> Self {
        Self { verdict: Some(verdict), tightness: self.tightness, ..Self::default() }
    }

    fn rejected(self, cause: Cause, violated: Vec<&'l str>, retry_after_ns: Option<u64>) -> Self {
        Self { verdict: Some(Verdict::Rejected(Rejection::Cause(cause))), violated, retry_after_ns, ..self }
    }

    fn is_final(&self) -> bool {
        self.verdict.as_ref().is_some_and(Verdict::is_final)
    }
}

impl Gate {
    /// Explains what would happen to a request at `now`, with the route that `routing` has for it.
    ///
    /// # Errors
    /// The problem with the question.
    pub fn explain<'l>(
        &self,
        live: &'l Live,
        question: &Question,
        routing: &Routing,
        now: Timestamp,
    ) -> Result<Explanation<'l>, QuestionError> {
        let wrong = |what: &str, why: &dyn fmt::Display| QuestionError(format!("{what}: {why}"));
        let method = Method::from_bytes(question.method.as_bytes()).map_err(|error| wrong("method", &error))?;
        if method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Err(wrong("method", &"has lower-case letters: such a request is answered with 400"));
        }
        let (path, query) = match question.path.split_once('?') {
            Some((path, query)) => (path, Some(escaped_query(query))),
            None => (&*question.path, None),
        };
        let path = live.policy.paths.matched(path).map_err(|error| wrong("path", &error))?;
        if !question.host.is_empty() && !host::is_authority(&question.host) {
            return Err(wrong("host", &"is not a host"));
        }
        let mut headers = FieldBuf::default();
        for (name, value) in &question.headers {
            let name = HeaderName::try_from(name).map_err(|error| wrong("headers", &error))?;
            let value = HeaderValue::try_from(value.trim_ascii()).map_err(|error| wrong("headers", &error))?;
            headers.push(name.as_str().as_bytes(), value.as_bytes());
        }
        let mut facts = Facts {
            method: &method,
            host: &host::host(&question.host),
            path: &path,
            query: query.as_deref(),
            headers: headers.fields(),
            client_ip: client_ip::unmap(question.ip),
            is_free_preflight: false,
            // An operator states what a trusted proxy would.
            is_proxied: true,
            certificate: None,
            cost: None,
            body: None,
        };
        facts.is_free_preflight = self.would_free_preflight(&live.policy, &facts, now);
        let stated = Stated::new(live, &question.identities, question.plan.as_deref());
        let stated = stated.map_err(|(what, error)| wrong(what, &error))?;
        let (route, required) = routing.find(&facts).unzip();
        let limit = |(index, limit): (usize, &'l Limit)| {
            let mismatches = live.policy.applies(index, &facts).err().unwrap_or_default();
            let adapted = live.adapted_rate(index);
            LimitExplanation { limit, mode: limit.mode, mismatches, budget: None, banned_ns: None, adapted }
        };
        let mut limits: Vec<LimitExplanation<'_>> = live.policy.limits().iter().enumerate().map(limit).collect();
        let request = StatedRequest { facts: &facts, stated: &stated, required, now };
        let explained = self.explain_stages(live, &request, &mut limits);
        let Explained { verdict, violated, retry_after_ns, tightness } = explained;
        Ok(Explanation {
            request: format!("{} {}{}", facts.method, facts.host, facts.path),
            ip: facts.client_ip,
            route,
            limits,
            verdict: verdict.unwrap_or(Verdict::Admitted),
            violated,
            retry_after_ns,
            remaining: tightness.map(|tightness| tightness.remaining),
        })
    }

    /// Explains access lists, the route and both stages, in the order in which a request meets them.
    fn explain_stages<'l>(
        &self,
        live: &'l Live,
        asked: &StatedRequest<'_, '_>,
        limits: &mut [LimitExplanation<'l>],
    ) -> Explained<'l> {
        let &StatedRequest { facts, required, now, .. } = asked;
        if let Some(ban_ns) = self.operator_bans.address_ns(facts.client_ip, now) {
            return Explained::default().rejected(Cause::Banned, Vec::new(), known_ns(ban_ns));
        }
        let access = live.policy.access.as_deref();
        let is_free = match access.map(|access| access.on_arrival(facts.client_ip, facts.path)) {
            Some(Err(ground)) => return Explained::default().ended(Verdict::Denied(ground)),
            Some(Ok(is_free)) => is_free,
            None => false,
        };
        let arrived = if is_free {
            Explained::default()
        } else {
            self.explain_stage((live, Stage::Arrival), asked, Explained::default(), limits)
        };
        if arrived.is_final() {
            return arrived;
        }
        let Some(required) = required else { return arrived.ended(Verdict::NoRoute) };
        let mut request = RequestIdentities::stating(self, live, (facts, asked.stated), now);
        match enter_as(&mut request, required, is_free) {
            Err(AccessError::Denied(ground)) => arrived.ended(Verdict::Denied(ground)),
            Err(AccessError::Unidentified(unidentified)) => arrived.ended(Verdict::Unidentified(unidentified)),
            Ok(true) => arrived.ended(Verdict::Freed),
            Ok(false) => self.explain_stage((live, Stage::Identified), asked, arrived, limits),
        }
    }

    fn explain_stage<'l>(
        &self,
        (live, stage): (&'l Live, Stage),
        asked: &StatedRequest<'_, '_>,
        before: Explained<'l>,
        limits: &mut [LimitExplanation<'l>],
    ) -> Explained<'l> {
        let &StatedRequest { facts, stated, now, .. } = asked;
        let mut checks = Checks::default();
        live.find(stage, facts, &mut checks);
        let mut request = RequestIdentities::stating(self, live, (facts, stated), now);
        let (identities, plan) = match identify_for(&mut request, stage, checks.charges()) {
            Ok(identified) => identified,
            Err(unidentified) => return before.ended(Verdict::Unidentified(unidentified)),
        };
        let requester = Requester { facts, identities: &identities, plan: plan.as_deref() };
        if let Err(part) = self.compute_keys(live, requester, checks.charges_mut(), now) {
            return before.ended(Verdict::SeveralValues(part));
        }
        for check in checks.charges_mut() {
            if let Some(why) = check.unavailable() {
                enforce_rejection(check, why);
            }
        }
        let banned = |check: &&Check<'l>| banned_ns(check, now);
        for check in checks.charges() {
            let explained = &mut limits[check.check.applied.index];
            explained.mode = check.check.mode();
            explained.budget = Some(self.explain_budget(live, check, facts, &identities, now));
            explained.banned_ns = banned(&check);
        }
        if let Some(ban_ns) = checks.charges().iter().filter_map(|check| banned(&check)).max() {
            let violated = names(checks.charges().iter().filter(|check| banned(check).is_some()));
            return Explained::default().rejected(Cause::Banned, violated, known_ns(ban_ns));
        }
        checks.retain(is_limited);
        checks.peek(now);
        for check in checks.charges_mut() {
            if let Some(why) = check.unavailable() {
                check.foresee_fallback(why, now);
            }
        }
        let is_arrival = stage == Stage::Arrival;
        let priority = RequestIdentities::stating(self, live, (facts, stated), now).priority(is_arrival);
        self.explain_checks(live, (facts, priority), now, before, &checks)
    }

    /// Explains the decisions of `checks`.
    fn explain_checks<'l>(
        &self,
        live: &Live,
        (facts, priority): (&Facts<'_>, Priority),
        now: Timestamp,
        before: Explained<'l>,
        checks: &Checks<'l>,
    ) -> Explained<'l> {
        let denying = || checks.charges().iter().filter(|check| is_denied(check));
        let Explained { verdict, mut violated, retry_after_ns, tightness: earlier } = before;
        let Some(denied) = tightness::of_denials(denying(), now) else {
            let delaying = names(checks.charges().iter().filter(|check| is_delayed(check)));
            let verdict = if delaying.is_empty() { verdict } else { Some(Verdict::Delayed) };
            violated.extend(delaying);
            let charged = checks.charges().iter().filter(|check| check.check.mode() == Mode::Enforce);
            let tightness = earlier.into_iter().chain(charged.filter_map(|check| tightness::after(check, now)));
            return Explained { verdict, violated, retry_after_ns, tightness: tightness.reduce(tightness::tighter) };
        };
        violated.extend(names(denying()));
        // A limit of an earlier stage with a longer wait is reported in place of the denying limit.
        let tightness = earlier.filter(|earlier| earlier.denied > denied.denied).or(Some(denied));
        let explained = Explained { tightness, ..Explained::default() };
        let Some(holding) = holding(checks.charges()) else {
            let retry = denying().filter_map(|check| check.decision().denied).max();
            if denying().any(|check| check.check.limit().is_gone()) {
                return explained.rejected(Cause::Gone, violated, None);
            }
            if retry == Some(Retry::Never) {
                let is_zero = denying().any(|check| check.rule.capacity() == 0);
                let verdict = Some(Verdict::Rejected(if is_zero { Rejection::Zero } else { Rejection::Cost }));
                return Explained { verdict, violated, ..explained };
            }
            if denying().any(Charge::is_rejected) {
                let verdict = Some(Verdict::Rejected(Rejection::Store));
                return Explained { verdict, violated, retry_after_ns: retry.and_then(retry_ns), ..explained };
            }
            return explained.rejected(Cause::Limit, violated, retry.and_then(retry_ns));
        };
        let footprint = live.footprint(facts, facts.head_bytes());
        let candidate =
            Candidate { gate: self, caps: live.caps, items: SmallVec::new(), plan: None, footprint, priority, now };
        match candidate.foresee(&holding) {
            Ok(expected_ns) => {
                let retry_after_ns = known_ns(expected_ns).max(retry_after_ns);
                Explained { verdict: Some(Verdict::Held), violated, retry_after_ns, ..explained }
            }
            Err((cause, expected_ns)) => explained.rejected(cause, violated, known_ns(expected_ns)),
        }
    }
}

fn names<'c, 'l: 'c>(checks: impl Iterator<Item = &'c Check<'l>>) -> Vec<&'l str> {
    checks.map(|check| &*check.check.state.name).collect()
}
