//! Keys that are fetched from a URL.
//!
//! They are the only part of a policy that changes: a fetch replaces the whole set. Not here: the fetch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use http::Uri;

use super::algorithm::Algorithm;
use super::keys::{self, Key, SkippedKeys};
use super::problems::KeyProblem;
use crate::base::opaque::opaque_debug;

/// The fetched keys of one identity.
pub struct FetchedKeys {
    url: Uri,
    /// Without HS256: a reader of the URL could sign tokens with a secret in it.
    algorithms: Vec<Algorithm>,
    keys: ArcSwapOption<Vec<Key>>,
    is_wanted: AtomicBool,
}

impl FetchedKeys {
    /// An empty set for the keys at `url` that are for `algorithms`. `None` if HS256 is the only algorithm.
    pub fn new(url: Uri, algorithms: &[Algorithm]) -> Option<Arc<Self>> {
        let algorithms: Vec<_> = algorithms.iter().copied().filter(|one| *one != Algorithm::Hs256).collect();
        let none = Self { url, algorithms, keys: ArcSwapOption::empty(), is_wanted: AtomicBool::new(false) };
        (!none.algorithms.is_empty()).then(|| Arc::new(none))
    }

    /// The URL of the keys.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// Replaces the keys by those of a JWK set. Returns the members that were skipped, if there are any.
    ///
    /// # Errors
    /// The text is no JWK set, or none of its keys is usable. The former keys then stay.
    pub fn replace(&self, jwks: &[u8]) -> Result<Option<SkippedKeys>, KeyProblem> {
        let (keys, skipped) = keys::build_fetched(jwks, &self.algorithms)?;
        self.keys.store(Some(Arc::new(keys)));
        self.is_wanted.store(false, Ordering::Relaxed);
        Ok((skipped.count > 0).then_some(skipped))
    }

    /// Whether a token named an unknown key since the last [`FetchedKeys::replace`].
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Calls `look` with the keys. `None` if they were never fetched.
    pub(super) fn look<T>(&self, look: impl FnOnce(&[Key]) -> T) -> Option<T> {
        self.keys.load().as_deref().map(|keys| look(keys))
    }

    /// Records that a token names an unknown key.
    pub(super) fn want(&self) {
        // The load first: a flood of such tokens then writes to no shared cache line.
        if !self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }
}

opaque_debug!(FetchedKeys);
