//! Compiles a configuration from a file or a text, with the overrides that were set at run time.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::{DeTable, Error};

use super::compile::{self, Config};
use super::diagnostics::{Diagnostics, Problem};
use super::files::{FILE_BYTES_MAX, read_file};
use super::overrides::{self, OverrideFile, OverrideSet, OverridesInForce};
use super::reader::context::Context;
use super::reader::syntax;
use super::redact;
use super::sources::Sources;
use super::written::Written;
use crate::base::time::{Timestamp, system_now};

/// The bytes of a configuration, or the file that has them. Clones are cheap.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A file. Relative paths in it are relative to its folder.
    File(PathBuf),
    /// A text that a file had when it was in force. All other files are read as they are now.
    Earlier {
        /// The text.
        text: Arc<str>,
        /// The name in messages.
        name: Arc<str>,
        /// The file. It is not read.
        file: PathBuf,
    },
    /// Bytes from elsewhere.
    Bytes {
        /// The bytes, at most 16 MiB.
        bytes: Arc<[u8]>,
        /// The name in messages.
        name: Arc<str>,
        /// The folder of relative paths.
        folder: Arc<Path>,
        /// The names and values of environment variables that it has beside those of the process.
        variables: Arc<[(String, String)]>,
    },
}

/// The configuration in force, which a change of overrides compiles again. Clones are cheap.
#[derive(Clone, Debug)]
pub struct ConfigInForce {
    /// The configuration. If it is in a file, its text is in `files`.
    pub origin: Origin,
    /// The files that it was read from, whatever is on disk now.
    pub files: Sources,
    /// The overrides.
    pub overrides: OverridesInForce,
}

/// The size from which a configuration takes a second or more to compile.
const LARGE_BYTES: u64 = 2 << 20;

impl Origin {
    /// The size in bytes of a configuration that takes a second or more to compile.
    pub fn large_bytes(&self) -> Option<u64> {
        let bytes = match self {
            Self::File(path) => std::fs::metadata(path).ok()?.len(),
            Self::Earlier { text, .. } => text.len() as u64,
            Self::Bytes { bytes, .. } => bytes.len() as u64,
        };
        (bytes >= LARGE_BYTES).then_some(bytes)
    }

    /// The folder of relative paths, and the file of the configuration, if it is in one.
    fn folder_and_file(&self) -> (&Path, Option<&Path>) {
        let file = match self {
            Self::File(file) | Self::Earlier { file, .. } => file,
            Self::Bytes { folder, .. } => return (folder, None),
        };
        (file.parent().unwrap_or(Path::new("")), Some(file))
    }

    /// The value of an environment variable.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let own = match self {
            Self::File(_) | Self::Earlier { .. } => None,
            Self::Bytes { variables, .. } => variables.iter().find(|(known, _)| known == name),
        };
        own.map(|(_, value)| value.clone()).or_else(|| std::env::var(name).ok())
    }
}

impl From<&Path> for Origin {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

/// Reads and compiles a configuration, with the environment of this process.
///
/// # Errors
/// All problems of the configuration, also that it cannot be read.
pub fn load(origin: &Origin) -> Result<Config, Diagnostics> {
    load_after(origin, None)
}

/// Reads and compiles a configuration. Overrides in memory are those of `in_force`. If the file of overrides cannot be
/// read, and is that of `in_force`, its text in force applies: a broken or half-written file removes no override.
///
/// # Errors
/// All problems of the configuration, also that it cannot be read.
pub fn load_after(origin: &Origin, in_force: Option<&OverridesInForce>) -> Result<Config, Diagnostics> {
    ConfigText::read(origin, None)?.compile(&|name| origin.variable(name), in_force)
}

/// Compiles the configuration in force with the overrides on disk.
///
/// # Errors
/// All problems of the configuration: it may depend on more than its files.
pub fn load_in_force(ConfigInForce { origin, files, overrides }: &ConfigInForce) -> Result<Config, Diagnostics> {
    ConfigText::read(origin, Some(files))?.compile(&|name| origin.variable(name), Some(overrides))
}

/// Compiles `text`, which messages call `name`. Relative paths in it are relative to `dir`.
///
/// # Errors
/// All problems of the configuration, in the order of its text.
pub fn compile(
    text: &str,
    name: &str,
    dir: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, Diagnostics> {
    ConfigText::of(text, name, (dir, None)).compile(env, None)
}

/// As [`compile`], in a folder with an empty `file` that is not written yet, and without variables.
///
/// # Errors
/// All problems of the configuration, in the order of its text.
pub fn compile_with_empty(text: &str, name: &str, file: &Path) -> Result<Config, Diagnostics> {
    let mut unwritten = Sources::default();
    unwritten.add(file, Some(b""));
    let text = ConfigText::of(text, name, (Path::new(""), None));
    ConfigText { kept: Some(&unwritten), ..text }.compile(&|_| None, None)
}

/// Compiles `text`, which messages call `name`, in the place of the configuration at `origin`, with the environment of
/// this process and the overrides `in_force`. The problems of overrides in another place have no details: the text may
/// name any file.
///
/// # Errors
/// All problems of the configuration, in the order of its text.
pub fn compile_at(
    text: &str,
    name: &str,
    origin: Option<&Origin>,
    in_force: &OverridesInForce,
) -> Result<Config, Diagnostics> {
    let text = ConfigText::of(text, name, origin.map_or((Path::new(""), None), Origin::folder_and_file));
    let env = |name: &str| origin.map_or_else(|| std::env::var(name).ok(), |origin| origin.variable(name));
    let mut config = text.compile(&env, Some(in_force))?;
    if config.run_time.kept.place != in_force.place {
        config.run_time.problems = config.run_time.problems.map(Diagnostics::without_details);
    }
    Ok(config)
}

/// The text of a configuration, and where it is from.
pub(super) struct ConfigText<'p> {
    pub(super) text: String,
    name: String,
    dir: &'p Path,
    /// The file that the text is from, if it is from one.
    own: Option<&'p Path>,
    sources: Sources,
    /// The files to read in place of those on disk.
    kept: Option<&'p Sources>,
    /// The date of the reading: overrides that have ended do not apply.
    pub(super) now: Timestamp,
}

impl<'p> ConfigText<'p> {
    fn of(text: &str, name: &str, (dir, own): (&'p Path, Option<&'p Path>)) -> Self {
        let (sources, now) = (Sources::default(), system_now());
        Self { text: text.to_owned(), name: name.to_owned(), dir, own, sources, kept: None, now }
    }

    /// Reads a configuration; its files from `kept`, if it is given.
    pub(super) fn read(origin: &'p Origin, kept: Option<&'p Sources>) -> Result<Self, Diagnostics> {
        let mut sources = Sources::default();
        let (name, read) = match origin {
            Origin::File(path) => {
                let read = kept.map_or_else(|| read_file(path), |kept| kept.read(path));
                sources.add(path, read.as_deref().ok());
                (path.display().to_string(), read)
            }
            Origin::Earlier { text, name, .. } => {
                sources.add_bytes(&Arc::from(text.as_bytes()));
                (name.to_string(), Ok(text.as_bytes().to_vec()))
            }
            Origin::Bytes { bytes, name, .. } => {
                sources.add_bytes(bytes);
                let is_long = bytes.len() as u64 > FILE_BYTES_MAX;
                let read = if is_long { Err(format!("`{name}` is longer than 16 MiB")) } else { Ok(bytes.to_vec()) };
                (name.to_string(), read)
            }
        };
        let (dir, own) = origin.folder_and_file();
        let unreadable =
            |title| Diagnostics::new(&name, String::new(), vec![Problem::whole(title)]).read_from(sources.clone());
        let bytes = read.map_err(unreadable)?;
        let text = syntax::text(bytes).map_err(|reason| unreadable(format!("`{name}` {reason}")))?;
        Ok(Self { text, name, dir, own, sources, kept, now: system_now() })
    }

    /// Compiles the text with the overrides `in_force`.
    fn compile(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
        in_force: Option<&OverridesInForce>,
    ) -> Result<Config, Diagnostics> {
        let (table, errors) = DeTable::parse_recoverable(&self.text);
        let document = Document { text: self, table: table.get_ref(), errors: &errors, env };
        document.compile(document.overrides(in_force), in_force)
    }
}

/// A configuration as TOML.
pub(super) struct Document<'a> {
    pub(super) text: &'a ConfigText<'a>,
    /// The valid parts.
    pub(super) table: &'a DeTable<'a>,
    /// The syntax errors.
    pub(super) errors: &'a [Error],
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

impl Document<'_> {
    /// Reads the overrides where the configuration has them. `None` if none can be set.
    pub(super) fn overrides(&self, in_force: Option<&OverridesInForce>) -> Option<OverrideFile> {
        let place = overrides::place_in(self.table, self.text.dir, self.text.own, in_force);
        OverrideFile::read(place, in_force)
    }

    /// Compiles with the overrides of `file`. If it cannot be read and has the place of `in_force`, with those of the text
    /// in force.
    pub(super) fn compile(
        &self,
        file: Option<OverrideFile>,
        in_force: Option<&OverridesInForce>,
    ) -> Result<Config, Diagnostics> {
        let mut context = Context::new(self.text.dir, self.env, self.text.own);
        context.kept = self.text.kept;
        let mut sources = self.text.sources.clone();
        let Some(file) = file else {
            context.sources.replace(sources);
            return self.compile_with(&context, &OverrideSet::empty(context.for_overrides())).map(with_derived);
        };
        if let Some(path) = file.place.file() {
            sources.add(path, file.bytes.as_deref());
        }
        context.sources.replace(sources);
        let (table, text, unreadable) = match file.parse() {
            Ok(table) => (table, file.text(), None),
            Err(problem) => {
                let text = in_force.filter(|kept| kept.place == file.place).and_then(|kept| kept.text.as_deref());
                (DeTable::parse_recoverable(text.unwrap_or_default()).0, text, Some(problem))
            }
        };
        let set = OverrideSet::read(context.for_overrides(), table.get_ref(), self.text.now);
        let config = self.compile_with(&context, &set)?;
        let names: Vec<&str> = config.policy.nameable_limits().collect();
        set.reject_unknown_limits(&names);
        let run_time = set.finish(&file, text, unreadable);
        Ok(with_derived(Config { run_time, ..config }))
    }

    fn compile_with(&self, context: &Context<'_>, overrides: &OverrideSet<'_>) -> Result<Config, Diagnostics> {
        let config = compile::config(context, self.table, overrides);
        let (errors, warnings) = context.problems.take().into_iter().partition(Problem::is_error);
        let problems = syntax::merge(&self.text.text, self.errors, errors);
        let (secrets, sources) = (context.secrets.take(), context.sources.take());
        match config {
            Some(config) if problems.is_empty() => {
                let written = Written::new(&self.text.name, &self.text.text, self.secrets(&secrets));
                // Only warnings need a masked copy of the text.
                let warnings =
                    if warnings.is_empty() { Diagnostics::default() } else { self.diagnostics(&secrets, warnings) };
                Ok(Config { warnings, sources, written, ..config })
            }
            // A section without a result notes its errors. An empty list of problems must not mean success.
            _ if problems.is_empty() => {
                let problem = Problem::new(0..0, "the configuration cannot be compiled");
                Err(self.diagnostics(&secrets, vec![problem]).read_from(sources))
            }
            // Errors may cause warnings, so they are reported without warnings.
            _ => Err(self.diagnostics(&secrets, problems).read_from(sources)),
        }
    }

    /// `problems` with the text of the configuration, without its secrets.
    fn diagnostics(&self, secrets: &[Range<usize>], problems: Vec<Problem>) -> Diagnostics {
        Diagnostics::new(&self.text.name, redact::mask(&self.text.text, &self.secrets(secrets)), problems)
    }

    /// The positions of secrets: `secrets`, which the readers found, and all that look like secrets.
    fn secrets(&self, secrets: &[Range<usize>]) -> Vec<Range<usize>> {
        let text = &self.text.text;
        let mut secrets = secrets.to_vec();
        secrets.extend(redact::userinfos(text));
        secrets.extend(redact::private_keys(text));
        secrets.extend(redact::unknown_words_of_identities(text, self.errors.is_empty()));
        if !self.errors.is_empty() {
            // The readers do not see, and so do not mask, the parts that the parser drops.
            secrets.extend(redact::after_secrets(text));
            secrets.extend(redact::after_overrides(text));
        }
        secrets
    }
}

/// `config` with the defaults that depend on other options, for operators who read them.
fn with_derived(config: Config) -> Config {
    let (bans, overrides) = (config.admin.bans.as_deref(), &config.run_time.kept.place);
    let written = config.written.with_derived(config.fixed.workers, bans, overrides);
    Config { written, ..config }
}
