//! The keys whose requests a limit refuses or holds most, and the networks of their clients, in fixed memory.
//!
//! Only a request that is refused or held on arrival is counted. It never waits for the lock: if another thread holds
//! the lock, the request is counted as missed. The text of a key is built only when the key gets a slot.
//!
//! Old requests count for less: all counts are halved every [`HALF_LIFE_NS`]. The requests of the last minute are counted
//! apart, in pieces of ten seconds: 50 to 60 seconds of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::limit::top::{PIECES, Top, TopKey};
use crate::engine::policy::KeySecret;
use crate::engine::policy::client_ip::Prefixes;

/// The networks of clients. An attacker has many addresses in one of them more often than many of them.
const NETWORKS: Prefixes = Prefixes { v4: 24, v6: 48 };

/// Keys that are counted for each limit. With texts of at most 256 bytes they take about 200 KB; a limit that has refused
/// no request takes nothing. A count is too high by at most 1/512 of all refusals.
pub const TOP_KEYS: usize = 512;

/// Nanoseconds in which counts are halved: ten minutes.
pub const HALF_LIFE_NS: u64 = 600_000_000_000;

/// The length of a piece of the last minute.
const PIECE_NS: u64 = 60_000_000_000 / PIECES as u64;

/// The counts of one limit.
#[derive(Debug, Default)]
pub(super) struct RefusedKeys {
    counted: Mutex<Option<Counted>>,
    missed: AtomicU64,
}

/// The counts of the networks of clients, over all limits and bans.
#[derive(Debug, Default)]
pub(super) struct RefusedNetworks(pub(super) RefusedKeys);

#[derive(Debug)]
struct Counted {
    top: Top,
    /// The last time that counts were halved, and the begin of the present piece; at first, the first call of
    /// [`RefusedKeys::age`].
    aged: Option<(Timestamp, Timestamp)>,
}

/// The keys whose requests one limit refused or held most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKeys {
    /// The limit's name.
    pub limit: Box<str>,
    /// Requests counted, of all keys.
    pub total: u64,
    /// Requests that were not counted, because another thread was counting.
    pub missed: u64,
    /// Those with the most requests of the last minute first, then the most frequent. The text of a key has its parts,
    /// separated by `|`, as [`crate::engine::policy::Policy::shown`] has them. `recent` are requests of the last 50 to 60
    /// seconds.
    pub keys: Vec<TopKey>,
}

impl RefusedKeys {
    /// Counts one request.
    pub(super) fn count(&self, key: Key, text: impl FnOnce() -> String) {
        let mut counted = match self.counted.try_lock() {
            Ok(counted) => counted,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let new = || Counted { top: Top::new(TOP_KEYS), aged: None };
        counted.get_or_insert_with(new).top.offer(key, text);
    }

    /// Begins a new piece of the last minute, and halves the counts, if it is time at `now`. To be called about once a
    /// second.
    pub(super) fn age(&self, now: Timestamp) {
        let mut all = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counted) = all.as_mut() else { return };
        let (halved_at, piece_at) = counted.aged.get_or_insert((now, now));
        let ended = now.ns_since(*piece_at) / PIECE_NS;
        (0..ended.min(PIECES as u64)).for_each(|_| counted.top.turn());
        *piece_at = piece_at.saturating_add_ns(ended * PIECE_NS);
        if now.ns_since(*halved_at) < HALF_LIFE_NS {
            return;
        }
        *halved_at = now;
        counted.top.halve();
        if counted.top.is_empty() {
            *all = None;
        }
        self.missed.store(self.missed.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
    }

    /// The names of all counted keys.
    pub(super) fn names(&self) -> HashMap<Key, Box<str>> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = counted.as_ref().map(|counted| counted.top.top(TOP_KEYS)).unwrap_or_default();
        keys.into_iter().map(|key| (key.hash, key.text)).collect()
    }

    /// The `n` keys with the highest counts. `limit` is the limit's name.
    pub(super) fn top(&self, limit: &str, n: usize) -> TopKeys {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let top = counted.as_ref().map(|counted| &counted.top);
        TopKeys {
            limit: limit.into(),
            total: top.map_or(0, Top::total),
            missed: self.missed.load(Ordering::Relaxed),
            keys: top.map(|top| top.top(n)).unwrap_or_default(),
        }
    }
}

impl RefusedNetworks {
    /// Counts one request of `client`.
    pub(super) fn count(&self, secret: &KeySecret, client: IpAddr) {
        self.0.count(secret.of_address(client, NETWORKS), || NETWORKS.shown(client));
    }
}
