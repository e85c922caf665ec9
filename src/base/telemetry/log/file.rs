//! A log file that others may rename, remove or truncate.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::append::open_to_append;
use super::queue::LineSink;

/// Permissions of a new file.
const MODE: u32 = 0o640;

/// A file to which lines are appended.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// The file could not be opened again, which was logged.
    is_failing: bool,
}

impl LogFile {
    /// Opens or creates the file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: open_to_append(path, MODE)?, is_failing: false })
    }

    /// Whether the path leads to the open file.
    fn is_in_place(&self) -> bool {
        let identity = |of: io::Result<std::fs::Metadata>| of.ok().map(|of| (of.dev(), of.ino()));
        identity(std::fs::metadata(&self.path)) == identity(self.file.metadata())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineSink for LogFile {
    /// Opens the path again if it leads to another file or to none. Without success lines go on to the old file.
    fn reopen(&mut self) {
        if self.is_in_place() {
            return;
        }
        match open_to_append(&self.path, MODE) {
            Ok(file) => (self.file, self.is_failing) = (file, false),
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                let path = self.path.display();
                tracing::error!(%path, %error, "the access log cannot be opened again; lines go to the old file");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let mut log = LogFile::open(&path).unwrap();
        let write = |log: &mut LogFile, line: &str| {
            log.reopen();
            log.write_all(line.as_bytes()).unwrap();
        };
        write(&mut log, "first\n");
        std::fs::rename(&path, &old).unwrap();
        write(&mut log, "second\n");
        std::fs::remove_file(&path).unwrap();
        write(&mut log, "third\n");
        write(&mut log, "fourth\n");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&old), read(&path)), ("first\n".into(), "third\nfourth\n".into()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o137, 0);
        // Nothing is lost while no file can be there.
        std::fs::rename(&path, &old).unwrap();
        std::fs::create_dir(&path).unwrap();
        write(&mut log, "fifth\n");
        assert_eq!(read(&old), "third\nfourth\nfifth\n");
        std::fs::remove_dir(&path).unwrap();
        write(&mut log, "sixth\n");
        assert_eq!((read(&path), log.is_failing), ("sixth\n".into(), false));
    }
}
