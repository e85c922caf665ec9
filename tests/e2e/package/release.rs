//! `config/packages/release`, run in a copy of the tree.

use std::env::consts::ARCH;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{architecture, program, run, serve, tool};

/// A repository with the files of this tree in one commit, and the tag `v0.0.1`.
fn repository(tree: &Path) {
    std::fs::create_dir(tree).unwrap();
    let copy = "git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C \"$0\"";
    run(Command::new("sh").args(["-c", copy]).arg(tree));
    let git = |arguments: &[&str]| run(Command::new("git").current_dir(tree).args(arguments));
    git(&["init", "--quiet"]);
    git(&["add", "--all"]);
    git(&["-c", "user.name=Weir", "-c", "user.email=weir@localhost", "commit", "--quiet", "--message=Weir"]);
    git(&["tag", "v0.0.1"]);
}

/// The release script in `tree` with the program of the tests.
fn release(tree: &Path, tag: &str) -> Command {
    let mut command = tool(tree.join("config/packages/release"));
    command.current_dir(tree).arg(tag).arg(program());
    command
}

#[track_caller]
fn refuses(command: &mut Command, error: &str) {
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("release: {error}\n"));
    assert_eq!(output.status.code(), Some(1));
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The configuration of the image in the layout in `folder`.
fn image_config(folder: &Path) -> Value {
    let read = |path: &str| json(&std::fs::read_to_string(folder.join(path)).unwrap());
    let blob = |digest: &Value| read(&format!("blobs/{}", digest.as_str().unwrap().replace(':', "/")));
    let manifest = blob(&read("index.json")["manifests"][0]["digest"]);
    blob(&manifest["config"]["digest"])
}

/// The arguments of an instruction of Dockerfile, with the labels as pairs.
fn dockerfile(instruction: &str) -> Vec<String> {
    let text = std::fs::read_to_string("Dockerfile").unwrap();
    let last = text.split("\nFROM ").last().unwrap().to_owned();
    last.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).map(str::to_owned).collect()
}

fn check_image(folder: &Path) {
    let image = &image_config(folder)["config"];
    assert_eq!(dockerfile("USER"), [image["User"].as_str().unwrap()]);
    assert_eq!(json(&dockerfile("ENTRYPOINT")[0]), image["Entrypoint"]);
    assert_eq!(json(&dockerfile("CMD")[0]), image["Cmd"]);
    let ports: Vec<&str> = image["ExposedPorts"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(dockerfile("EXPOSE"), [ports.join(" ")]);
    let mut labels = image["Labels"].as_object().unwrap().clone();
    for label in dockerfile("LABEL") {
        let (name, value) = label.split_once('=').unwrap();
        assert_eq!(labels.remove(name), Some(json(value)), "{name}");
    }
    // A build by docker does not know them.
    let others: Vec<&str> = labels.keys().map(String::as_str).collect();
    assert_eq!(others, ["org.opencontainers.image.revision", "org.opencontainers.image.version"]);
}

#[test]
fn a_release_has_all_files_and_they_run() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    repository(&tree);
    let version = env!("CARGO_PKG_VERSION");
    let tag = format!("v{version}");

    refuses(&mut release(&tree, "v0.0.1"), &format!("the tag is v0.0.1, but Cargo.toml has the version {version}"));
    refuses(&mut release(&tree, &tag), &format!("HEAD is not the commit of the tag {tag}"));
    run(Command::new("git").current_dir(&tree).args(["tag", &tag]));
    std::fs::write(tree.join("config/new"), "").unwrap();
    refuses(&mut release(&tree, &tag), "the tree has changes without a commit");
    std::fs::remove_file(tree.join("config/new")).unwrap();

    let mut without_tools = release(&tree, &tag);
    refuses(without_tools.env("PATH", "/usr/bin:/bin"), "cargo-cyclonedx is missing: run tests/install-servers");

    run(&mut release(&tree, &tag));
    let dist = tree.join("dist");
    let mut names: Vec<String> =
        std::fs::read_dir(&dist).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = [
        "SHA256SUMS".into(),
        format!("weir-{version}-1.{ARCH}.rpm"),
        format!("weir-{version}-image-{}.tar", architecture()),
        format!("weir-{version}-linux-{}.tar.gz", architecture()),
        format!("weir-{version}.cdx.json"),
        format!("weir-chart-{version}.tgz"),
        format!("weir_{version}-1_{}.deb", architecture()),
    ];
    assert_eq!(names, expected);
    let sums = run(Command::new("sha256sum").current_dir(&dist).args(["--check", "SHA256SUMS"]));
    assert_eq!(sums.lines().filter(|line| line.ends_with(": OK")).count(), names.len() - 1);
    assert_eq!(run(Command::new("git").current_dir(&tree).args(["status", "--porcelain"])), "");

    run(Command::new("tar").current_dir(&dist).args(["-xzf", &expected[3]]));
    let unpacked = dist.join(format!("weir-{version}-linux-{}", architecture()));
    assert!(unpacked.join("man/weir.1.gz").exists() && unpacked.join("completions/bash").exists());
    serve(&unpacked.join("weir"), &unpacked.join("config/weir.toml"));
    run(Command::new(unpacked.join("weir")).arg("check").arg(unpacked.join("config/sellers.toml")));

    let layout = dist.join("layout");
    std::fs::create_dir(&layout).unwrap();
    run(Command::new("tar").current_dir(&layout).arg("-xf").arg(dist.join(&expected[2])));
    check_image(&layout);
    let bundle = dist.join("bundle");
    run(tool("umoci")
        .args(["unpack", "--rootless", "--image"])
        .arg(format!("{}:{version}", layout.display()))
        .arg(&bundle));
    let root = bundle.join("rootfs");
    assert!(root.join("etc/ssl/certs/ca-certificates.crt").exists() && root.join("var/lib/weir").is_dir());
    serve(&root.join("weir"), Path::new("config/deploy/weir.toml"));

    let text = std::fs::read_to_string(dist.join(&expected[4])).unwrap();
    assert!(!text.contains(tree.to_str().unwrap()));
    let bill = json(&text);
    let crates: Vec<&str> =
        bill["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(crates.contains(&"tokio") && !crates.contains(&"proptest"), "{crates:?}");
}
