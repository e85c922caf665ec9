//! One process takes over from another: nobody is refused, nothing is refilled, and whoever fails, one goes on.

mod failures;
mod killed;
mod service;
mod successions;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Client, Upstream, Weir};

/// A place where processes take over one from another, with the limits of `rest`.
pub struct Place {
    pub upstream: Upstream,
    pub folder: tempfile::TempDir,
    rest: String,
}

impl Place {
    pub fn new(rest: &str) -> Self {
        Self { upstream: Upstream::start(), folder: tempfile::tempdir().unwrap(), rest: rest.to_owned() }
    }

    /// The socket over which they do.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("takeover.sock")
    }

    pub fn config(&self, server: &str) -> String {
        let takeover = format!("takeover = \"{}\"\n{server}", self.socket().display());
        let config = Weir::config(&self.upstream, &takeover, &self.rest);
        // The later of two wins nothing: TOML takes no key twice.
        if server.contains("workers") { config.replacen("workers = 2\n", "", 1) } else { config }
    }

    /// Starts the next process. It takes over if there is another.
    pub fn start(&self) -> Weir {
        self.start_with("")
    }

    pub fn start_with(&self, server: &str) -> Weir {
        Weir::start_as(&self.config(server))
    }
}

/// Starts one that is to fail, and says what it said.
pub fn fails(config: &str, code: i32) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    let output = run(&folder.path().join("weir.toml"));
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn run(config: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("run").arg("--config").arg(config).stdin(Stdio::null()).output().unwrap()
}

/// What is left of the budget of a request, after it.
pub fn left(weir: &Weir, target: &str) -> Option<u64> {
    Client::connect(weir.address()).get(target).header("x-ratelimit-remaining").map(|left| left.parse().unwrap())
}

pub fn status(weir: &Weir, target: &str) -> u16 {
    Client::connect(weir.address()).get(target).status
}
