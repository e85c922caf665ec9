//! A machine that stops at any step of a write, and temporary files of earlier processes.

use std::fs;
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::PermissionsExt;

use super::{Temp, clear, replace, set_aside};

/// The steps of a write, after each of which the machine may stop.
const STEPS: usize = 5;

/// Replaces the file at `path` by `text` up to a step, and stops there.
fn stop_after(step: usize, path: &std::path::Path, text: &str) {
    let mut temp = Temp::create(path).unwrap();
    if step >= 1 {
        temp.file.write_all(&text.as_bytes()[..text.len() / 2]).unwrap();
    }
    if step >= 2 {
        temp.file.write_all(&text.as_bytes()[text.len() / 2..]).unwrap();
    }
    if step >= 3 {
        temp.sync().unwrap();
    }
    if step >= 4 {
        return temp.rename().unwrap();
    }
    mem::forget(temp); // nothing is removed
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn whenever_it_stops_the_old_or_the_new_one_is_there() {
    for had_one in [true, false] {
        for step in 0..STEPS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state");
            if had_one {
                fs::write(&path, "old").unwrap();
            }
            stop_after(step, &path, "new and longer");
            let expected = match (step, had_one) {
                (4.., _) => Some("new and longer"),
                (_, true) => Some("old"),
                (_, false) => None,
            };
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), expected, "{step}");

            clear(&path).unwrap();
            assert_eq!(names(folder.path()), Vec::from_iter(expected.map(|_| "state".to_owned())), "{step}");
            replace(&path, |to| to.write_all(b"next")).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "next");
        }
    }
}

#[test]
fn only_its_owner_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(replace(&path, |to| to.write_all(b"new")).unwrap(), 3);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, "old").unwrap();
    let fails = |to: &mut io::BufWriter<&fs::File>| {
        to.write_all(b"half")?;
        Err(io::Error::other("full"))
    };
    assert!(replace(&path, fails).is_err());
    assert_eq!((names(folder.path()), fs::read_to_string(&path).unwrap().as_str()), (vec!["state".into()], "old"));
    // A folder has the name of the file.
    let taken = folder.path().join("taken");
    fs::create_dir_all(taken.join("within")).unwrap();
    assert!(replace(&taken, |to| to.write_all(b"new")).is_err());
    assert_eq!(names(folder.path()), ["state", "taken"]);
    assert!(replace(&folder.path().join("nowhere/state"), |_| Ok(())).is_err());
}

#[test]
fn only_regular_files_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(place("fifo")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
    fs::write(place("file"), "old").unwrap();
    for (link, target) in [("link", "file"), ("fifo-link", "fifo"), ("dangling", "none")] {
        std::os::unix::fs::symlink(target, place(link)).unwrap();
    }
    for (name, is_replaced) in
        [("fifo", false), ("fifo-link", false), ("socket", false), ("file", true), ("link", true), ("dangling", true)]
    {
        let before = fs::symlink_metadata(place(name)).unwrap().file_type();
        assert_eq!(replace(&place(name), |to| to.write_all(b"new")).is_ok(), is_replaced, "{name}");
        let after = fs::symlink_metadata(place(name)).unwrap().file_type();
        assert!(if is_replaced { after.is_file() } else { after == before }, "{name}");
    }
    assert_eq!(fs::read_to_string(place("file")).unwrap(), "new");
}

#[test]
fn only_what_was_left_behind_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let ours = ["state.0123456789abcdef.tmp", "state.ffffffffffffffff.tmp"];
    let others =
        ["other.0123456789abcdef.tmp", "state", "state.012345678.tmp", "state.damaged", "state.ghijklmnopqrstuv.tmp"];
    for name in ours.iter().chain(&others) {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    clear(&folder.path().join("state")).unwrap();
    assert_eq!(names(folder.path()), others);
}

#[test]
fn a_file_is_set_aside_and_a_folder_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    for text in ["one", "two"] {
        fs::write(&path, text).unwrap();
        let aside = set_aside(&path).unwrap();
        assert_eq!((aside.file_name().unwrap(), path.exists()), ("state.damaged".as_ref(), false));
        assert_eq!(fs::read_to_string(aside).unwrap(), text);
    }
    fs::create_dir(&path).unwrap();
    assert!(set_aside(&path).is_err() && path.is_dir());
}
