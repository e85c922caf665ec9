//! A process that starts its successor itself, and the service manager that is told of it.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use super::{Place, left, status};
use crate::ops::{count_lines, replace, until};
use crate::support::{PATIENCE, Weir};

const BUDGET: &str = "[[limit]]\nname = \"spent\"\nkey = []\nrate = \"100/day\"\n";

/// A service manager that listens.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, folder }
    }

    fn start(&self, config: &str) -> Weir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weir.toml"), config).unwrap();
        let path = self.folder.path().join("notify");
        Weir::start_in_env(folder, &[("NOTIFY_SOCKET", path.to_str().unwrap())])
    }

    /// The first line of what it is told next.
    fn next(&self) -> String {
        let mut bytes = [0; 256];
        let len = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).lines().next().unwrap_or_default().to_owned()
    }
}

/// A process that nobody waits for; stopped on drop.
struct Successor(String);

impl Successor {
    fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([&format!("-{name}"), &self.0]).status();
    }

    fn is_there(&self) -> bool {
        // One that has ended may stay as a zombie where nobody reaps.
        let status = fs::read_to_string(format!("/proc/{}/stat", self.0));
        status.is_ok_and(|status| !status.contains(") Z "))
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

#[test]
fn a_signal_starts_the_next() {
    let (place, manager) = (Place::new(BUDGET), Manager::new());
    let old = manager.start(&place.config(""));
    assert_eq!(manager.next(), "READY=1");
    assert_eq!(left(&old, "/"), Some(99));
    old.signal("USR2");
    assert_eq!(manager.next(), "RELOADING=1");
    let main = manager.next();
    let next = Successor(main.strip_prefix("MAINPID=").unwrap_or_else(|| panic!("{main}")).to_owned());
    assert_ne!(next.0, old.pid().to_string());
    assert_eq!(manager.next(), "READY=1");
    assert_eq!(left(&old, "/"), Some(98));
    old.wait_for_line("\"stopped\"");
    assert_eq!(left(&old, "/"), Some(97), "the same address, another process");
    let address = old.address();
    assert_eq!(old.wait(), Some(0));
    next.signal("TERM");
    // Nothing is said at the end of the old one, which is not the service any more.
    assert_eq!(manager.next(), "STOPPING=1");
    until("it has ended", || !next.is_there());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_successor_that_fails_is_reported() {
    let (place, manager) = (Place::new(BUDGET), Manager::new());
    let old = manager.start(&place.config(""));
    assert_eq!(manager.next(), "READY=1");
    replace(&old.config_file(), "nonsense");
    assert_eq!((manager.next(), manager.next()), ("RELOADING=1".to_owned(), "READY=1".to_owned()));
    old.signal("USR2");
    assert_eq!((manager.next(), manager.next()), ("RELOADING=1".to_owned(), "READY=1".to_owned()));
    let line = old.wait_for_line("the successor did not take over");
    assert!(line.contains("exit status: 3"), "{line}");
    assert_eq!(left(&old, "/"), Some(99));
}

#[test]
fn without_a_socket_there_is_no_successor() {
    let place = Place::new(BUDGET);
    let config = place.config("").replace("takeover = ", "#");
    let weir = Weir::start_as(&config);
    weir.signal("USR2");
    weir.wait_for_line("but `server.takeover` is not set");
    assert_eq!(status(&weir, "/"), 200);
    assert_eq!(count_lines(&weir, "\"listening\""), 1);
}
