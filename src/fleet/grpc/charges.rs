//! `weir.v1.charges.Charges`: charges of keys for other Weirs.
//!
//! Each call is decided at once, on the worker that has its connection.

use std::sync::Arc;

use smallvec::SmallVec;
use tonic::{Request, Response, Status};

use super::askers::{Charged, lock};
use super::server::Server;
use crate::engine::gate::{Gate, KeyedCharge, KeyedLimit, KeyedOutcome, KeyedRefusal, KeyedVerdict, Live, UNITS_MAX};
use crate::engine::limit;
use crate::engine::limit::late::{self, LateByRate};
use crate::engine::limit::windows::WINDOWS_MAX;
use crate::engine::store::backend;
use crate::fleet::stores::service::proto::charges_server::Charges;
use crate::fleet::stores::service::proto::correction::Change;
use crate::fleet::stores::service::proto::{
    ChargeRequest, ChargeResponse, CorrectRequest, CorrectResponse, Handling, JoinRequest, JoinResponse, Key,
    KeyCharge, KeyState, LateUnits, MadeCharge, Outcome, Refusal, Verdict,
};

/// The service on one worker.
#[derive(Clone, Debug)]
pub(super) struct ChargesApi(pub(super) Arc<Server>);

#[tonic::async_trait]
impl Charges for ChargesApi {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        self.0.join(&request.into_inner()).map(Response::new)
    }

    async fn charge(&self, request: Request<ChargeRequest>) -> Result<Response<ChargeResponse>, Status> {
        self.0.charge(&request.into_inner()).map(Response::new)
    }

    async fn correct(&self, request: Request<CorrectRequest>) -> Result<Response<CorrectResponse>, Status> {
        self.0.correct_keys(&request.into_inner()).map(Response::new)
    }
}

impl Server {
    fn join(&self, request: &JoinRequest) -> Result<JoinResponse, Status> {
        let JoinRequest { proof, replica, replicas, states, is_complete } = request;
        if key(proof.as_ref()) != Some(self.gate.secret_proof()) {
            self.checks.invalid.inc();
            return Err(Status::unauthenticated("the limiter has another fleet.secret"));
        }
        let live = self.live.load();
        for state in states {
            if let Some(of) = keyed_limit(state) {
                self.gate.raise_keyed(&live, &of, &state.numbers);
            }
        }
        self.askers.join(*replica, *is_complete);
        Ok(JoinResponse { process: self.askers.process, is_ready: self.askers.is_ready(*replicas) })
    }

    fn charge(&self, request: &ChargeRequest) -> Result<ChargeResponse, Status> {
        if request.process != self.askers.process {
            return Ok(ChargeResponse::default());
        }
        let live = self.live.load();
        let calls = request.calls.iter().map(|call| Some((call.number, keyed_charges(&call.charges)?)));
        let Some(calls) = calls.collect::<Option<Vec<_>>>().filter(|calls| !calls.is_empty()) else {
            self.checks.invalid.inc();
            return Err(Status::invalid_argument("expected charges, each with a key and at most 10^15 units"));
        };
        let Some(known) = self.askers.calls(request.session) else {
            return Err(Status::resource_exhausted("too many workers ask"));
        };
        let mut known = lock(&known);
        let verdicts = calls.iter().map(|(number, charges)| {
            if !known.is_new(*number) {
                return Verdict::default();
            }
            let (verdict, charged) = self.answer(self.gate.decide_keyed(&live, charges));
            known.made(*number, charged.iter().any(Option::is_some).then_some(charged));
            verdict
        });
        Ok(ChargeResponse { is_decided: true, verdicts: verdicts.collect() })
    }

    /// Counts a verdict, and splits it into the answer and the proofs of its charges.
    fn answer(&self, verdict: KeyedVerdict) -> (Verdict, Charged) {
        let KeyedVerdict { is_admitted, outcomes } = verdict;
        let counters = &self.checks.charges;
        let counter = if is_admitted { &counters.allowed } else { &counters.refused };
        counter.inc();
        let split = |outcome: Result<KeyedOutcome, KeyedRefusal>| match outcome {
            Ok(KeyedOutcome { is_admitted, numbers, receipt }) => {
                let charged = receipt.as_ref().map_or(0, |receipt| receipt.units);
                (Outcome { refusal: Refusal::Unspecified.into(), is_admitted, charged, numbers }, receipt)
            }
            Err(refusal) => {
                counters.unmatched.inc();
                let refusal = match refusal {
                    KeyedRefusal::Limit => Refusal::Limit,
                    KeyedRefusal::Rule => Refusal::Rule,
                };
                (Outcome { refusal: refusal.into(), ..Outcome::default() }, None)
            }
        };
        let (outcomes, charged): (Vec<_>, Vec<_>) = outcomes.into_iter().map(split).unzip();
        (Verdict { is_admitted, outcomes }, charged.into())
    }

    fn correct_keys(&self, request: &CorrectRequest) -> Result<CorrectResponse, Status> {
        if request.process != self.askers.process {
            return Ok(CorrectResponse { is_done: false });
        }
        let live = self.live.load();
        let is_made = self.askers.once(request.replica, request.batch, || {
            for change in request.corrections.iter().filter_map(|correction| correction.change.as_ref()) {
                self.change(&live, change);
            }
        });
        if is_made {
            return Ok(CorrectResponse { is_done: true });
        }
        // The batch is sent again.
        Err(Status::resource_exhausted("too many processes send corrections"))
    }

    fn change(&self, live: &Live, change: &Change) {
        match change {
            Change::Call(call) => {
                // The call may still be on its way, and the first of its session.
                let ended = self.askers.calls(call.session).and_then(|calls| lock(&calls).end(call.number));
                for receipt in ended.iter().flatten().flatten() {
                    Gate::give_back_keyed(receipt, receipt.units);
                }
            }
            Change::Charge(charge) => self.give_back(live, charge),
            Change::Settlement(settlement) => {
                if let Some(of) = settlement.of.as_ref().and_then(keyed_limit) {
                    let (units, max_debt) = (settlement.units, settlement.max_debt);
                    match late_units(&settlement.late) {
                        late if late.is_empty() => self.gate.settle_keyed(live, &of, units, max_debt),
                        late => self.gate.settle_keyed_late(live, &of, &late, max_debt),
                    }
                }
            }
        }
    }

    /// Gives one charge of a call back. A call that is not known any more was made long ago.
    fn give_back(&self, live: &Live, charge: &MadeCharge) {
        let (Some(call), Some(of)) = (&charge.call, charge.of.as_ref().and_then(keyed_limit)) else { return };
        let late = || self.gate.give_back_late(live, &of, charge.units, charge.age_us.saturating_mul(1000));
        let Some(calls) = self.askers.known_calls(call.session) else { return late() };
        match lock(&calls).charged(call.number) {
            Ok(charged) => {
                let index = usize::try_from(charge.index).unwrap_or(usize::MAX);
                let receipt = charged.and_then(|charged| charged.get_mut(index)?.take());
                if let Some(receipt) = receipt {
                    Gate::give_back_keyed(&receipt, charge.units);
                }
            }
            Err(_) => late(),
        }
    }
}

fn keyed_limit(state: &KeyState) -> Option<KeyedLimit<'_>> {
    Some(KeyedLimit { limit: &state.limit, key: key(state.key.as_ref())?, rule: state.rule })
}

fn late_units(late: &[LateUnits]) -> LateByRate {
    let mut by_rate = LateByRate::new();
    for LateUnits { rate, units, age_us } in late {
        let rate = usize::try_from(*rate).unwrap_or(usize::MAX).min(WINDOWS_MAX - 1);
        by_rate.resize(by_rate.len().max(rate + 1), SmallVec::new());
        if let Some(of_rate) = by_rate.get_mut(rate) {
            of_rate.push(late::LateUnits { units: *units, age_ns: age_us.saturating_mul(1000) });
        }
    }
    by_rate
}

/// The charges of a call, of which there is at least one.
fn keyed_charges(charges: &[KeyCharge]) -> Option<Vec<KeyedCharge<'_>>> {
    charges.iter().map(keyed_charge).collect::<Option<Vec<_>>>().filter(|charges| !charges.is_empty())
}

fn keyed_charge(charge: &KeyCharge) -> Option<KeyedCharge<'_>> {
    let of = KeyedLimit { limit: &charge.limit, key: key(charge.key.as_ref())?, rule: charge.rule };
    let handling = match charge.handling() {
        Handling::Enforce => backend::Handling::Enforce,
        Handling::Shadow => backend::Handling::Shadow,
        Handling::Delay => backend::Handling::Delay { max_debt: charge.max_debt },
    };
    (charge.cost <= UNITS_MAX).then_some(KeyedCharge { of, cost: charge.cost, handling })
}

fn key(key: Option<&Key>) -> Option<limit::Key> {
    key.map(|key| limit::Key::of_hash(key.first, key.second))
}
