//! The last good version of a remote configuration, on disk: a start needs no other machine.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::store::snapshot::file;

/// The file of one address.
#[derive(Debug)]
pub(super) struct LastGood {
    path: PathBuf,
    address: String,
}

/// A version that was in force.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredVersion {
    pub(super) revision: String,
    pub(super) bytes: Vec<u8>,
}

/// The first line of the file, behind [`OPENING`].
#[derive(Serialize, Deserialize)]
struct Head {
    address: String,
    revision: String,
}

/// The file stays valid TOML: its first line is a comment.
const OPENING: &str = "# The last good configuration, written by Weir: ";
/// The longest name is 255 bytes, and a temporary file has 21 more.
const NAME_BYTES_MAX: usize = 200;

impl LastGood {
    pub(super) fn new(folder: &Path, address: &str) -> Self {
        let plain: String = address.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plain = plain.replace("---", "-");
        let name: String = plain.chars().take(NAME_BYTES_MAX).collect();
        Self { path: folder.join(format!("config-{name}.toml")), address: address.to_owned() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the version.
    pub(super) fn write(&self, revision: &str, bytes: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Temporary files of earlier processes do no harm if they stay.
        let _ = file::clear(&self.path);
        let head = Head { address: self.address.clone(), revision: revision.to_owned() };
        let head = serde_json::to_string(&head).map_err(io::Error::other)?;
        file::replace(&self.path, |to| {
            writeln!(to, "{OPENING}{head}")?;
            to.write_all(bytes)
        })?;
        Ok(())
    }

    /// Reads the version. `None` if there is none.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub(super) fn read(&self) -> Result<Option<StoredVersion>, String> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let foreign = "it is not a file that Weir wrote for this address";
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(foreign)?;
        let (head, rest) = bytes.split_at(end);
        let head = head.strip_prefix(OPENING.as_bytes()).ok_or(foreign)?;
        let head: Head = serde_json::from_slice(head).map_err(|_| foreign)?;
        if head.address != self.address {
            return Err(format!("it is the configuration of {}", head.address));
        }
        Ok(Some(StoredVersion { revision: head.revision, bytes: rest.get(1..).unwrap_or_default().to_vec() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_kept_for_its_address_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        let ours = LastGood::new(&folder, "etcd://a:2379/weir/config");
        assert_eq!(ours.path(), folder.join("config-etcd-a-2379-weir-config.toml"));
        assert_eq!(ours.read(), Ok(None));
        ours.write("7", b"[upstream]\n\n# end").unwrap();
        assert_eq!(ours.read(), Ok(Some(StoredVersion { revision: "7".into(), bytes: b"[upstream]\n\n# end".into() })));
        ours.write("\"a\"", b"").unwrap();
        assert_eq!(ours.read(), Ok(Some(StoredVersion { revision: "\"a\"".into(), bytes: Vec::new() })));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let other = LastGood::new(&folder, "etcd://a:2379/weir-config");
        assert_eq!(other.read(), Err("it is the configuration of etcd://a:2379/weir/config".to_owned()));
        for damaged in ["", "[upstream]\n", "# The last good configuration, written by Weir: {}\n"] {
            fs::write(ours.path(), damaged).unwrap();
            assert!(ours.read().is_err(), "{damaged}");
        }
        let long = LastGood::new(&folder, &format!("https://a/{}", "x".repeat(1000)));
        long.write("1", b"a").unwrap();
        assert!(long.read().is_ok_and(|stored| stored.is_some()));
    }
}
