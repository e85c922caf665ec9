//! What one compilation shares: where files and variables come from, and what has been noted.
//!
//! It knows nothing of TOML or of options.

use std::cell::{Cell, RefCell};
use std::fs::{FileType, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::Sources;
use super::diagnostics::Problem;
use crate::policy::path::Rules;

/// What one compilation reads from and what it has noted so far.
pub(super) struct Context<'a> {
    pub(super) dir: &'a Path,
    env: &'a dyn Fn(&str) -> Option<String>,
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) secrets: RefCell<Vec<Range<usize>>>,
    pub(super) sources: RefCell<Sources>,
    /// How paths of requests are read, and so patterns of them.
    pub(super) paths: Cell<Rules>,
    /// Whether requests keep fields whose names have `_`.
    pub(super) has_underscores: Cell<bool>,
    /// The configuration's own file, if it is in one.
    pub(super) own: Option<&'a Path>,
    /// What of the text was set at run time.
    pub(super) set: Option<SetAtRunTime>,
}

/// Overrides that stand behind the configuration's own text.
pub(super) struct SetAtRunTime {
    /// Where they begin.
    pub(super) from: usize,
    /// Those of limits that have several windows without them.
    pub(super) several: Vec<Range<usize>>,
}

/// Far more than any key or configuration needs, far less than memory.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;

impl<'a> Context<'a> {
    /// For a configuration in the file `own`, if it is in one, with what was `set` at run time behind its text.
    pub(super) fn new(
        dir: &'a Path,
        env: &'a dyn Fn(&str) -> Option<String>,
        own: Option<&'a Path>,
        set: Option<SetAtRunTime>,
    ) -> Self {
        let (problems, secrets, sources) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (paths, has_underscores) = (Cell::default(), Cell::new(true));
        Self { dir, env, problems, secrets, sources, paths, has_underscores, own, set }
    }

    /// Whether what stands there was set at run time.
    pub(super) fn is_set(&self, place: &Range<usize>) -> bool {
        self.set.as_ref().is_some_and(|set| place.start >= set.from)
    }

    /// Whether an override that stands there is of a limit that has several windows without it.
    pub(super) fn has_several(&self, place: &Range<usize>) -> bool {
        self.set.as_ref().is_some_and(|set| set.several.contains(place))
    }

    pub(super) fn note(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Keeps a span out of everything that is shown.
    pub(super) fn hide(&self, span: Range<usize>) {
        self.secrets.borrow_mut().push(span);
    }

    pub(super) fn env(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// The path of a file that is not read here.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// The content of a file, which is remembered as one that matters.
    pub(super) fn file(&self, path: &str) -> Result<Vec<u8>, String> {
        let path = self.dir.join(path);
        let read = read_file(&path);
        self.sources.borrow_mut().add(&path, read.as_deref().ok());
        read
    }
}

/// The content of a regular file of a sane size, or why there is none. Never waits, as opening a FIFO would.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: io::Error| format!("cannot read `{}`: {error}", path.display());
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path).map_err(cannot)?;
    let about = file.metadata().map_err(cannot)?;
    if !about.is_file() {
        return Err(format!("`{}` is {}, not a file", path.display(), kind(about.file_type())));
    }
    let mut bytes = Vec::new();
    if about.len() <= FILE_BYTES_MAX {
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    }
    if about.len().max(bytes.len() as u64) > FILE_BYTES_MAX {
        return Err(format!("`{}` is longer than 16 MiB", path.display()));
    }
    Ok(bytes)
}

#[expect(clippy::cast_possible_wrap, reason = "the flag is a low bit")]
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

fn kind(file_type: FileType) -> &'static str {
    match file_type {
        _ if file_type.is_dir() => "a directory",
        _ if file_type.is_fifo() => "a FIFO",
        _ if file_type.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(place("fifo")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
        std::fs::write(place("file"), "text").unwrap();
        std::os::unix::fs::symlink(place("file"), place("link")).unwrap();
        std::os::unix::fs::symlink(place("fifo"), place("fifo-link")).unwrap();
        std::fs::File::create(place("huge")).unwrap().set_len(1 << 40).unwrap();
        for (path, expected) in [
            (place("file"), Ok(&b"text"[..])),
            (place("link"), Ok(b"text")),
            (place(""), Err("is a directory, not a file")),
            (place("fifo"), Err("is a FIFO, not a file")),
            (place("fifo-link"), Err("is a FIFO, not a file")),
            (place("socket"), Err("cannot read")),
            ("/dev/zero".into(), Err("is a device, not a file")),
            (place("huge"), Err("is longer than 16 MiB")),
            (place("none"), Err("cannot read")),
        ] {
            match (read_file(&path), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected),
                (Err(said), Err(expected)) => assert!(said.contains(expected), "{said}"),
                (read, _) => unreachable!("{}: {read:?}", path.display()),
            }
        }
    }
}
