//! A service manager that passes sockets on and is told what becomes of its service.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::ops::replace;
use crate::support::{Client, PATIENCE, Upstream, Weir};

/// Starts `weir run` with these as its descriptors 3 and 4, as its process id or another says.
fn command(folder: &Path, first: OwnedFd, second: OwnedFd, pid: &str) -> Command {
    let script = format!("exec 3<&0 4<&1 </dev/null 1>&2; LISTEN_PID={pid} exec \"$0\" run --config \"$1\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_weir")).arg(folder.join("weir.toml"));
    command.env("LISTEN_FDS", "2").stdin(Stdio::from(first)).stdout(Stdio::from(second));
    command
}

fn config(upstream: &Upstream, listen: &[String]) -> String {
    Weir::config(upstream, "", "").replacen("listen = \"127.0.0.1:0\"", &format!("listen = {listen:?}"), 1)
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weir.toml"), config).unwrap();
    folder
}

#[test]
fn sockets_that_are_passed_are_used() {
    let upstream = Upstream::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("passed.sock");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let address = tcp.local_addr().unwrap();
    let listen = [address.to_string(), format!("unix:{}", path.display()), "127.0.0.1:0".to_owned()];
    let folder = folder(&config(&upstream, &listen));
    // Who connects before Weir is there waits in the socket.
    let mut early = Client::connect(address);
    early.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    let command = command(folder.path(), tcp.try_clone().unwrap().into(), unix.try_clone().unwrap().into(), "$$");
    let weir = Weir::of_command(command, folder);
    assert_eq!(weir.address(), address);
    assert_eq!(early.answer().status, 200);
    for _ in 0..10 {
        assert_eq!(Client::connect(address).get("/").status, 200);
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(Client::over(stream).get("/").status, 200);
    }
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    // They are the manager's: they go on listening, and the file stays.
    assert!(path.exists() && UnixStream::connect(&path).is_ok());
    assert!(std::net::TcpStream::connect(address).is_ok());
}

#[test]
fn what_is_passed_to_others_or_for_nothing_is_not_used() {
    let upstream = Upstream::start();
    let any = ["127.0.0.1:0".to_owned()];
    let sockets = || [(); 2].map(|()| OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()));
    let [first, second] = sockets();
    let folder_of_others = folder(&config(&upstream, &any));
    let weir = Weir::of_command(command(folder_of_others.path(), first, second, "1"), folder_of_others);
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);

    let fails_with = |listen: &[String], first: OwnedFd, second: OwnedFd| {
        let folder = folder(&config(&upstream, listen));
        let output = command(folder.path(), first, second, "$$").stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let fails = |first: OwnedFd, second: OwnedFd| fails_with(&any, first, second);
    let [first, second] = sockets();
    let unused = "weir: cannot use a socket that was passed: no listener of the configuration has ";
    let said = fails(first, second);
    assert!(said.starts_with(&format!("{unused}127.0.0.1:")), "{said}");
    // The listener cannot be bound beside such a socket of its port.
    let all = [(); 2].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    let port = all[0].local_addr().unwrap().port();
    let [first, second] = all.map(OwnedFd::from);
    let said = fails_with(&[format!("127.0.0.1:{port}")], first, second);
    assert!(said.starts_with(&format!("{unused}0.0.0.0:")), "{said}");
    let [first, _] = sockets();
    for second in [
        OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap()),
        OwnedFd::from(fs::File::open("/dev/null").unwrap()),
        OwnedFd::from(UnixStream::pair().unwrap().0),
    ] {
        let said = fails(first.try_clone().unwrap(), second);
        assert!(said.starts_with("weir: cannot take the sockets that were passed: "), "{said}");
    }
}

#[test]
fn the_manager_is_told() {
    let (upstream, elsewhere) = (Upstream::start(), tempfile::tempdir().unwrap());
    let path = elsewhere.path().join("notify");
    let notified = UnixDatagram::bind(&path).unwrap();
    notified.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut bytes = [0; 256];
        let len = notified.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let text = Weir::config(&upstream, "", "");
    let weir = Weir::start_in_env(folder(&text), &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    assert_eq!(next(), "READY=1\n");
    weir.signal("HUP");
    let reloading = next();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").map(str::trim_end);
    assert!(since.is_some_and(|since| since.parse::<u64>().unwrap() > 0), "{reloading}");
    assert_eq!(next(), "READY=1\n");
    // Also if nothing comes of it.
    replace(&weir.config_file(), "nonsense");
    assert_eq!(next().lines().next(), Some("RELOADING=1"));
    assert_eq!(next(), "READY=1\n");
    weir.signal("TERM");
    assert_eq!(next(), "STOPPING=1\n");
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn a_manager_that_does_not_listen_is_no_obstacle() {
    let upstream = Upstream::start();
    let text = Weir::config(&upstream, "", "");
    let weir = Weir::start_in_env(folder(&text), &[("NOTIFY_SOCKET", "/nowhere/notify")]);
    weir.wait_for_line("cannot tell the service manager");
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
}
