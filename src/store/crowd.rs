//! How much of something each client has at once, so that none has all of it.
//!
//! Exact, because what is counted has an end: a client is known here for as long as it has anything. So there are no
//! more entries than things, whose number is bounded as a whole. Not here: what is counted, and who is a client.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, so that workers seldom meet at one.
const SHARDS: usize = 16;

/// What each client has. A lock is held for one look into a map.
#[derive(Debug, Default)]
pub struct Crowd {
    shards: [Mutex<HashMap<IpAddr, Share>>; SHARDS],
    hasher: RandomState,
}

/// What one client has, or may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Things.
    pub count: usize,
    /// Bytes of them all.
    pub bytes: usize,
}

impl Crowd {
    /// One more thing of `client`, of so many bytes, unless it would then have more than `most`.
    pub fn enter(&self, client: IpAddr, bytes: usize, most: Share) -> bool {
        let mut shares = self.shard(client);
        let share = shares.get(&client).copied().unwrap_or_default();
        let fits = share.allows(bytes, most);
        if fits {
            shares.insert(client, Share { count: share.count + 1, bytes: share.bytes + bytes });
        }
        fits
    }

    /// Whether [`Crowd::enter`] would say so.
    pub fn has_room(&self, client: IpAddr, bytes: usize, most: Share) -> bool {
        self.shard(client).get(&client).copied().unwrap_or_default().allows(bytes, most)
    }

    /// One thing of `client` has ended.
    pub fn leave(&self, client: IpAddr, bytes: usize) {
        let mut shares = self.shard(client);
        let Some(share) = shares.get_mut(&client) else { return };
        *share = Share { count: share.count.saturating_sub(1), bytes: share.bytes.saturating_sub(bytes) };
        if share.count == 0 {
            shares.remove(&client);
        }
    }

    /// Clients that have anything.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Whether nobody has anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[allow(clippy::cast_possible_truncation)] // only the low bits count
    fn shard(&self, client: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, Share>> {
        let index = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    fn allows(self, bytes: usize, most: Self) -> bool {
        self.count < most.count && self.bytes.saturating_add(bytes) <= most.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Share = Share { count: 2, bytes: 100 };

    #[test]
    fn each_has_its_own_share_and_leaves_nothing() {
        let crowd = Crowd::default();
        let [a, b] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0; 16])];
        // Who, bytes, and whether it fits.
        for (client, bytes, fits) in [
            (a, 60, true),
            (a, 41, false),
            (a, 40, true),
            (a, 0, false),
            (b, 101, false),
            (b, usize::MAX, false),
            (b, 100, true),
        ] {
            assert_eq!(crowd.has_room(client, bytes, MOST), fits, "{client} {bytes}");
            assert_eq!(crowd.enter(client, bytes, MOST), fits, "{client} {bytes}");
        }
        assert_eq!(crowd.len(), 2);
        crowd.leave(a, 60);
        assert!(!crowd.has_room(a, 61, MOST) && crowd.enter(a, 60, MOST));
        for (client, bytes) in [(a, 40), (a, 60), (b, 100), (b, 100)] {
            crowd.leave(client, bytes);
        }
        assert!(crowd.is_empty());
    }
}
