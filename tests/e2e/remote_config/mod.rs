//! One configuration for a fleet: from etcd or a URL, with the last good version on disk.

mod etcd;
mod faults;
mod https;
mod members;
mod process;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Client, Etcd, Upstream, Weir};

/// The key of the configuration.
const KEY: &str = "/weir/config";
const SUCCESSFUL: &str = "weir_config_last_reload_successful";
const REVISION: &str = "weir_config_revision";
const REACHABLE: &str = "weir_config_source_reachable";

/// A configuration with one limit for all requests.
fn config(upstream: &Upstream, per_second: u32) -> String {
    let limit = format!("[[limit]]\nname = \"all\"\nkey = []\nrate = \"{per_second}/s\"\n");
    Weir::config(upstream, "", &limit)
}

/// The command line of a Weir with this configuration, in `folder`.
fn command(place: &str, folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--config", place]).args(more).current_dir(folder).stdin(Stdio::null());
    if !more.contains(&"--state-dir") {
        command.args(["--state-dir", "state"]);
    }
    command
}

/// Starts a Weir with this configuration, in a folder of its own.
pub fn start(place: &str, more: &[&str]) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    Weir::of_command(command(place, folder.path(), more), folder)
}

/// Runs a Weir that ends by itself.
fn run(place: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    command(place, folder.path(), more).output().unwrap()
}

/// What a process wrote to standard error.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The burst that clients are told of.
fn shown_limit(weir: &Weir) -> Option<String> {
    Client::connect(weir.address()).get("/").header("x-ratelimit-limit").map(str::to_owned)
}

#[track_caller]
fn until_limit(weir: &Weir, burst: &str) {
    weir.wait_until(&format!("a limit of {burst}"), || shown_limit(weir).as_deref() == Some(burst));
}

/// The report of a replica; null without one.
fn status(etcd: &Etcd, replica: &str) -> Value {
    serde_json::from_str(&etcd.get(&format!("/weir/status/{replica}"))).unwrap_or_default()
}

/// Waits until a replica reports this state of this revision.
#[track_caller]
fn until_status(weir: &Weir, etcd: &Etcd, replica: &str, state: &str, revision: i64) -> Value {
    let revision = revision.to_string();
    weir.wait_for(&format!("{state} of {revision} at {replica}"), || {
        let status = status(etcd, replica);
        (status["state"] == state && status["revision_seen"] == *revision).then_some(status)
    })
}
