//! The folder of an account and its certificate. Each file is replaced as a whole, and only its owner can read it.
//!
//! A process holds a lock while it orders, so that processes that share the folder order one after the other.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;

use crate::engine::store::snapshot::file;
use crate::transport::net::tls::{AcmeSettings, ServerCertificate};

/// The files of one authority.
#[derive(Clone, Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// The certificate, those of its issuers, and the key.
    certificate: PathBuf,
    account: PathBuf,
}

impl Files {
    /// The files have the name of the directory, so that a change of the authority finds none of another one.
    pub(super) fn of(settings: &AcmeSettings) -> Self {
        let directory = settings.directory.to_string();
        let name = directory.split_once("://").map_or(&*directory, |(_, rest)| rest);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(NAME_MAX).collect();
        let path = |ending| settings.folder.join(format!("{name}.{ending}"));
        Self { folder: settings.folder.clone(), certificate: path("pem"), account: path("account.json") }
    }

    /// The lock of the folder, which is created if it is absent. `None` if another process has the lock.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.folder.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Temporary files of earlier processes do no harm if they stay.
        let _ = file::clear(&self.certificate).and_then(|()| file::clear(&self.account));
        Ok(Some(lock))
    }

    /// The stored certificate; `None` without a file.
    pub(super) fn certificate(&self) -> Result<Option<ServerCertificate>, String> {
        let Some(pem) = read(&self.certificate)? else { return Ok(None) };
        let certificate = ServerCertificate::new(&pem, &pem);
        certificate.map(Some).map_err(|what| format!("`{}` is damaged: {what}", self.certificate.display()))
    }

    /// The stored account; `None` without a file.
    pub(super) fn account(&self) -> Result<Option<AccountCredentials>, String> {
        let Some(json) = read(&self.account)? else { return Ok(None) };
        let account = serde_json::from_slice(&json);
        account.map(Some).map_err(|_| format!("`{}` is damaged", self.account.display()))
    }

    pub(super) fn save_certificate(&self, pem: &[u8]) -> Result<(), String> {
        save(&self.certificate, pem)
    }

    pub(super) fn save_account(&self, account: &AccountCredentials) -> Result<(), String> {
        save(&self.account, &serde_json::to_vec(account).map_err(|error| error.to_string())?)
    }
}

/// Bytes of a file name for a directory. The file system allows 255, with the ending and that of a temporary file.
const NAME_MAX: usize = 200;

fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read `{}`: {error}", path.display())),
    }
}

fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let saved = file::replace(path, |to| to.write_all(bytes));
    saved.map(drop).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path, directory: &'static str) -> Files {
        Files::of(&AcmeSettings {
            domains: Box::new(["a.test".to_owned()]),
            contact: None,
            directory: http::Uri::from_static(directory),
            folder: folder.join("acme"),
            trust: None,
            external: None,
        })
    }

    #[test]
    fn authorities_have_files_of_their_own() {
        let name = |directory| files(Path::new("/f"), directory).certificate.display().to_string();
        assert_eq!(name("https://acme.test/directory"), "/f/acme/acme.test_directory.pem");
        assert_eq!(name("https://[::1]:14000/a/../dir?x"), "/f/acme/___1__14000_a_.._dir_x.pem");
    }

    #[test]
    fn one_process_at_a_time_has_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (files(folder.path(), "https://a.test/"), files(folder.path(), "https://b.test/"));
        let lock = one.lock().unwrap();
        assert!(lock.is_some() && other.lock().unwrap().is_none());
        // A process that another test starts has a copy of the descriptor for a moment.
        lock.unwrap().unlock().unwrap();
        assert!(other.lock().unwrap().is_some());
        assert!(one.certificate().unwrap().is_none() && one.account().unwrap().is_none());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), "https://a.test/");
        drop(files.lock().unwrap());
        for bytes in ["", "-----BEGIN", "{}", "\u{0}"] {
            std::fs::write(&files.certificate, bytes).unwrap();
            std::fs::write(&files.account, bytes).unwrap();
            assert!(files.certificate().unwrap_err().contains("is damaged"), "{bytes}");
            assert!(files.account().err().unwrap().contains("is damaged"), "{bytes}");
        }
        std::fs::remove_file(&files.account).unwrap();
        std::fs::create_dir(&files.account).unwrap();
        assert!(files.account().err().unwrap().contains("cannot read"));
    }
}
