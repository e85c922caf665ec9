//! The place of overrides, and their text in force.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeTable;

use crate::config::files::{FILE_BYTES_MAX, is_same, sibling, unwritable_folder};

/// Where overrides that are set at run time are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OverridesPlace {
    /// None can be set.
    #[default]
    Off,
    /// In a file.
    File(PathBuf),
    /// In memory, so that they end with the process.
    Memory {
        /// Why there is no file; `None` if the configuration asks for memory.
        no_file: Option<Arc<str>>,
    },
}

/// The place of overrides, and their text in force. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub struct OverridesInForce {
    /// The place.
    pub place: OverridesPlace,
    /// The text in force: of the file, or of the file before if it cannot be read now. `None` without either.
    pub text: Option<Arc<str>>,
}

/// The longest text in memory in bytes, about 25,000 overrides. A message to a successor has to hold it.
const MEMORY_BYTES_MAX: u64 = 2 << 20;

impl OverridesPlace {
    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Off | Self::Memory { .. } => None,
        }
    }

    /// Whether overrides are in memory.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory { .. })
    }

    /// The name in messages.
    pub(super) fn name(&self) -> String {
        self.file().map_or_else(|| "overrides in memory".to_owned(), |file| file.display().to_string())
    }

    /// The problem of a text that is too long for this place.
    pub(in crate::config) fn fault_of_length(&self, text: &str) -> Option<&'static str> {
        let length = text.len() as u64;
        match self {
            Self::Memory { .. } if length > MEMORY_BYTES_MAX => {
                Some("the overrides in memory would be longer than 2 MiB; `admin.overrides` can name a file")
            }
            _ if length > FILE_BYTES_MAX => Some("the file of `admin.overrides` would be longer than 16 MiB"),
            _ => None,
        }
    }
}

impl OverridesInForce {
    /// The text in force at `place`; empty if the place is another one.
    pub(in crate::config) fn text_at(&self, place: &OverridesPlace) -> &str {
        self.text.as_deref().filter(|_| self.place == *place).unwrap_or_default()
    }

    /// The text in memory.
    pub fn text_in_memory(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| self.place.is_memory())
    }
}

/// The place that `admin.overrides` names; else a file beside the configuration `own`, or memory. Overrides that are in
/// memory because there is no file stay there: a folder that becomes writable removes none. A value with an error, which
/// is noted elsewhere, is no place.
pub(in crate::config) fn place_in(
    document: &DeTable<'_>,
    dir: &Path,
    own: Option<&Path>,
    in_force: Option<&OverridesInForce>,
) -> OverridesPlace {
    let admin = document.get("admin").and_then(|admin| admin.get_ref().as_table());
    let Some(value) = admin.and_then(|admin| admin.get("overrides")) else {
        let is_kept = |kept: &&OverridesInForce| matches!(kept.place, OverridesPlace::Memory { no_file: Some(_) });
        return in_force.filter(is_kept).map_or_else(|| default_place(own), |kept| kept.place.clone());
    };
    match value.get_ref().as_str() {
        Some("off") | None => OverridesPlace::Off,
        Some("memory") => OverridesPlace::Memory { no_file: None },
        Some(path) => {
            let file = dir.join(path);
            let is_own = own.is_some_and(|own| is_same(own, &file));
            let is_file = !path.is_empty() && !path.ends_with('/') && !is_own;
            if is_file { OverridesPlace::File(file) } else { OverridesPlace::Off }
        }
    }
}

fn default_place(own: Option<&Path>) -> OverridesPlace {
    let memory = |reason: &str| OverridesPlace::Memory { no_file: Some(reason.into()) };
    let Some(own) = own else { return memory("the configuration is not from a file") };
    let file = sibling(own, "overrides.toml");
    match unwritable_folder(&file) {
        // A file that exists is read, also if it cannot be changed.
        Some(reason) if !file.exists() => memory(&reason),
        _ => OverridesPlace::File(file),
    }
}
