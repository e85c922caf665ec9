//! A handle of the newest policy, for services that follow reloads.

use std::sync::Arc;

use arc_swap::access::{DynAccess, DynGuard};

use super::state::Live;
use crate::base::opaque::opaque_debug;

/// Loads the newest policy with its state.
#[derive(Clone)]
pub struct NewestLive(Arc<dyn DynAccess<Live> + Send + Sync>);

impl NewestLive {
    /// Loads from `newest`.
    pub fn new(newest: impl DynAccess<Live> + Send + Sync + 'static) -> Self {
        Self(Arc::new(newest))
    }

    /// The newest policy. It stays as it is while the guard lives.
    pub fn load(&self) -> DynGuard<Live> {
        self.0.load()
    }
}

opaque_debug!(NewestLive);
