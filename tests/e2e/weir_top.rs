//! `weir top`: on a pseudo-terminal, and as plain tables.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::support::{Client, PATIENCE, Upstream, Weir};

const LIMITS: &str = r#"
[[limit]]
name = "per-ip"
key = ["ip"]
rate = "2/h"

[[limit]]
name = "calm"
key = []
rate = "1000/day"
"#;

/// Starts a Weir that has refused a request, and waits until its history has it.
fn start(upstream: &Upstream) -> Weir {
    let weir = Weir::start(upstream, LIMITS);
    let statuses = [(); 3].map(|()| Client::connect(weir.address()).get("/").status);
    assert_eq!(statuses, [200, 200, 429]);
    let history = "GET /v1/history HTTP/1.1\r\nHost: localhost\r\n\r\n";
    weir.wait_until("a sample", || {
        let history: Value =
            serde_json::from_slice(&Client::connect(weir.admin()).send(history).answer().body).unwrap();
        history["at_s"][0].is_u64()
    });
    weir
}

fn command(weir: &Weir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("top").args(arguments).env("WEIR_ADMIN", weir.admin().to_string());
    command.env_remove("WEIR_ADMIN_TOKEN").env("TERM", "xterm-256color");
    command
}

#[test]
fn without_a_terminal_it_prints_tables_or_json_once() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let text = |arguments: &[&str]| {
        let output = command(&weir, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?} {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for tables in [text(&[]), text(&["--once"])] {
        for part in ["forwarded ", "LIMIT ", "per-ip", "calm", "LAST MINUTE", "127.0.0.1"] {
            assert!(tables.contains(part), "{part}: {tables}");
        }
        assert!(!tables.contains('\u{1b}') && !tables.contains("REPLICA"), "{tables}");
    }
    let figures: Value = serde_json::from_str(&text(&["--once", "--json"])).unwrap();
    assert_eq!(figures["top"]["limits"][0]["keys"][0]["key"], "127.0.0.1");
    assert!(figures["history"]["limits"][1]["limit"] == "calm" && figures["fleet"].is_null(), "{figures}");
    let output = command(&weir, &["--admin", "127.0.0.1:1"]).output().unwrap();
    assert!(output.status.code() == Some(1) && output.stdout.is_empty());
}

/// A command on a pseudo-terminal; killed on drop.
struct OnTerminal {
    child: Child,
    /// The end of the user.
    screen: File,
    terminal: OwnedFd,
    /// The bytes of the command, as they come.
    pieces: Receiver<Vec<u8>>,
    /// The bytes since the last text that was waited for.
    shown: Vec<u8>,
}

impl OnTerminal {
    fn start(mut command: Command) -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let name = ptsname(&user, Vec::new()).unwrap();
        let terminal = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let screen = File::from(user);
        let (sender, pieces) = channel();
        let mut reader = screen.try_clone().unwrap();
        // It ends with the test: a read of a terminal has no deadline.
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, screen, terminal, pieces, shown: Vec::new() }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(rustix::termios::LocalModes::ECHO)
    }

    /// Waits until the screen has shown `text` since the last such call.
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !String::from_utf8_lossy(&self.shown).contains(text) {
            let rest = until.saturating_duration_since(Instant::now());
            let piece = self.pieces.recv_timeout(rest);
            self.shown.extend(piece.unwrap_or_else(|_| panic!("{text}: {}", String::from_utf8_lossy(&self.shown))));
        }
        self.shown.clear();
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of the alternate screen.
const LEAVES: &str = "\u{1b}[?1049l";

#[test]
fn keys_and_signals_end_the_screen_and_restore_the_terminal() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for end in ["q", "\u{3}", "TERM", "HUP"] {
        let mut top = OnTerminal::start(command(&weir, &["--every", "1"]));
        top.wait_for("calm");
        assert!(top.is_raw(), "{end}");
        top.screen.write_all(b"p").unwrap();
        top.wait_for("paused");
        if end.len() == 1 {
            top.screen.write_all(end.as_bytes()).unwrap();
        } else {
            let pid = top.child.id().to_string();
            assert!(Command::new("kill").arg(format!("-{end}")).arg(pid).status().unwrap().success());
        }
        top.wait_for(LEAVES);
        assert_eq!(top.child.wait().unwrap().code(), Some(0), "{end}");
        assert!(!top.is_raw(), "{end}");
    }
}
