//! Files of logs that may be FIFOs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Whether the path leads to a FIFO.
pub fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo())
}

/// Opens the file at `path`, or creates it with these permissions. Never waits for the reader of a FIFO: a FIFO that is
/// also open to read keeps lines until somebody reads them.
///
/// # Errors
/// The file cannot be opened, or it is a FIFO that nobody reads and that this process may only write.
pub fn open_to_append(path: &Path, mode: u32) -> io::Result<File> {
    let is_fifo = is_fifo(path);
    match OpenOptions::new().read(is_fifo).append(true).create(true).mode(mode).open(path) {
        Err(error) if is_fifo && error.kind() == ErrorKind::PermissionDenied => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file = rustix::fs::open(path, flags, Mode::empty())?;
            rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
            Ok(file.into())
        }
        opened => opened,
    }
}
