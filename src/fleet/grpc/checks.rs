//! Checks by actor, scope and method: their limits, their answers, and their settlement.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tonic::Status;

use super::answer::{check_response, duration};
use super::proto::weir::v1::{CheckRequest, CheckResponse, ReportRequest, ReportResponse};
use super::server::Server;
use super::watched::WatchedCheck;
use crate::engine::gate::{Balance, Decider, Live, NamedCharge, NamedVerdict, StoreTasks, UNITS_MAX, WorkerStores};
use crate::engine::policy::descriptors::{CHECK_ENTRIES, Entry};

/// Bytes of a text of a caller that a status quotes. Clients lose a status that is long.
const QUOTED_BYTES_MAX: usize = 128;

/// The services of checks on one worker.
#[derive(Clone, Debug)]
pub(super) struct LimiterApi {
    pub(super) server: Arc<Server>,
    pub(super) tasks: StoreTasks,
}

/// A check that is decided, or about which stores are asked.
#[derive(Debug)]
pub(super) enum PendingCheck {
    Decided(Result<CheckResponse, Status>),
    Asked(oneshot::Receiver<Result<CheckResponse, Status>>),
}

/// The error of a question to stores whose worker has ended.
pub(super) fn ended() -> Status {
    Status::unavailable("Weir is shutting down")
}

impl Future for PendingCheck {
    type Output = Result<CheckResponse, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Asked(answered) => Pin::new(answered).poll(cx).map(|answer| answer.map_err(|_| ended())?),
            Self::Decided(decided) => {
                let taken = Err(Status::internal("the answer was taken before"));
                Poll::Ready(std::mem::replace(decided, taken))
            }
        }
    }
}

impl LimiterApi {
    /// Decides about a check, or begins to ask stores about it.
    pub(super) fn begin(&self, request: CheckRequest, watched: Option<WatchedCheck>) -> PendingCheck {
        match self.server.check(&request, watched) {
            Ok(None) => {
                let server = Arc::clone(&self.server);
                let check =
                    move |stores: Rc<WorkerStores>| async move { server.check_by(&request, watched, &*stores).await };
                PendingCheck::Asked(self.tasks.begin(check))
            }
            Ok(Some(response)) => PendingCheck::Decided(Ok(response)),
            Err(status) => PendingCheck::Decided(Err(status)),
        }
    }
}

impl Server {
    /// Decides about a check; `None` if a store has to be asked.
    fn check(&self, request: &CheckRequest, watched: Option<WatchedCheck>) -> Result<Option<CheckResponse>, Status> {
        let live = self.live.load();
        let charges = self.charges_of_check(&live, request)?;
        let verdict = self.gate.decide_named(&live, &charges);
        Ok(verdict.map(|verdict| self.checked(watched, &live, &charges, &verdict)))
    }

    /// Decides about a check with stores.
    async fn check_by(
        &self,
        request: &CheckRequest,
        watched: Option<WatchedCheck>,
        stores: &impl Decider,
    ) -> Result<CheckResponse, Status> {
        let live = self.live.load();
        let charges = self.charges_of_check(&live, request)?;
        let verdict = self.gate.decide_named_by(&live, &charges, stores).await;
        Ok(self.checked(watched, &live, &charges, &verdict))
    }

    /// Counts a decision, and shows it to operators who watch.
    fn checked(
        &self,
        watched: Option<WatchedCheck>,
        live: &Live,
        charges: &[NamedCharge],
        verdict: &NamedVerdict<'_>,
    ) -> CheckResponse {
        if let Some(watched) = watched {
            self.show(watched, live, charges, verdict);
        }
        let response = check_response(verdict);
        let counter = if response.allowed { &self.checks.limiter.allowed } else { &self.checks.limiter.refused };
        counter.inc();
        response
    }

    fn charges_of_check(&self, live: &Live, request: &CheckRequest) -> Result<Vec<NamedCharge>, Status> {
        let CheckRequest { actor, scope, method, cost, plan } = request;
        self.charges_of(live, [actor, scope, method], plan, cost.unwrap_or(1))
    }

    /// The charges of an actor, a scope and a method.
    fn charges_of(
        &self,
        live: &Live,
        values: [&String; 3],
        plan: &str,
        units: u64,
    ) -> Result<Vec<NamedCharge>, Status> {
        let invalid = |what: String| {
            self.checks.invalid.inc();
            Status::invalid_argument(what)
        };
        let [actor, scope, method] = values;
        if actor.is_empty() {
            return Err(invalid("actor: expected a text that is not empty".to_owned()));
        }
        if units > UNITS_MAX {
            return Err(invalid(format!("cost: at most {UNITS_MAX}")));
        }
        let [of_actor, of_scope, of_method] = CHECK_ENTRIES;
        let entries: [Entry<'_>; 3] = [(of_actor, actor), (of_scope, scope), (of_method, method)];
        let Some(rule) = live.policy.descriptors.of_check(&entries) else {
            self.checks.limiter.unmatched.inc();
            let [scope, method] = [scope, method].map(|text| &text[..text.floor_char_boundary(QUOTED_BYTES_MAX)]);
            let what = format!("no [[grpc.check]] fits scope {scope:?} and method {method:?}");
            return Err(Status::not_found(what));
        };
        self.charges(live, rule, &entries, Some(plan), units)
    }

    pub(super) fn report(&self, request: &ReportRequest) -> Result<ReportResponse, Status> {
        let ReportRequest { actor, scope, method, plan, charged, cost } = request;
        let live = self.live.load();
        let charges = self.charges_of(&live, [actor, scope, method], plan, *cost)?;
        let (charged, now) = (charged.unwrap_or(1), self.gate.clock().now());
        let balances = charges.iter().map(|charge| self.gate.report(&live, charge, charged, *cost, now));
        let limited: Vec<Balance> = balances.filter(|balance| balance.remaining.is_some()).collect();
        let resets = limited.iter().map(|balance| balance.reset_after_ns);
        let longest = resets.reduce(|one, other| Some(one?.max(other?))).flatten();
        Ok(ReportResponse {
            remaining: limited.iter().filter_map(|balance| balance.remaining).min().unwrap_or(0),
            debt: limited.iter().map(|balance| balance.debt).max().unwrap_or(0),
            reset_after: longest.and_then(duration),
        })
    }
}
