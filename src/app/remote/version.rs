//! Versions of a remote configuration, and what a replica reports about them.

use std::sync::Arc;

use serde::Serialize;

use crate::admin::FindingBody;
use crate::config::Diagnostics;

/// One version of a remote configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// The revision of the key in etcd, or the `ETag`.
    pub(super) revision: Arc<str>,
    /// The bytes, or why there are none.
    pub(super) content: Result<Arc<[u8]>, Arc<str>>,
}

impl Version {
    /// A version with this value of a key or body of a response.
    pub(super) fn of(revision: &str, bytes: &[u8]) -> Self {
        let content = if bytes.trim_ascii().is_empty() { Err("it is empty".into()) } else { Ok(bytes.into()) };
        Self { revision: revision.into(), content }
    }

    /// The absence of the key in etcd.
    pub(super) fn absent(revision: i64, reason: &str) -> Self {
        Self { revision: revision.to_string().into(), content: Err(reason.into()) }
    }
}

/// The state of the newest version at one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RolloutState {
    /// The newest version is in force.
    InForce,
    /// The newest version is invalid or cannot be used; an older one is in force.
    Refused,
    /// No version has been read since the start; the last good one on disk is in force.
    FromDisk,
}

/// What a replica reports about its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) replica: String,
    /// The version of Weir.
    pub(super) version: &'static str,
    pub(super) state: RolloutState,
    /// The revision of the newest version.
    pub(super) revision_seen: Option<String>,
    pub(super) revision_in_force: Option<String>,
    /// Why the newest version is refused.
    pub(super) problems: Vec<String>,
    /// Tables whose changes are in force only after a restart.
    pub(super) restart_needed: Vec<&'static str>,
    /// The time of the last attempt to apply a version, in RFC 3339.
    pub(super) at: String,
}

/// The first problems of a configuration, each with its line and column.
pub(super) fn problems(diagnostics: &Diagnostics) -> Vec<String> {
    let (findings, more) = diagnostics.findings();
    let line = |FindingBody { title, line, column, .. }: FindingBody| match line.zip(column) {
        Some((line, column)) => format!("{line}:{column}: {title}"),
        None => title,
    };
    let more = (more > 0).then(|| format!("and {more} more"));
    findings.into_iter().map(line).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::admin::rfc3339;
    use crate::base::time::Timestamp;
    use crate::config;

    #[test]
    fn a_report_is_json_without_secrets() {
        let wrong = "[upstream]\nurl = 'http://me:hunter2@127.0.0.1:9'\n[timeouts]\nidel = '1s'\n";
        let diagnostics = config::compile(wrong, "a", Path::new(""), &|_| None).unwrap_err();
        let report = Report {
            replica: "a".into(),
            version: "0.1.0",
            state: RolloutState::Refused,
            revision_seen: Some("7".into()),
            revision_in_force: None,
            problems: problems(&diagnostics),
            restart_needed: vec!["server"],
            at: rfc3339(Timestamp::from_ns(1_500_000_000)),
        };
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(
            text.starts_with(r#"{"replica":"a","version":"0.1.0","state":"refused","revision_seen":"7","#),
            "{text}"
        );
        assert!(text.ends_with(r#""restart_needed":["server"],"at":"1970-01-01T00:00:01.500Z"}"#), "{text}");
        assert!(report.problems.iter().any(|problem| problem.starts_with("4:1: ")), "{:?}", report.problems);
    }

    #[test]
    fn a_version_without_text_has_no_content() {
        for (bytes, has_content) in [(&b"a"[..], true), (b"", false), (b" \n\t", false)] {
            assert_eq!(Version::of("1", bytes).content.is_ok(), has_content, "{bytes:?}");
        }
    }
}
