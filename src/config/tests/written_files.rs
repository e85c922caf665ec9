//! The files that Weir writes.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::*;

const OPTIONS: [&str; 6] =
    ["snapshot.path", "admin.overrides", "admin.bans", "admin.audit", "log.access_file", "identity.a.api_keys.file"];

/// A folder with a file, a link to it, another folder and a FIFO.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("folder")).unwrap();
    std::os::unix::fs::symlink("file", path("link")).unwrap();
    assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
    folder
}

/// What is said of options with these files.
fn said_of(folder: &TempDir, options: &[(&str, &str)]) -> String {
    let lines: Vec<_> = options.iter().map(|(option, file)| format!("{option} = '{file}'\n")).collect();
    let path = folder.path().join("weir.toml");
    fs::write(&path, format!("log.access = 'all'\n{}{UPSTREAM}", lines.concat())).unwrap();
    crate::config::load(&path.as_path().into()).map_or_else(|problems| problems.to_string(), |_| "valid".to_owned())
}

#[test]
fn each_is_a_file_of_its_own() {
    let folder = folder();
    for (index, one) in OPTIONS.iter().enumerate() {
        for other in &OPTIONS[index + 1..] {
            for files in [["file", "file"], ["file", "link"], ["folder/../file", "./file"]] {
                let said = said_of(&folder, &[(one, files[0]), (other, files[1])]);
                assert!(said.contains(&format!("`{one}` and `{other}` are the same file")), "{files:?}: {said}");
            }
        }
        let files: Vec<_> =
            OPTIONS.iter().map(|option| (*option, if option == one { "file" } else { "none" })).collect();
        assert!(!said_of(&folder, &files).contains(&format!("`{one}`")), "{one}");
    }
    let names = ["a", "b", "c", "d", "e", "file"];
    assert_eq!(said_of(&folder, &OPTIONS.into_iter().zip(names).collect::<Vec<_>>()), "valid");
}

#[test]
fn some_files_are_there_by_default() {
    let folder = folder();
    for (options, expected) in [
        (
            &[("snapshot.path", "folder/../new"), ("admin.bans", "new")][..],
            "`snapshot.path` and `admin.bans` are the same",
        ),
        (&[("snapshot.path", "weir.bans.jsonl")], "`snapshot.path` and `admin.bans` are the same"),
        (&[("admin.audit", "weir.overrides.toml")], "`admin.overrides` and `admin.audit` are the same"),
        (&[("admin.audit", "weir.overrides.toml"), ("admin.overrides", "off")], "valid"),
        (&[("admin.overrides", "memory"), ("admin.bans", "memory")], "valid"),
        (&[("admin.audit", "fifo"), ("log.access_file", "fifo")], "valid"),
        (&[("identity.a.api_keys.file", "file"), ("identity.b.api_keys.file", "file")], "valid"),
        (&[("snapshot.path", "weir.toml")], "`snapshot.path`: is the configuration file"),
        (&[("log.access_file", "folder/../weir.toml")], "`log.access_file`: is the configuration file"),
        (&[("log.access_file", "folder/")], "`log.access_file`: is a folder; name a file in it"),
        (&[("admin.bans", "weir.toml")], "`admin.bans`: is the configuration file"),
        (&[("admin.audit", "weir.toml")], "`admin.audit`: is the configuration file"),
    ] {
        let said = said_of(&folder, options);
        assert!(said.contains(expected), "{options:?}: {said}");
    }
}
