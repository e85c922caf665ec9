//! `envoy.service.ratelimit.v3.RateLimitService`: decides about the descriptors that Envoy sends for a request.
//!
//! All descriptors are charged, or none. A descriptor that no rule fits has no limit. A descriptor may have a rate of its
//! own, which replaces the configured one if its rule accepts that. Units that are spent already, or given back, are no
//! part of the decision.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tonic::{Request, Response, Status};

use super::answer::{duration, retry_ns};
use super::checks::{LimiterApi, ended};
use super::proto::envoy::config::core::v3::HeaderValue;
use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::server::Server;
use super::watched::WatchedCheck;
use crate::engine::gate::{Budgets, Decider, Live, NamedCharge, NamedItem, NamedVerdict, UNITS_MAX, decisive};
use crate::engine::limit::{Pace, Rate};
use crate::engine::policy::descriptors::Entry;
use crate::transport::respond::{Disposition, HeaderSink, Profiles, limit_headers};

/// Descriptors of one request at most. Envoy sends one for each of its rate limit rules.
const DESCRIPTORS_MAX: usize = 256;

const NS_PER_S: u64 = 1_000_000_000;
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[tonic::async_trait]
impl RateLimitService for LimiterApi {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let watched = self.server.watch(request.extensions().get().copied(), SHOULD_RATE_LIMIT);
        let request = request.into_inner();
        if let Some(response) = self.server.rate_limit(&request, watched)? {
            return Ok(Response::new(response));
        }
        let server = Arc::clone(&self.server);
        let asked =
            self.tasks.begin(move |stores| async move { server.rate_limit_by(&request, watched, &*stores).await });
        asked.await.map_err(|_| ended())?.map(Response::new)
    }
}

/// The charges of a request, and the part of each descriptor.
#[derive(Default)]
struct DescriptorCharges {
    charges: Vec<NamedCharge>,
    parts: Vec<Part>,
}

/// The part of a descriptor.
struct Part {
    charges: Range<usize>,
    /// The rate that replaces the configured one.
    requested: Option<RateLimitOverride>,
    report: Option<Report>,
}

/// Units that are charged or given back whatever the decision is.
struct Report {
    charges: Vec<NamedCharge>,
    /// The units that are given back.
    charged: u64,
    /// The units that are charged, whether they fit or not.
    cost: u64,
}

impl Server {
    /// Decides about a request; `None` if a store has to be asked.
    fn rate_limit(
        &self,
        request: &RateLimitRequest,
        watched: Option<WatchedCheck>,
    ) -> Result<Option<RateLimitResponse>, Status> {
        let live = self.live.load();
        let all = self.charges_of_descriptors(&live, request)?;
        let verdict = self.gate.decide_named(&live, &all.charges);
        Ok(verdict.map(|verdict| self.rate_limited(watched, &live, &all, &verdict)))
    }

    /// Decides about a request with stores.
    async fn rate_limit_by(
        &self,
        request: &RateLimitRequest,
        watched: Option<WatchedCheck>,
        stores: &impl Decider,
    ) -> Result<RateLimitResponse, Status> {
        let live = self.live.load();
        let all = self.charges_of_descriptors(&live, request)?;
        let verdict = self.gate.decide_named_by(&live, &all.charges, stores).await;
        Ok(self.rate_limited(watched, &live, &all, &verdict))
    }

    /// The response to a decided request, whose reports are charged here. Operators who watch see the decision.
    fn rate_limited(
        &self,
        watched: Option<WatchedCheck>,
        live: &Live,
        all: &DescriptorCharges,
        verdict: &NamedVerdict<'_>,
    ) -> RateLimitResponse {
        if let Some(watched) = watched {
            self.show(watched, live, &all.charges, verdict);
        }
        let now = self.gate.clock().now();
        for Report { charges, charged, cost } in all.parts.iter().filter_map(|part| part.report.as_ref()) {
            for charge in charges {
                let _ = self.gate.report(live, charge, *charged, *cost, now);
            }
        }
        self.rate_limit_response(verdict, &all.parts)
    }

    fn charges_of_descriptors(&self, live: &Live, request: &RateLimitRequest) -> Result<DescriptorCharges, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        if domain.is_empty() || descriptors.is_empty() {
            self.checks.invalid.inc();
            return Err(Status::invalid_argument("expected a domain and at least one descriptor"));
        }
        if descriptors.len() > DESCRIPTORS_MAX {
            self.checks.invalid.inc();
            return Err(Status::invalid_argument(format!("expected at most {DESCRIPTORS_MAX} descriptors")));
        }
        let usual = u64::from((*hits_addend).max(1));
        let mut all = DescriptorCharges::default();
        for RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits } in descriptors {
            // Bytes of clients that are not UTF-8 are replaced. An error would let a client choose that nothing is charged.
            let lossy =
                entries.iter().map(|entry| [&entry.key, &entry.value].map(|text| String::from_utf8_lossy(text)));
            let texts: SmallVec<[_; 4]> = lossy.collect();
            let entries: SmallVec<[Entry<'_>; 4]> = texts.iter().map(|[key, value]| (&**key, &**value)).collect();
            let units = hits_addend.unwrap_or(usual).min(UNITS_MAX);
            let rule = live.policy.descriptors.of_domain(domain, &entries);
            let requested = limit.filter(|_| rule.is_some_and(|rule| rule.accepts_limit));
            if rule.is_none() {
                self.checks.rate_limit.unmatched.inc();
            }
            // A descriptor whose units are spent already is decided as one that looks.
            let is_spent = rule.is_some_and(|rule| rule.is_reported);
            let decided = if is_spent || *is_negative_hits { 0 } else { units };
            let own = rule.map(|rule| self.charges(live, rule, &entries, None, decided)).transpose()?;
            let mut own = own.unwrap_or_default();
            if let Some(limit) = requested {
                own = self.with_limit(live, own, limit, &all).map_err(|what| {
                    self.checks.invalid.inc();
                    Status::invalid_argument(format!("descriptors[{}].limit: {what}", all.parts.len()))
                })?;
            }
            let report = (decided < units).then(|| {
                let (charged, cost) = if *is_negative_hits { (units, 0) } else { (0, units) };
                Report { charges: own.clone(), charged, cost }
            });
            if *is_negative_hits {
                own.clear();
            }
            let start = all.charges.len();
            all.charges.append(&mut own);
            all.parts.push(Part { charges: start..all.charges.len(), requested, report });
        }
        Ok(all)
    }

    /// These charges by the limit of their descriptor, which comes after those of `earlier`.
    ///
    /// # Errors
    /// Why the limit cannot be in force.
    fn with_limit(
        &self,
        live: &Live,
        charges: Vec<NamedCharge>,
        limit: RateLimitOverride,
        earlier: &DescriptorCharges,
    ) -> Result<Vec<NamedCharge>, String> {
        let period_s = seconds(limit.unit).ok_or_else(|| format!("there is no unit {}", limit.unit))?;
        let rate = Rate { count: limit.requests_per_unit.into(), period_ns: period_s * NS_PER_S };
        let charges = charges.into_iter().map(|charge| self.gate.with_rate(live, charge, rate));
        let charges: Vec<_> = charges.collect::<Result<_, _>>().map_err(|error| format!("the rate {error}"))?;
        let is_contradicted = |known: &NamedCharge| charges.iter().any(|own| own.contradicts(known));
        match earlier.charges.iter().position(is_contradicted) {
            None => Ok(charges),
            Some(at) => {
                let part = earlier.parts.iter().position(|part| part.charges.contains(&at)).unwrap_or_default();
                Err(format!("descriptors[{part}] has the same key and unit, and another `requests_per_unit`"))
            }
        }
    }

    fn rate_limit_response(&self, verdict: &NamedVerdict<'_>, parts: &[Part]) -> RateLimitResponse {
        let NamedVerdict { is_admitted, items } = verdict;
        let checks = &self.checks.rate_limit;
        if *is_admitted { &checks.allowed } else { &checks.refused }.inc();
        let status_of = |part: &Part| status(items.get(part.charges.clone()).unwrap_or_default(), part.requested);
        let statuses = parts.iter().map(status_of);
        let profiles = self.settings.load().settings.profiles;
        RateLimitResponse {
            overall_code: if *is_admitted { Code::Ok } else { Code::OverLimit }.into(),
            statuses: statuses.collect(),
            response_headers_to_add: profiles.map(|profiles| headers(verdict, profiles)).unwrap_or_default(),
            request_headers_to_add: Vec::new(),
        }
    }
}

/// The status of a descriptor with these limits. `requested` is its own rate, if that is in force.
fn status(items: &[Option<NamedItem<'_>>], requested: Option<RateLimitOverride>) -> DescriptorStatus {
    let Some(item) = decisive(items) else {
        return DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    };
    let code = if item.denial.is_some() { Code::OverLimit } else { Code::Ok };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(requested.map_or_else(|| current_limit(item), |requested| own_limit(item, requested))),
        limit_remaining: u32::try_from(item.standing.remaining).unwrap_or(u32::MAX),
        duration_until_reset: duration(item.standing.reset_after_ns),
    }
}

/// The rate of a limit in Envoy's terms. The unit is unknown if no unit gives a whole number.
fn current_limit(item: &NamedItem<'_>) -> RateLimit {
    let rates = item.rule.rates();
    let tightest = rates.iter().find(|rate| rate.capacity() == item.standing.burst).unwrap_or(item.rule);
    let pace = tightest.pace(item.standing.at).unwrap_or(Pace { units: item.standing.burst, window_s: 0 });
    let (requests_per_unit, unit) = per_unit(pace);
    RateLimit { requests_per_unit, unit: unit.into(), name: item.limit.name.to_string() }
}

fn own_limit(item: &NamedItem<'_>, requested: RateLimitOverride) -> RateLimit {
    let RateLimitOverride { requests_per_unit, unit } = requested;
    RateLimit { requests_per_unit, unit, name: item.limit.name.to_string() }
}

/// The units of time and their seconds. Months and years are as long as in Envoy's own service.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3600),
    (Unit::Day, 86_400),
    (Unit::Week, 604_800),
    (Unit::Month, 2_592_000),
    (Unit::Year, 31_536_000),
];

/// The seconds of a unit, whose numbers are the same in requests and in answers; `None` if it is unknown.
fn seconds(unit: i32) -> Option<u64> {
    UNITS.into_iter().find(|(known, _)| i32::from(*known) == unit).map(|(_, seconds)| seconds)
}

fn per_unit(pace: Pace) -> (u32, Unit) {
    let Pace { units, window_s } = pace;
    let whole = |(unit, seconds): (Unit, u64)| {
        let total = u128::from(units) * u128::from(seconds);
        let window = u128::from(window_s);
        let count = total.checked_div(window).filter(|count| *count > 0 && count * window == total)?;
        Some((u32::try_from(count).ok()?, unit))
    };
    let exact = UNITS.into_iter().filter(|(_, seconds)| *seconds == window_s);
    let found = exact.chain(UNITS).find_map(whole);
    found.unwrap_or((u32::try_from(units).unwrap_or(u32::MAX), Unit::Unknown))
}

/// The limit headers of an answer that Weir would make, and `retry-after`.
fn headers(verdict: &NamedVerdict<'_>, profiles: Profiles) -> Vec<HeaderValue> {
    let mut headers = Headers::default();
    let Some(item) = verdict.decisive() else { return headers.0 };
    let retry_after_s = item.denial.and_then(retry_ns).map(|ns| ns.div_ceil(NS_PER_S).max(1));
    let disposition = if verdict.is_admitted { Disposition::Forwarded } else { Disposition::Refused { retry_after_s } };
    let budgets: Budgets<'_> = verdict.items.iter().flatten().filter_map(|item| item.budget.clone()).collect();
    limit_headers(&mut headers, profiles, &item.standing, &budgets, disposition);
    if let Some(retry_after_s) = retry_after_s {
        headers.put("retry-after", &retry_after_s.to_string());
    }
    headers.0
}

/// Headers in Envoy's form.
#[derive(Default)]
struct Headers(Vec<HeaderValue>);

impl HeaderSink for Headers {
    fn put(&mut self, name: &'static str, value: &str) {
        self.0.push(HeaderValue { key: name.to_owned(), value: value.to_owned(), raw_value: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_whole_numbers_in_a_unit() {
        for (units, window_s, expected) in [
            (100, 60, (100, Unit::Minute)),
            (100, 2, (50, Unit::Second)),
            (5, 900, (20, Unit::Hour)),
            (10, 1, (10, Unit::Second)),
            (1000, 86_400, (1000, Unit::Day)),
            (7, 604_800, (7, Unit::Week)),
            (1, 7, (86_400, Unit::Week)),
            (3, 0, (3, Unit::Unknown)),
            (u64::MAX, 60, (u32::MAX, Unit::Unknown)),
            (1, 2_592_000, (1, Unit::Month)),
            (5, 31_536_000, (5, Unit::Year)),
            (1, 31_622_400, (1, Unit::Unknown)),
        ] {
            assert_eq!(per_unit(Pace { units, window_s }), expected, "{units}/{window_s}");
        }
    }
}
