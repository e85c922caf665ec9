//! Programs and libraries that `tests/install-servers` installs. A test that needs a missing one fails, and names it.

use std::path::PathBuf;

/// The path of a program; some are outside the users' PATH.
pub fn installed(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{program} is missing: run tests/install-servers"))
}

/// The path of a shared library by its path below `/usr/lib/ARCHITECTURE`.
pub fn library(name: &str) -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found = folders.map(|folder| folder.path().join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run tests/install-servers"))
}
