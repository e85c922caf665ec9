//! Reads regular files of bounded size, without ever waiting.

use std::fs::{FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags, access};
use rustix::io::Errno;

/// The longest file in bytes: more than any key or configuration needs, and less than any memory.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a regular file of at most [`FILE_BYTES_MAX`] bytes. Never waits, as opening a FIFO would.
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

/// The file beside the configuration `own` for `ending`: `weir.overrides.toml` beside `weir.toml`. Configurations with
/// different names have different files.
pub(super) fn sibling(own: &Path, ending: &str) -> PathBuf {
    let is_toml = own.extension().is_some_and(|extension| extension == "toml");
    let mut name = if is_toml { own.file_stem() } else { own.file_name() }.unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    own.with_file_name(name)
}

/// Why this process cannot create the file at `path` in its folder; `None` if it can.
pub(super) fn unwritable_folder(path: &Path) -> Option<String> {
    let folder = folder(path);
    let what = match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Err(Errno::ACCESS) if folder.metadata().is_err() => "cannot be seen by this user",
        _ if !folder.is_dir() => "does not exist",
        Err(_) => "is not writable for this user",
        Ok(()) => return None,
    };
    Some(format!("the folder `{}` {what}", folder.display()))
}

/// Why this process cannot append to the file at `path`, which it creates if there is none; `None` if it can.
pub(super) fn unwritable_file(path: &Path) -> Option<String> {
    let what = match access(path, Access::WRITE_OK) {
        _ if path.is_dir() => "is a directory",
        Err(Errno::NOENT | Errno::NOTDIR) => return unwritable_folder(path),
        Err(_) => "is not writable for this user",
        Ok(()) => return None,
    };
    Some(format!("`{}` {what}", path.display()))
}

/// Whether two paths lead to one file.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    resolved(one) == resolved(other)
}

/// The one path of a file, which need not be there, if its folder is.
pub(super) fn resolved(path: &Path) -> PathBuf {
    let in_folder = || Some(folder(path).canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_a_configuration_have_its_name() {
        for (own, expected) in [
            ("weir.toml", "weir.overrides.toml"),
            ("/etc/weir/edge.eu.toml", "/etc/weir/edge.eu.overrides.toml"),
            ("/etc/weir.conf", "/etc/weir.conf.overrides.toml"),
            ("replica.1", "replica.1.overrides.toml"),
            ("replica.2", "replica.2.overrides.toml"),
        ] {
            assert_eq!(sibling(Path::new(own), "overrides.toml"), Path::new(expected));
        }
    }

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
