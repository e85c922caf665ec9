//! The words of options, each with its value. The documentation lists the words, and `compile` reads the values.

use std::fmt;

use crate::admin::Role;
use crate::base::telemetry::{AccessLog, LogFormat};
use crate::engine::limit::adaptive_rate::Signal;
use crate::engine::limit::{AlgorithmName, OnFull};
use crate::engine::policy::client_ip::AddressHeader;
use crate::engine::policy::path::EncodedSlashes;
use crate::engine::policy::{CertificateName, KeyPart, Mode, OnMissing, Priority, Repeated, Stage, StaleCause};
use crate::engine::store::backend::OnFailure;
use crate::transport::http1::Underscores;
use crate::transport::net::Protocol;
use crate::transport::net::proxy_protocol::Version;
use crate::transport::proxy::settings::CheckHeaders;
use crate::transport::upstream::settings::{Balance, Resolve};

/// The words of an option.
pub trait Words: fmt::Debug + Sync {
    /// All words, in the order of the documentation.
    fn all(&self) -> Vec<&'static str>;
}

impl<T: fmt::Debug + Sync, const N: usize> Words for [(&'static str, T); N] {
    fn all(&self) -> Vec<&'static str> {
        self.iter().map(|(word, _)| *word).collect()
    }
}

/// `N` words with values.
type WordTable<T, const N: usize> = [(&'static str, T); N];

pub(in crate::config) static ADDRESS_HEADERS: WordTable<AddressHeader, 2> =
    [("x-forwarded-for", AddressHeader::XForwardedFor), ("forwarded", AddressHeader::Forwarded)];
/// Whether requests with longer bodies are refused.
pub(in crate::config) static BEYOND: WordTable<bool, 2> = [("max", false), ("refuse", true)];
/// Whether Weir watches its files.
pub(in crate::config) static RELOADS: WordTable<bool, 2> = [("watch", true), ("manual", false)];
pub(in crate::config) static ENCODED_SLASHES: WordTable<EncodedSlashes, 2> =
    [("refuse", EncodedSlashes::Refuse), ("keep", EncodedSlashes::Keep)];
pub(in crate::config) static UNDERSCORES: WordTable<Underscores, 3> =
    [("drop", Underscores::Drop), ("keep", Underscores::Keep), ("refuse", Underscores::Refuse)];
/// Whether clients must have a certificate.
pub(in crate::config) static CLIENT_AUTH: WordTable<bool, 2> = [("required", true), ("optional", false)];

pub(in crate::config) static PROTOCOLS: WordTable<Protocol, 2> = [("http1", Protocol::Http1), ("h2", Protocol::H2)];
/// Whether requests get the host of the upstream.
pub(in crate::config) static HOSTS: WordTable<bool, 2> = [("preserve", false), ("upstream", true)];
pub(in crate::config) static PROXY_VERSIONS: WordTable<Option<Version>, 3> =
    [("off", None), ("v1", Some(Version::V1)), ("v2", Some(Version::V2))];
/// The value of `hash_by` replaces that of `hash`.
pub(in crate::config) static BALANCES: WordTable<Balance, 4> = [
    ("round_robin", Balance::RoundRobin),
    ("least_connections", Balance::LeastConnections),
    ("p2c", Balance::P2c),
    ("hash", Balance::Hash(KeyPart::Ip)),
];
pub(in crate::config) static RESOLVE: WordTable<Resolve, 2> = [("ttl", Resolve::Ttl), ("off", Resolve::Off)];

pub(in crate::config) static CHECK_HEADERS: WordTable<CheckHeaders, 2> =
    [("x-forwarded", CheckHeaders::XForwarded), ("x-original", CheckHeaders::XOriginal)];
pub(in crate::config) static ROLES: WordTable<Role, 2> = [("read", Role::Read), ("write", Role::Write)];
pub(in crate::config) static LOG_FORMATS: WordTable<LogFormat, 3> =
    [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
pub(in crate::config) static LOG_LEVELS: WordTable<tracing::Level, 5> = [
    ("error", tracing::Level::ERROR),
    ("warn", tracing::Level::WARN),
    ("info", tracing::Level::INFO),
    ("debug", tracing::Level::DEBUG),
    ("trace", tracing::Level::TRACE),
];
pub(in crate::config) static ACCESS_LOGS: WordTable<AccessLog, 3> =
    [("off", AccessLog::Off), ("all", AccessLog::All), ("refused", AccessLog::Refused)];

pub(in crate::config) static CERTIFICATE_NAMES: WordTable<CertificateName, 3> = [
    ("subject_cn", CertificateName::SubjectCn),
    ("san_dns", CertificateName::SanDns),
    ("san_uri", CertificateName::SanUri),
];
pub(in crate::config) static SEVERAL: WordTable<Repeated, 4> =
    [("reject", Repeated::Reject), ("first", Repeated::First), ("last", Repeated::Last), ("join", Repeated::Join)];
pub(in crate::config) static ON_MISSING: WordTable<OnMissing, 3> =
    [("reject", OnMissing::Reject), ("anonymous", OnMissing::Anonymous), ("ip", OnMissing::Ip)];
/// Whether values are shown whole.
pub(in crate::config) static SHOWN: WordTable<bool, 2> = [("masked", false), ("plain", true)];

pub(in crate::config) static PRIORITIES: WordTable<Priority, 3> = [
    (Priority::Critical.word(), Priority::Critical),
    (Priority::Normal.word(), Priority::Normal),
    (Priority::Background.word(), Priority::Background),
];

pub(in crate::config) static STAGES: WordTable<Stage, 2> =
    [("arrival", Stage::Arrival), ("identified", Stage::Identified)];
pub(in crate::config) static MODES: WordTable<Mode, 3> =
    [(Mode::Enforce.word(), Mode::Enforce), (Mode::Shadow.word(), Mode::Shadow), (Mode::Off.word(), Mode::Off)];
pub(in crate::config) static ON_FULL: WordTable<OnFull, 4> =
    [("sketch", OnFull::Sketch), ("shared", OnFull::Shared), ("reject", OnFull::Reject), ("allow", OnFull::Allow)];
pub(in crate::config) static ON_FAILURE: WordTable<OnFailure, 4> = [
    ("split", OnFailure::Split),
    ("local", OnFailure::Local),
    ("reject", OnFailure::Reject),
    ("allow", OnFailure::Allow),
];

pub(in crate::config) static ALGORITHMS: WordTable<AlgorithmName, { AlgorithmName::ALL.len() }> = AlgorithmName::ALL;

/// The start of fixed windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Align {
    Calendar,
    First,
}

pub(in crate::config) static ALIGNS: WordTable<Align, 2> = [("calendar", Align::Calendar), ("first", Align::First)];

/// The handling of requests that exceed a limit, without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum OnLimitWord {
    Reject,
    Hold,
    Delay,
}

pub(in crate::config) static SIGNALS: WordTable<Signal, 4> = [
    (Signal::Cpu.word(), Signal::Cpu),
    (Signal::UpstreamP90.word(), Signal::UpstreamP90),
    (Signal::UpstreamErrors.word(), Signal::UpstreamErrors),
    (Signal::QueueDelay.word(), Signal::QueueDelay),
];

/// Whether streams are asked for their usage.
pub(in crate::config) static INCLUDE_USAGE: WordTable<bool, 2> = [("keep", false), ("add", true)];
/// Whether a request is refused if its model has no price.
pub(in crate::config) static UNPRICED: WordTable<bool, 2> = [("default", false), ("refuse", true)];
/// Whether a stream is cut when its budget ends.
pub(in crate::config) static ON_EXHAUSTED: WordTable<bool, 2> = [("finish", false), ("cut", true)];
/// Whether requests at zero are gone.
pub(in crate::config) static AT_ZERO: WordTable<bool, 2> = [("gone", true), ("limited", false)];

pub(in crate::config) static STALE_CAUSES: WordTable<StaleCause, 3> = [
    (StaleCause::Refused.label(), StaleCause::Refused),
    (StaleCause::Upstream429.label(), StaleCause::Upstream429),
    (StaleCause::UpstreamError.label(), StaleCause::UpstreamError),
];

pub(in crate::config) static ON_LIMIT: WordTable<OnLimitWord, 3> =
    [("reject", OnLimitWord::Reject), ("hold", OnLimitWord::Hold), ("delay", OnLimitWord::Delay)];

/// A strategy without its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum StrategyWord {
    Local,
    Split,
    Redis,
    Lease,
    Stream,
    Service,
}

pub(in crate::config) static STRATEGIES: WordTable<StrategyWord, 6> = [
    ("local", StrategyWord::Local),
    ("split", StrategyWord::Split),
    ("redis", StrategyWord::Redis),
    ("lease", StrategyWord::Lease),
    ("stream", StrategyWord::Stream),
    ("service", StrategyWord::Service),
];
