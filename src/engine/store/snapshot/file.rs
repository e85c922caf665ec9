//! A file that is replaced atomically: if the machine stops, either the old or the new file is there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces the file at `path` with the bytes that `fill` writes, and returns their number. Only its owner can read it.
/// It replaces no device, FIFO or socket.
pub fn replace(path: &Path, fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<u64> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(not_a_file());
    }
    let temp = Temp::create(path)?;
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, &temp.file);
    fill(&mut to)?;
    io::Write::flush(&mut to)?;
    drop(to);
    let length = temp.file.metadata()?.len();
    temp.sync()?;
    temp.rename()?;
    sync_folder(path)?;
    Ok(length)
}

const BUFFER_BYTES: usize = 64 << 10;

/// Removes temporary files of earlier processes that were stopped while they wrote.
pub fn clear(path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Ok(()) };
    for entry in fs::read_dir(folder(path))? {
        let entry = entry?;
        let other = entry.file_name();
        let suffix = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        if suffix.is_some_and(is_temp) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Renames a damaged file, and returns its new path. Replaces a file that was renamed before.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    if !fs::metadata(path)?.is_file() {
        return Err(not_a_file());
    }
    let aside = with_suffix(path, ".damaged");
    fs::rename(path, &aside)?;
    sync_folder(path)?;
    Ok(aside)
}

fn not_a_file() -> io::Error {
    io::Error::other("it is not a file")
}

/// A temporary file beside the target; removed on drop, unless it was renamed.
struct Temp<'p> {
    file: File,
    path: PathBuf,
    target: &'p Path,
}

impl<'p> Temp<'p> {
    /// Creates a file with a random name, so that two processes never write to the same file.
    fn create(target: &'p Path) -> io::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let path = with_suffix(target, &format!(".{:016x}.tmp", u64::from_le_bytes(random)));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, path, target })
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn rename(mut self) -> io::Result<()> {
        fs::rename(&self.path, self.target)?;
        self.path = PathBuf::new();
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // A file that stays is removed at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether `suffix` is one that `Temp::create` appends.
fn is_temp(suffix: &[u8]) -> bool {
    let random = suffix.strip_prefix(b".").and_then(|rest| rest.strip_suffix(b".tmp"));
    random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a new name durable: it is part of the folder.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

#[cfg(test)]
mod tests;
