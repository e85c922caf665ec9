//! The context of one compilation: its files and variables, and the problems so far.
//!
//! It is independent of TOML and of options.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::config::diagnostics::Problem;
use crate::config::files::read_file;
use crate::config::sources::Sources;
use crate::engine::policy::path::PathRules;

/// The inputs of one compilation, and its problems so far.
pub(in crate::config) struct Context<'a> {
    pub(in crate::config) dir: &'a Path,
    env: &'a dyn Fn(&str) -> Option<String>,
    pub(in crate::config) problems: RefCell<Vec<Problem>>,
    pub(in crate::config) secrets: RefCell<Vec<Range<usize>>>,
    pub(in crate::config) sources: RefCell<Sources>,
    /// The files to read in place of those on disk.
    pub(in crate::config) kept: Option<&'a Sources>,
    /// The rules for paths of requests, and so for path patterns.
    pub(in crate::config) paths: Cell<PathRules>,
    /// Whether requests keep fields whose names have more than letters, digits and `-`.
    pub(in crate::config) keeps_all_names: Cell<bool>,
    /// The configuration's own file, if it is in one.
    pub(in crate::config) own: Option<&'a Path>,
    /// The positions of files with rows. Their rows may repeat other entries.
    pub(in crate::config) listed: RefCell<HashSet<Range<usize>>>,
    /// Whether keys of tables may be secrets, so that no message repeats them.
    pub(in crate::config) hides_keys: bool,
}

impl<'a> Context<'a> {
    /// For a configuration; `own` is its file, if it was read from one.
    pub(in crate::config) fn new(
        dir: &'a Path,
        env: &'a dyn Fn(&str) -> Option<String>,
        own: Option<&'a Path>,
    ) -> Self {
        let (problems, secrets, sources) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (paths, keeps_all_names) = (Cell::default(), Cell::new(true));
        let (kept, listed) = (None, RefCell::default());
        Self { dir, env, problems, secrets, sources, kept, paths, keeps_all_names, own, listed, hides_keys: false }
    }

    /// For the file of overrides beside that configuration.
    pub(in crate::config) fn for_overrides(&self) -> Self {
        Self { hides_keys: true, ..Self::new(self.dir, self.env, None) }
    }

    pub(in crate::config) fn note(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Hides a span from all messages.
    pub(in crate::config) fn hide(&self, span: Range<usize>) {
        self.secrets.borrow_mut().push(span);
    }

    pub(in crate::config) fn env(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// The path of a file that is not read here.
    pub(in crate::config) fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Reads a file, and adds it to the sources of the configuration.
    pub(in crate::config) fn file(&self, path: &str) -> Result<Vec<u8>, String> {
        let path = self.dir.join(path);
        let read = self.kept.map_or_else(|| read_file(&path), |kept| kept.read(&path));
        self.sources.borrow_mut().add(&path, read.as_deref().ok());
        read
    }
}
