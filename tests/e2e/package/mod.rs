//! Packages and releases: what they install runs, an upgrade keeps the configuration and restarts nothing, and a release
//! has all its files. They have the program of the tests.

mod chart;
mod release;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::{Client, Weir, installed};

const CONFIG: &str = "etc/weir/weir.toml";

/// Runs a command that must succeed. Returns its output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// A command with the tools of `tests/install-servers`.
fn tool(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let folder = std::env::current_dir().unwrap().join("target/tools/bin");
    assert!(folder.join("nfpm").is_file(), "nfpm is missing: run tests/install-servers");
    for program in ["cargo-cyclonedx", "rpm", "umoci"] {
        installed(program);
    }
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new(program);
    command.env("PATH", format!("{}:{path}", folder.display()));
    command
}

/// The program of the tests without debug information, and the parts that it writes.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("weir");
        run(Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_weir")));
        run(Command::new("config/packages/prepare").arg(&program));
        program
    })
}

/// The architecture of this machine in the names of deb and OCI.
fn architecture() -> &'static str {
    if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" }
}

/// The package of this kind with this version.
fn package(kind: &str, version: &str, folder: &Path) -> String {
    let file = folder.join(format!("weir_{version}.{kind}")).to_str().unwrap().to_owned();
    let mut command = tool("nfpm");
    command.args(["package", "--config", "config/packages/nfpm.yaml", "--packager", kind, "--target", &file]);
    run(command.env("ARCH", architecture()).env("VERSION", version).env("PROGRAM", program()));
    file
}

/// Runs dpkg on the system below `root`, which has none of the libraries that the package needs.
fn dpkg(root: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("dpkg");
    command.args(["--force-depends", "--force-script-chrootless", "--force-not-root", "--root"]).arg(root);
    // As for any user who changed a file: without a terminal it stays.
    run(command.args(arguments).stdin(Stdio::null()))
}

/// Runs rpm on the system below `root`.
fn rpm(root: &Path, arguments: &[&str]) -> String {
    let mut command = tool("rpm");
    command.arg("--root").arg(root).args(["--dbpath", "/var/lib/rpm", "--force-debian"]);
    run(command.args(arguments))
}

/// All files and links below `root`, except those of dpkg and rpm themselves.
fn files(root: &Path) -> Vec<String> {
    let found = run(Command::new("find").current_dir(root).args([".", "!", "-type", "d"]));
    let own = ["./var/lib/dpkg/", "./var/lib/rpm/", "./var/log/"];
    let mut files: Vec<_> =
        found.lines().filter(|file| !own.iter().any(|own| file.starts_with(own))).map(str::to_owned).collect();
    files.sort();
    files
}

/// Runs the program with the configuration of packages on free ports, until it has served a request.
fn serve(program: &Path, config: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let text = std::fs::read_to_string(config).unwrap().replace("/var/lib/weir", state);
    let text = text.replace("/run/weir", state).replace("0.0.0.0:8080", "127.0.0.1:0");
    let text = text.replace("[admin]\n", "[admin]\nlisten = \"127.0.0.1:0\"\n");
    let config = folder.path().join("weir.toml");
    std::fs::write(&config, text).unwrap();
    run(Command::new(program).args(["check", "--strict"]).arg(&config));
    let mut command = Command::new(program);
    command.arg("run").arg(&config).stdout(Stdio::null());
    let answer = Client::connect(Weir::of_command(command, folder).address()).get("/");
    // Nothing listens behind it.
    assert!(answer.status == 502 && answer.header("x-ratelimit-remaining").is_some(), "{answer:?}");
}

#[test]
fn the_debian_package_installs_starts_upgrades_and_purges() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    for part in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        std::fs::create_dir_all(root.join(part)).unwrap();
    }
    for part in ["status", "available"] {
        std::fs::write(root.join("var/lib/dpkg").join(part), "").unwrap();
    }
    let [old, new] = ["0.0.1", "0.0.2"].map(|version| package("deb", version, folder.path()));

    dpkg(&root, &["--install", &old]);
    let installed = files(&root);
    for file in [
        "./etc/weir/weir.toml",
        "./usr/bin/weir",
        "./usr/lib/systemd/system/weir.service",
        "./usr/share/bash-completion/completions/weir",
        "./usr/share/fish/vendor_completions.d/weir.fish",
        "./usr/share/man/man1/weir-check.1.gz",
        "./usr/share/man/man1/weir.1.gz",
        "./usr/share/zsh/vendor-completions/_weir",
    ] {
        assert!(installed.iter().any(|one| one == file), "{file}: {installed:#?}");
    }
    // Nothing starts unasked, neither now nor with the machine.
    assert!(!installed.iter().any(|file| file.contains(".wants/")), "{installed:#?}");
    let config = root.join(CONFIG);
    serve(&root.join("usr/bin/weir"), &config);

    let changed = std::fs::read_to_string(&config).unwrap().replace("50/s", "51/s");
    std::fs::write(&config, &changed).unwrap();
    let said = dpkg(&root, &["--install", &new]);
    assert!(!said.contains("estart") && !said.contains("topping"), "{said}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), changed);
    serve(&root.join("usr/bin/weir"), &config);

    dpkg(&root, &["--remove", "weir"]);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), changed);
    let state = root.join("var/lib/private/weir");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("state"), "spent units").unwrap();
    dpkg(&root, &["--purge", "weir"]);
    assert_eq!(files(&root), Vec::<String>::new());
}

#[test]
fn the_rpm_has_the_files_of_the_debian_package_and_keeps_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("var/lib/rpm")).unwrap();
    let [old, new] = ["0.0.1", "0.0.2"].map(|version| package("rpm", version, folder.path()));
    let deb = folder.path().join("deb");
    run(Command::new("dpkg-deb").arg("--extract").arg(package("deb", "0.0.1", folder.path())).arg(&deb));

    // Without scripts, for which the system has no shell.
    rpm(&root, &["--install", "--nodeps", "--noscripts", &old]);
    let mut expected = files(&deb);
    for file in &mut expected {
        *file = file.replace("zsh/vendor-completions", "zsh/site-functions");
    }
    expected.sort();
    assert_eq!(files(&root), expected);
    let config = root.join(CONFIG);
    serve(&root.join("usr/bin/weir"), &config);
    // Upgrades have the arguments 1 (old) and 2 (new), and a removal 0.
    let scripts = rpm(&root, &["--query", "--scripts", "weir"]);
    let mut commands = scripts.lines().filter(|line| !line.starts_with('#'));
    assert!(commands.all(|line| !line.contains("start") && !line.contains(" enable")), "{scripts}");
    assert!(scripts.contains("remove | 0)"), "{scripts}");

    let changed = std::fs::read_to_string(&config).unwrap().replace("50/s", "51/s");
    std::fs::write(&config, &changed).unwrap();
    rpm(&root, &["--upgrade", "--nodeps", "--noscripts", &new]);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), changed);
    assert_eq!(rpm(&root, &["--query", "weir"]).trim(), format!("weir-0.0.2-1.{}", std::env::consts::ARCH));

    rpm(&root, &["--erase", "--noscripts", "weir"]);
    assert_eq!(files(&root), ["./etc/weir/weir.toml.rpmsave"]);
}

/// A purge leaves no state and no log, also of the dynamic user.
#[test]
fn a_purge_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let folders =
        ["lib/weir", "lib/private/weir", "log/weir", "log/private/weir"].map(|at| root.path().join("var").join(at));
    let step = |step: &str| {
        run(Command::new("sh").args(["config/packages/postremove", step]).env("DPKG_ROOT", root.path()));
    };
    for folder in &folders {
        std::fs::create_dir_all(folder).unwrap();
    }
    step("remove");
    assert!(folders.iter().all(|folder| folder.exists()));
    step("purge");
    assert!(!folders.iter().any(|folder| folder.exists()));
}
