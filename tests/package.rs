//! The Debian package: what it installs runs, an upgrade keeps the configuration and restarts nothing, and a purge leaves
//! nothing. `cargo-deb` packs the program of the tests, and dpkg unpacks it into a folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CONFIG: &str = "etc/weir/weir.toml";

/// Runs a command that must succeed. Returns its output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; see tests/install-servers"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// The package with this version.
fn package(version: &str, folder: &Path) -> PathBuf {
    let file = folder.join(format!("weir_{version}.deb"));
    let program = Path::new(env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("cargo");
    command.args(["deb", "--no-build", "--strip", "--fast", "--profile", "dev", "--deb-version", version, "--output"]);
    command.arg(&file).env("CARGO_TARGET_DIR", program.parent().and_then(Path::parent).unwrap());
    run(&mut command);
    file
}

/// Runs dpkg on the system below `root`, which has none of the libraries that the package needs.
fn dpkg(root: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("dpkg");
    command.args(["--force-depends", "--force-script-chrootless", "--force-not-root", "--root"]).arg(root);
    // As for any user who changed a file: without a terminal it stays.
    run(command.args(arguments).stdin(Stdio::null()))
}

/// All files and links below `root`, except those of dpkg itself.
fn files(root: &Path) -> Vec<String> {
    let found =
        run(Command::new("find").current_dir(root).args([".", "!", "-type", "d", "!", "-path", "./var/lib/dpkg/*"]));
    let mut files: Vec<_> = found.lines().map(str::to_owned).filter(|file| !file.starts_with("./var/log/")).collect();
    files.sort();
    files
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the installed program with the installed configuration, on free ports, and waits until it serves.
fn start(root: &Path) -> Running {
    let config = root.join(CONFIG);
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let state = root.join("state");
    std::fs::create_dir_all(&state).unwrap();
    let text = std::fs::read_to_string(config).unwrap().replace("/var/lib/weir", state.to_str().unwrap());
    let text = text.replace("/run/weir", state.to_str().unwrap()).replace("0.0.0.0:8080", "127.0.0.1:0");
    let text = text.replace("[admin]\n", &format!("[admin]\nlisten = \"127.0.0.1:{}\"\n", port()));
    std::fs::write(state.join("weir.toml"), text).unwrap();
    run(Command::new(root.join("usr/bin/weir")).args(["check", "--strict"]).arg(state.join("weir.toml")));
    let mut command = Command::new(root.join("usr/bin/weir"));
    command.arg("run").arg(state.join("weir.toml")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut weir = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(weir.0.stderr.take().unwrap()).lines();
    let ready = lines.by_ref().map(Result::unwrap).find(|line| line.contains("\"message\":\"listening\""));
    assert!(ready.is_some(), "weir ended before it served");
    weir
}

#[test]
fn the_debian_package_installs_starts_upgrades_and_purges() {
    let is_there =
        Command::new("cargo").args(["deb", "--version"]).output().is_ok_and(|output| output.status.success());
    if !is_there {
        run(&mut Command::new("tests/install-servers"));
    }
    run(Command::new("config/packages/prepare").arg(env!("CARGO_BIN_EXE_weir")));
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    for part in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        std::fs::create_dir_all(root.join(part)).unwrap();
    }
    for part in ["status", "available"] {
        std::fs::write(root.join("var/lib/dpkg").join(part), "").unwrap();
    }
    let [old, new] = ["0.0.1", "0.0.2"].map(|version| package(version, folder.path()));
    let before = files(&root);

    dpkg(&root, &["--install", old.to_str().unwrap()]);
    let installed = files(&root);
    for file in [
        "./etc/weir/weir.toml",
        "./usr/bin/weir",
        "./usr/share/bash-completion/completions/weir",
        "./usr/share/fish/vendor_completions.d/weir.fish",
        "./usr/share/zsh/vendor-completions/_weir",
    ] {
        assert!(installed.iter().any(|one| one == file), "{file}: {installed:#?}");
    }
    for (folder, name) in [("/man1/", "weir-check.1"), ("/systemd/system/", "weir.service"), ("/man1/", "weir.1")] {
        assert!(installed.iter().any(|one| one.contains(folder) && one.contains(name)), "{name}: {installed:#?}");
    }
    // Nothing starts unasked, neither now nor with the machine.
    assert!(!installed.iter().any(|file| file.contains(".wants/")), "{installed:#?}");
    drop(start(&root));

    let config = root.join(CONFIG);
    let changed = std::fs::read_to_string(&config).unwrap().replace("50/s", "51/s");
    std::fs::write(&config, &changed).unwrap();
    std::fs::remove_dir_all(root.join("state")).unwrap();
    let said = dpkg(&root, &["--install", new.to_str().unwrap()]);
    assert!(!said.contains("estart") && !said.contains("topping"), "{said}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), changed);
    drop(start(&root));
    std::fs::remove_dir_all(root.join("state")).unwrap();

    dpkg(&root, &["--remove", "weir"]);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), changed);
    let state = root.join("var/lib/private/weir");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("state"), "spent units").unwrap();
    dpkg(&root, &["--purge", "weir"]);
    assert_eq!(files(&root), before);
}
