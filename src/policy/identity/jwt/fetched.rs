//! Keys that are not known when the configuration is read, because they stand behind a URL.
//!
//! It is the one thing in a policy that changes: the set is replaced whole, by whoever fetches it. Not here: fetching.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use http::Uri;

use super::algorithm::Algorithm;
use super::keys::{self, Key, SkippedKeys};
use super::problems::KeyProblem;

/// The keys of one identity behind a URL.
pub struct FetchedKeys {
    url: Uri,
    /// Without HS256: who can read the URL could sign.
    algorithms: Vec<Algorithm>,
    keys: ArcSwapOption<Vec<Key>>,
    is_wanted: AtomicBool,
}

impl FetchedKeys {
    /// None yet, of those at `url` that are for `algorithms`; nothing if only HS256 is among them.
    pub fn new(url: Uri, algorithms: &[Algorithm]) -> Option<Arc<Self>> {
        let algorithms: Vec<_> = algorithms.iter().copied().filter(|one| *one != Algorithm::Hs256).collect();
        let none = Self { url, algorithms, keys: ArcSwapOption::empty(), is_wanted: AtomicBool::new(false) };
        (!none.algorithms.is_empty()).then(|| Arc::new(none))
    }

    /// Where they are.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// Replaces the keys by those of a set. Returns what was skipped of it, if anything was.
    ///
    /// # Errors
    /// It is no set, or none of its keys can be used. Nothing changes then.
    pub fn replace(&self, jwks: &[u8]) -> Result<Option<SkippedKeys>, KeyProblem> {
        let (keys, skipped) = keys::build_fetched(jwks, &self.algorithms)?;
        self.keys.store(Some(Arc::new(keys)));
        self.is_wanted.store(false, Ordering::Relaxed);
        Ok((skipped.count > 0).then_some(skipped))
    }

    /// Whether a token has named a key that was not there at the last [`FetchedKeys::replace`].
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Looks through the keys; none if they have never been fetched.
    pub(super) fn look<T>(&self, look: impl FnOnce(&[Key]) -> T) -> Option<T> {
        self.keys.load().as_deref().map(|keys| look(keys))
    }

    /// Notes that a token names a key that is not there.
    pub(super) fn want(&self) {
        // Looked at first, so that a flood of such tokens writes to no shared line.
        if !self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for FetchedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchedKeys").field("url", &self.url).finish_non_exhaustive()
    }
}
