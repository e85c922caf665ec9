//! The last good version of a remote configuration, on disk: a start needs no other machine.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::address::RemoteAddress;
use crate::engine::policy::api_keys::digest_of;
use crate::engine::store::snapshot::file;

/// A file of the state of one configuration.
#[derive(Clone, Debug)]
pub struct StateFile {
    pub(in crate::app) path: PathBuf,
    /// The digest of the whole address of the configuration. The content has it too, so that no file of another one is
    /// used.
    pub(in crate::app) owner: String,
}

/// The file of one address.
#[derive(Debug)]
pub(super) struct LastGood {
    file: StateFile,
    /// The address without secrets.
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
    owner: String,
    revision: String,
}

/// The file stays valid TOML: its first line is a comment.
const OPENING: &str = "# The last good configuration, written by Weir: ";
/// The longest name is 255 bytes, and a temporary file has 21 more.
const SHOWN_BYTES_MAX: usize = 160;

impl StateFile {
    /// The file in `folder` for the address with the bytes `whole`. Its name shows the address as `shown`.
    pub(super) fn new(folder: &Path, shown: &str, whole: &[u8]) -> Self {
        let plain: String = shown.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plain = plain.replace("---", "-");
        let plain: String = plain.chars().take(SHOWN_BYTES_MAX).collect();
        let start = digest_of(whole).first_chunk().map_or(0, |start| u128::from_be_bytes(*start));
        let owner = format!("{start:032x}");
        Self { path: folder.join(format!("config-{plain}-{owner}.toml")), owner }
    }

    /// Its bytes; `None` if it is not there.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(in crate::app) fn read(&self) -> Result<Option<Vec<u8>>, String> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The file of the last configurations in force.
    pub(super) fn of_versions(self) -> Self {
        Self { path: self.path.with_extension("versions.json"), ..self }
    }
}

impl LastGood {
    pub(super) fn new(folder: &Path, address: &RemoteAddress) -> Self {
        let shown = address.to_string();
        Self { file: StateFile::new(folder, &shown, address.whole().as_bytes()), address: shown }
    }

    pub(super) fn file(&self) -> &StateFile {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Replaces the version.
    pub(super) fn write(&self, revision: &str, bytes: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.path().parent() {
            fs::create_dir_all(folder)?;
        }
        // Temporary files of earlier processes do no harm if they stay.
        let _ = file::clear(self.path());
        let (address, owner) = (self.address.clone(), self.file.owner.clone());
        let head = Head { address, owner, revision: revision.to_owned() };
        let head = serde_json::to_string(&head).map_err(io::Error::other)?;
        file::replace(self.path(), |to| {
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
        let Some(bytes) = self.file.read()? else { return Ok(None) };
        let foreign = "it is not a file that Weir wrote for this address";
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(foreign)?;
        let (head, rest) = bytes.split_at(end);
        let head = head.strip_prefix(OPENING.as_bytes()).ok_or(foreign)?;
        let head: Head = serde_json::from_slice(head).map_err(|_| foreign)?;
        if head.owner != self.file.owner {
            return Err(format!("it is the configuration of {}", head.address));
        }
        Ok(Some(StoredVersion { revision: head.revision, bytes: rest.get(1..).unwrap_or_default().to_vec() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::remote::address::ConfigAddress;

    fn last_good(folder: &Path, address: &str) -> LastGood {
        match ConfigAddress::parse(address.into()) {
            Ok(ConfigAddress::Remote(address)) => LastGood::new(folder, &address),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn a_version_is_kept_for_its_address_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        let ours = last_good(&folder, "etcd://a:2379/weir/config");
        let name = "config-etcd-a-2379-weir-config-NAME.toml".replace("NAME", &ours.file.owner);
        assert_eq!(ours.path(), folder.join(name));
        assert_eq!(ours.read(), Ok(None));
        ours.write("7", b"[upstream]\n\n# end").unwrap();
        assert_eq!(ours.read(), Ok(Some(StoredVersion { revision: "7".into(), bytes: b"[upstream]\n\n# end".into() })));
        ours.write("\"a\"", b"").unwrap();
        assert_eq!(ours.read(), Ok(Some(StoredVersion { revision: "\"a\"".into(), bytes: Vec::new() })));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // Somebody has given the file of one configuration to another one.
        let other = last_good(&folder, "etcd://a:2379/weir/other");
        fs::copy(ours.path(), other.path()).unwrap();
        assert_eq!(other.read(), Err("it is the configuration of etcd://a:2379/weir/config".to_owned()));
        for damaged in ["", "[upstream]\n", "# The last good configuration, written by Weir: {}\n"] {
            fs::write(ours.path(), damaged).unwrap();
            assert!(ours.read().is_err(), "{damaged}");
        }
    }

    #[test]
    fn addresses_that_look_alike_have_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let long = format!("https://a/{}", "x".repeat(1000));
        let addresses = [
            "https://a/weir.toml".to_owned(),
            "https://a/weir.toml?token=hunter2".to_owned(),
            "https://a/weir.toml?token=hunter3".to_owned(),
            "etcd://a/eu-west/weir".to_owned(),
            "etcd://a/eu/west/weir".to_owned(),
            format!("{long}1"),
            format!("{long}2"),
        ];
        let all: Vec<_> = addresses.iter().map(|address| last_good(folder.path(), address)).collect();
        for (one, address) in all.iter().zip(&addresses) {
            one.write("1", address.replace("hunter", "").as_bytes()).unwrap();
            let versions = one.file.clone().of_versions().path;
            fs::write(versions.with_extension("json.0123456789abcdef.tmp"), "").unwrap();
        }
        for (one, address) in all.iter().zip(&addresses) {
            assert_eq!(one.read().unwrap().unwrap().bytes, address.replace("hunter", "").as_bytes());
            let written = fs::read_to_string(one.path()).unwrap();
            assert!(!written.contains("hunter") && !one.path().display().to_string().contains("hunter"), "{written}");
        }
    }
}
