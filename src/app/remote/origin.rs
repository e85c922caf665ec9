//! The name of a remote configuration in messages, and the folder of its relative paths.

use std::path::Path;
use std::sync::Arc;

use super::address::RemoteAddress;
use super::credentials::RemoteOptions;
use crate::config::Origin;

/// The parts of an [`Origin`] that all versions have in common.
#[derive(Clone, Debug)]
pub(super) struct OriginSettings {
    pub(super) name: Arc<str>,
    folder: Arc<Path>,
}

impl OriginSettings {
    pub(super) fn of(address: &RemoteAddress, options: &RemoteOptions) -> Self {
        let folder = options.folder.as_deref().unwrap_or(Path::new(""));
        Self { name: address.to_string().into(), folder: folder.into() }
    }

    pub(super) fn origin(&self, bytes: Arc<[u8]>) -> Origin {
        Origin::Bytes {
            bytes,
            name: Arc::clone(&self.name),
            folder: Arc::clone(&self.folder),
            variables: Arc::default(),
        }
    }
}
