//! What would become of a request now, and why. Charges nothing, counts nothing, and lets nobody wait.
//!
//! Limits are matched, keyed and asked by the code that decides requests; only what they say is not acted upon. The
//! bodies here are those of the operators' API, in both directions.

use std::net::IpAddr;
use std::time::Duration;
use std::{error, fmt};

use http::{HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::access::Shut;
use super::admit::{Requester, holding};
use super::check::{Check, Checks, is_delayed, is_denied, is_limited};
use super::identify::{Unidentified, Why};
use super::queue::enqueue::Candidate;
use super::queue::wait::UNKNOWN_NS;
use super::refusal::Cause;
use super::state::{Gate, Live};
use crate::fields::FieldBuf;
use crate::limit::{Algorithm, Decision, Retry};
use crate::policy::path::escaped_query;
use crate::policy::{Facts, Limit, Mode, Principal, Stage, Variant, client_ip, host};
use crate::time::Timestamp;

/// A request that is only asked about.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its method.
    pub method: String,
    /// Its path, with the query if it has one.
    pub path: String,
    /// Its host, perhaps with a port.
    pub host: String,
    /// The client's address; that is, what trusted proxies would say it is.
    pub ip: IpAddr,
    /// Its headers, names and values.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

/// Why a question makes no sense; for whoever asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionError(String);

impl fmt::Display for QuestionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for QuestionError {}

/// What would become of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The request as limits see it: method, host and path without the query.
    pub request: String,
    /// The client's address.
    pub ip: IpAddr,
    /// Every limit, in the order of the configuration.
    pub limits: Vec<LimitExplained>,
    /// `admitted`, `held`, `delayed`, `rejected`, `denied`, `unidentified` or `several_values`.
    pub decision: String,
    /// Why, in a sentence.
    pub why: String,
    /// The limits that refuse it or make it wait.
    pub violated: Vec<String>,
    /// Milliseconds until it passes, or could; none if it passes at once, never, or nobody knows when.
    pub retry_after_ms: Option<u64>,
    /// Of what applies and admits, the least that remains.
    pub remaining: Option<u64>,
}

/// One limit, as far as it concerns a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitExplained {
    /// Its name.
    pub limit: String,
    /// `arrival` or `identified`.
    pub stage: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Why it does not apply; empty if it does.
    pub why_not: Vec<String>,
    /// Whose budget it is and what is in it, if it applies and the request gets so far.
    pub budget: Option<BudgetExplained>,
}

/// The budget that a limit would charge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetExplained {
    /// The parts of the key and their texts, without secrets.
    pub key: Vec<(String, String)>,
    /// How much there is, in words; none if the key has no limit.
    pub rule: Option<String>,
    /// `limit`, `plan NAME`, `override` or `override set at run time`: where that is said.
    pub from: String,
    /// Units that the request takes.
    pub cost: u64,
    /// Whether it admits the request.
    pub admits: bool,
    /// Whole units left, after the request if it admits it.
    pub remaining: u64,
    /// Units charged beyond the limit and not yet paid.
    pub debt: u64,
    /// Milliseconds until all are there again; none if nobody knows.
    pub reset_after_ms: Option<u64>,
    /// Milliseconds until it could admit the request; none if it does, never will, or nobody knows.
    pub retry_after_ms: Option<u64>,
    /// Requests that wait on the key.
    pub waiting: usize,
}

impl fmt::Display for Unidentified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::Missing => write!(f, "{}: none given", self.identity),
            Why::Several => write!(f, "{}: more than one given", self.identity),
            Why::Token(error) => write!(f, "{}: {error}", self.identity),
        }
    }
}

impl Gate {
    /// What would become of a request at `now`.
    ///
    /// # Errors
    /// What is wrong with the question.
    pub fn explain(&self, live: &Live, question: &Question, now: Timestamp) -> Result<Explanation, QuestionError> {
        let wrong = |what: &str, why: &dyn fmt::Display| QuestionError(format!("{what}: {why}"));
        let method = Method::from_bytes(question.method.as_bytes()).map_err(|error| wrong("method", &error))?;
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
            certificate: None,
        };
        facts.is_free_preflight = self.would_free_preflight(&live.policy, &facts, now);
        Ok(self.explained(live, &facts, now))
    }

    fn explained(&self, live: &Live, facts: &Facts<'_>, now: Timestamp) -> Explanation {
        let limits = live.policy.limits();
        let mut told: Vec<LimitExplained> =
            limits.iter().enumerate().map(|(index, limit)| named(live, index, limit, facts)).collect();
        let verdict = self.verdict(live, facts, now, &mut told);
        let Verdict { decision, why, violated, retry_after_ms, .. } = verdict;
        let budgets = told.iter().filter(|told| told.mode == "enforce").filter_map(|told| told.budget.as_ref());
        let left = budgets.filter(|budget| budget.admits && budget.rule.is_some()).map(|budget| budget.remaining);
        Explanation {
            request: format!("{} {}{}", facts.method, facts.host, facts.path),
            ip: facts.client_ip,
            decision: decision.to_owned(),
            why: if why.is_empty() { "no limit refuses it".to_owned() } else { why },
            violated,
            retry_after_ms,
            remaining: left.min(),
            limits: told,
        }
    }

    /// Access lists and both stages, in the order in which a request meets them.
    fn verdict(&self, live: &Live, facts: &Facts<'_>, now: Timestamp, told: &mut [LimitExplained]) -> Verdict {
        const FREE: &str = "[access] frees it from limits";
        let access = live.policy.access.as_deref();
        let free = |why: &str| Verdict { why: why.to_owned(), ..Verdict::default() };
        match access.map(|access| access.on_arrival(facts.client_ip, facts.path)) {
            Some(Err(ground)) => return Verdict::shut("denied", &ground),
            Some(Ok(true)) => return self.entered(live, facts, now).err().unwrap_or_else(|| free(FREE)),
            Some(Ok(false)) | None => {}
        }
        let arrived = self.stage(live, Stage::Arrival, facts, now, Verdict::default(), told);
        if arrived.is_refused() {
            return arrived;
        }
        match self.entered(live, facts, now) {
            Err(shut) => shut,
            Ok(true) => free(FREE),
            Ok(false) => self.stage(live, Stage::Identified, facts, now, arrived, told),
        }
    }

    /// Whether who asks is freed from limits; what is told to someone who is shut out.
    fn entered(&self, live: &Live, facts: &Facts<'_>, now: Timestamp) -> Result<bool, Verdict> {
        let Some(access) = live.policy.access.as_deref().filter(|access| access.looks_beyond_arrival()) else {
            return Ok(false);
        };
        self.enter(live, access, facts, now).map_err(|shut| match shut {
            Shut::Denied(ground) => Verdict::shut("denied", &ground),
            Shut::Unidentified(missing) => Verdict::shut("unidentified", &missing),
        })
    }

    fn stage(
        &self,
        live: &Live,
        stage: Stage,
        facts: &Facts<'_>,
        now: Timestamp,
        before: Verdict,
        told: &mut [LimitExplained],
    ) -> Verdict {
        let mut checks = Checks::default();
        live.find(stage, facts, &mut checks);
        let needs_identity = stage == Stage::Identified && live.needs_identity;
        let identified = needs_identity.then(|| self.identify(live, facts, checks.charges(), now)).transpose();
        let (identities, plan) = match identified {
            Ok(identified) => identified.unwrap_or_default(),
            Err(missing) => return Verdict::shut("unidentified", &missing),
        };
        let requester = Requester { facts, identities: &identities, plan: plan.as_deref() };
        if let Err(part) = self.compute_keys(live, requester, checks.charges_mut(), now) {
            return Verdict::shut("several_values", &live.policy.several(part));
        }
        for check in checks.charges() {
            told[check.check.applied.index].budget = Some(self.budget(live, check, facts, &identities, now));
        }
        checks.retain(is_limited);
        let banned = |check: &Check<'_>| check.check.state.banned_ns(check.check.applied.limit, check.key, now);
        let name = |check: &Check<'_>| check.check.state.name.to_string();
        if let Some(ban_ns) = checks.charges().iter().filter_map(banned).max() {
            let names = checks.charges().iter().filter(|check| banned(check).is_some()).map(name);
            return Verdict::rejected("it is banned", names.collect(), known_ms(ban_ns));
        }
        checks.peek(now);
        let denying = || checks.charges().iter().filter(|check| is_denied(check));
        let violated: Vec<_> = before.violated.iter().cloned().chain(denying().map(name)).collect();
        if violated.len() == before.violated.len() {
            let late: Vec<_> = checks.charges().iter().filter(|check| is_delayed(check)).map(name).collect();
            if late.is_empty() {
                return before;
            }
            let violated = violated.into_iter().chain(late).collect();
            return Verdict { decision: "delayed", why: "beyond limits that delay".to_owned(), violated, ..before };
        }
        let retry = denying().filter_map(|check| check.decision().denied).max();
        let Some(holding) = holding(checks.charges()) else {
            let why = match retry {
                Some(Retry::Never) => "it costs more than can ever be there",
                _ => "beyond a limit that rejects",
            };
            return Verdict::rejected(why, violated, retry.and_then(retry_ms));
        };
        let footprint = live.footprint(facts, facts.head_bytes());
        let candidate = Candidate { gate: self, caps: live.caps, items: SmallVec::new(), plan: None, footprint, now };
        match candidate.foresee(&holding) {
            Ok(expected_ns) => Verdict {
                decision: "held",
                why: "beyond limits that hold".to_owned(),
                violated,
                retry_after_ms: known_ms(expected_ns).max(before.retry_after_ms),
            },
            Err((cause, expected_ns)) => {
                let why = match cause {
                    Cause::WaitTooLong => "it would wait longer than it may",
                    Cause::QueueFull => "too many are waiting",
                    Cause::ShuttingDown => "Weir is shutting down",
                    Cause::Limit | Cause::Banned => "beyond a limit",
                };
                Verdict::rejected(why, violated, known_ms(expected_ns))
            }
        }
    }

    fn budget(
        &self,
        live: &Live,
        case: &Check<'_>,
        facts: &Facts<'_>,
        whos: &[Principal<'_>],
        now: Timestamp,
    ) -> BudgetExplained {
        let limit = case.check.applied.limit;
        let names = limit.key.iter().map(|part| live.policy.part_name(part).into_owned());
        let key = names.zip(live.policy.shown(&self.secret, &case.check.applied, facts, whos)).collect();
        let from = match case.check.variant {
            Variant::Usual => "limit".to_owned(),
            Variant::Plan(place) => {
                let plan = limit.allowed.plans.get(usize::from(place));
                plan.map_or_else(String::new, |(name, _)| format!("plan {name}"))
            }
            Variant::Override(_) if limit.allowed.is_set(case.check.variant) => "override set at run time".to_owned(),
            Variant::Override(_) => "override".to_owned(),
        };
        let rule = limit.allowed.rule(case.check.variant);
        let decision = rule.map_or(Decision { denied: None, remaining: 0, reset_after_ns: 0 }, |rule| {
            case.check.state.table.peek(case.key, rule, case.cost, now)
        });
        BudgetExplained {
            key,
            rule: rule.map(in_words),
            from,
            cost: case.cost,
            admits: decision.is_admitted() && !case.check.is_queued,
            remaining: decision.remaining,
            debt: rule.map_or(0, |rule| case.check.state.table.over(case.key, rule, now)),
            reset_after_ms: known_ms(decision.reset_after_ns),
            retry_after_ms: decision.denied.and_then(retry_ms),
            waiting: case.check.state.queues.backlog(case.key).waiting,
        }
    }
}

/// What the stages say together.
struct Verdict {
    decision: &'static str,
    why: String,
    violated: Vec<String>,
    retry_after_ms: Option<u64>,
}

impl Default for Verdict {
    fn default() -> Self {
        Self { decision: "admitted", why: String::new(), violated: Vec::new(), retry_after_ms: None }
    }
}

impl Verdict {
    fn shut(decision: &'static str, why: &dyn fmt::Display) -> Self {
        Self { decision, why: why.to_string(), ..Self::default() }
    }

    fn rejected(why: &str, violated: Vec<String>, retry_after_ms: Option<u64>) -> Self {
        Self { decision: "rejected", why: why.to_owned(), violated, retry_after_ms }
    }

    fn is_refused(&self) -> bool {
        matches!(self.decision, "rejected" | "unidentified" | "several_values" | "denied")
    }
}

fn named(live: &Live, index: usize, limit: &Limit, facts: &Facts<'_>) -> LimitExplained {
    let why_not = live.policy.applies(index, facts).err().unwrap_or_default();
    LimitExplained {
        limit: limit.name.to_string(),
        stage: match limit.stage {
            Stage::Arrival => "arrival",
            Stage::Identified => "identified",
        }
        .to_owned(),
        mode: match limit.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        }
        .to_owned(),
        why_not: why_not.iter().map(ToString::to_string).collect(),
        budget: None,
    }
}

/// A rule as an operator reads it.
fn in_words(rule: &Algorithm) -> String {
    let duration = |ns| humantime::format_duration(Duration::from_nanos(ns));
    match rule {
        Algorithm::Several(rules) => rules.iter().map(in_words).collect::<Vec<_>>().join(", and "),
        rule => {
            let (name, units) = (rule.name(), rule.capacity());
            match (rule.interval_ns(), rule.period_ns()) {
                (0, None) => format!("{name} of {units}"),
                (0, Some(period_ns)) => format!("{name} of {units} per {}", duration(period_ns)),
                (interval_ns, _) => format!("{name} of {units}, one back every {}", duration(interval_ns)),
            }
        }
    }
}

fn retry_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::AfterNs(ns) => known_ms(ns),
        Retry::Never => None,
    }
}

/// Milliseconds, rounded up; none for what stands for a time that nobody knows, or never.
fn known_ms(ns: u64) -> Option<u64> {
    (ns < UNKNOWN_NS - 1).then(|| ns.div_ceil(1_000_000))
}
