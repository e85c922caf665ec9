//! The text of a configuration, as operators read it again later.
//!
//! Not here: the options of the text (`effective`), and its difference from another (`difference`).

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::overrides::OverridesPlace;

/// The text of a configuration, and the positions of its secrets.
#[derive(Clone, Default)]
pub struct Written {
    name: Arc<str>,
    pub(super) text: Arc<str>,
    pub(super) secrets: Arc<[Range<usize>]>,
    pub(super) derived: Arc<DerivedDefaults>,
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Written").field(&self.name).finish()
    }
}

/// The defaults of one configuration that neither its text nor its policy has.
#[derive(Debug, Default)]
pub(super) struct DerivedDefaults {
    pub(super) workers: usize,
    pub(super) bans: Option<String>,
    pub(super) overrides: String,
}

impl Written {
    pub(super) fn new(name: &str, text: &str, secrets: Vec<Range<usize>>) -> Self {
        Self { name: name.into(), text: text.into(), secrets: secrets.into(), derived: Arc::default() }
    }

    /// This text with the defaults of its configuration, which has this number of workers and these files.
    pub(super) fn with_derived(self, workers: usize, bans: Option<&Path>, overrides: &OverridesPlace) -> Self {
        let bans = bans.map(|path| path.display().to_string());
        let overrides = match overrides {
            OverridesPlace::Off => "off".to_owned(),
            OverridesPlace::File(path) => path.display().to_string(),
            OverridesPlace::Memory { .. } => "memory".to_owned(),
        };
        Self { derived: Arc::new(DerivedDefaults { workers, bans, overrides }), ..self }
    }

    /// The name of the configuration in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text as it was read, with secrets.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
}
