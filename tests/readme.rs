//! The README says what is so: its options, configurations and metrics are those of the code.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use weir::config;
use weir::telemetry::Metrics;
use weir::time::Timestamp;

const README: &str = include_str!("../README.md");

/// What stands between two texts.
fn between(start: &str, end: &str) -> &'static str {
    README.split_once(start).unwrap().1.split_once(end).unwrap().0
}

#[test]
fn every_option_is_there() {
    let expected = config::options_markdown();
    let found = between("<!-- options -->\n", "<!-- /options -->");
    assert!(found == expected, "put this between the markers:\n{expected}");
}

/// The files that the configuration with TLS names.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a.test".into()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.path().join("admin.token"), "0123456789abcdef").unwrap();
    for name in ["shop", "api", "devices", "ca", "weir"] {
        std::fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    folder
}

#[test]
fn every_configuration_compiles() {
    let blocks: Vec<_> = README.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(blocks.len() >= 6, "{}", blocks.len());
    let certificates = certificates();
    for block in blocks {
        let upstream = if block.contains("[upstream") { "" } else { "[upstream]\nurl = \"http://127.0.0.1:9000\"\n" };
        let has_files = block.contains(".tls]") || block.contains("ca.pem");
        let folder = if has_files { certificates.path() } else { Path::new("config") };
        let compiled = config::compile(&format!("{upstream}{block}"), "README.md", folder, &|_| None);
        compiled.unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn every_metric_is_there_and_no_other() {
    let metrics = Metrics::new("", "").unwrap();
    metrics.show_snapshots().unwrap();
    metrics.limit("any");
    metrics.endpoint("any", "any");
    metrics.upstream("any");
    metrics.problems.with_label_values(&["any"]);
    metrics.jwks_fetched("any", true, Timestamp::ZERO);
    let text = String::from_utf8(metrics.render().unwrap()).unwrap();
    let registered: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let rows = between("### Metrics", "### Logs").lines().filter_map(|line| line.strip_prefix("| `"));
    let described: BTreeSet<_> = rows.map(|row| row.split_once('`').unwrap().0).collect();
    assert_eq!(described, registered);
}

#[test]
fn every_link_leads_somewhere() {
    let links = README.split("](").skip(1).map(|rest| rest.split_once(')').unwrap().0);
    for link in links.filter(|link| !link.starts_with("http")) {
        assert!(Path::new(link).exists(), "{link}");
    }
}

#[test]
fn every_transcript_comes_true() {
    let transcripts: Vec<_> = README.split("```text\n$ weir ").skip(1).collect();
    assert!(!transcripts.is_empty());
    for transcript in transcripts {
        let (command, said) = transcript.split_once("```").unwrap().0.split_once('\n').unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(command.split(' ')).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), said, "$ weir {command}");
    }
}
