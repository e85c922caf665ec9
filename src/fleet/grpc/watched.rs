//! Checks as operators watch them by a tap, at no cost while no tap is open.
//!
//! Not here: the taps (telemetry), and how operators read them (admin).

use std::net::IpAddr;

use http::StatusCode;
use tokio::time::Instant;

use super::server::Server;
use crate::base::telemetry::{Outcome, RefusedBy, RequestRecord, Text};
use crate::base::time::{instant_now, system_now};
use crate::engine::gate::{Cause, Live, NamedCharge, NamedItem, NamedVerdict};

/// The address of a caller, in the extensions of calls that a tap may want.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// The path of a stream of checks. A tap may open while it runs.
pub(super) const CHECK_STREAM: &str = "/weir.v1.Limiter/CheckStream";

/// A check that began while a tap was open.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchedCheck {
    peer: IpAddr,
    /// The path of the call.
    path: &'static str,
    began: Instant,
}

impl Server {
    /// Begins a check of `peer`; `None` while no tap is open.
    #[inline]
    pub(super) fn watch(&self, peer: Option<Peer>, path: &'static str) -> Option<WatchedCheck> {
        let Peer(peer) = peer.filter(|_| self.taps.is_on())?;
        Some(WatchedCheck { peer, path, began: instant_now() })
    }

    /// Shows a decided check to taps.
    #[cold]
    pub(super) fn show(&self, check: WatchedCheck, live: &Live, charges: &[NamedCharge], verdict: &NamedVerdict<'_>) {
        let WatchedCheck { peer, path, began } = check;
        let decided = charges.iter().zip(&verdict.items).filter(|(_, item)| item.is_some());
        let refusing = verdict.decisive().filter(|_| !verdict.is_admitted);
        let (status, outcome) = answered(verdict);
        let duration = instant_now().saturating_duration_since(began);
        let mut record = RequestRecord {
            at: system_now(),
            client: peer,
            protocol: "HTTP/2",
            status: status.as_u16(),
            outcome,
            duration,
            ..RequestRecord::default()
        };
        record.set(Text::Method, "POST");
        record.set(Text::Path, path);
        record.set(Text::Limit, refusing.map_or("", |item| &item.limit.name));
        decided.for_each(|(charge, _)| self.gate.describe_charge(live, charge, &mut record));
        self.taps.publish(record);
    }
}

/// The status that a request would get, and the outcome.
fn answered(verdict: &NamedVerdict<'_>) -> (StatusCode, Outcome) {
    let mut denied = verdict.items.iter().flatten().filter(|item| item.denial.is_some());
    let is_banned = |item: &&NamedItem<'_>| item.denial.is_some_and(|denial| denial.cause == Cause::Banned);
    match (denied.clone().find(is_banned), denied.next()) {
        _ if verdict.is_admitted => (StatusCode::OK, Outcome::Forwarded),
        (Some(item), _) => (item.limit.refusals.banned, Outcome::Refused(RefusedBy::Ban)),
        (None, item) => {
            let status = item.map_or(StatusCode::TOO_MANY_REQUESTS, |item| item.limit.refusals.refused);
            (status, Outcome::Refused(RefusedBy::Limit))
        }
    }
}
