//! Checks as operators watch them by a tap, at no cost while no tap is open.
//!
//! Not here: the taps (telemetry), and how operators read them (admin).

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::server::Server;
use crate::gate::{Cause, Live, NamedCharge, NamedItem, NamedVerdict};
use crate::telemetry::{BANNED, Outcome, TappedKey, TappedRequest};
use crate::time::{instant_now, system_now};

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
        let keys = decided.filter_map(|(charge, _)| self.gate.key_of_charge(live, charge));
        let denying = verdict.decisive().filter(|_| !verdict.is_admitted);
        let (status, label) = answered(verdict);
        self.taps.publish(TappedRequest {
            at: system_now(),
            client: peer,
            method: "POST".to_owned(),
            host: String::new(),
            path: path.to_owned(),
            status,
            verdict: label,
            limit: denying.map_or_else(String::new, |item| item.limit.name.to_string()),
            keys: keys.map(TappedKey::from).collect(),
            duration: instant_now().saturating_duration_since(began),
            held: Duration::ZERO,
        });
    }
}

/// The status that a request would get, and the verdict.
fn answered(verdict: &NamedVerdict<'_>) -> (u16, &'static str) {
    let is_banned = |item: &NamedItem<'_>| item.denial.is_some_and(|denial| denial.cause == Cause::Banned);
    match verdict.is_admitted {
        true => (200, Outcome::Forwarded.label()),
        false if verdict.items.iter().flatten().any(is_banned) => (403, BANNED),
        false => (429, Outcome::Rejected.label()),
    }
}
