//! The parts of the configuration in force that a reload compares with the new configuration.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::telemetry;
use crate::base::time::Timestamp;
use crate::config::{Config, Diagnostics, OverridesInForce, OverridesPlace, Sources};
use crate::engine::policy::FleetSecret;
use crate::engine::policy::overrides::Override;
use crate::engine::store::snapshot;
use crate::fleet::grpc::fleet::Hub;
use crate::fleet::grpc::fleet::settings::{EtcdMembers, MemberSource};
use crate::fleet::grpc::settings::ServiceListener;
use crate::transport::net::ListenAddress;
use crate::transport::proxy::settings::{CheckListener, CheckSettings, PlainListeners, Settings, StartupSettings};

/// The parts of the configuration in force that a reload compares with the new configuration.
pub(super) struct Installed {
    pub(super) restart_only: RestartOnly,
    pub(super) sources: Sources,
    pub(super) overrides: OverridesInForce,
    /// Whether changes of files are read by themselves.
    pub(super) watches: bool,
    pub(super) rejected: RejectedOverrides,
    /// The first end of an override by the wall clock; `None` if none has an end.
    pub(super) next_end: Option<Timestamp>,
    /// Whether the text has overrides that have ended.
    pub(super) has_ended: bool,
    /// The etcd that has the overrides of the fleet.
    pub(super) overrides_etcd: Option<Arc<EtcdMembers>>,
}

/// The overrides that do not apply, and their problems. They are logged when they change.
pub(super) struct RejectedOverrides {
    overrides: Vec<Override>,
    problems: Option<Diagnostics>,
}

impl RejectedOverrides {
    fn of(config: &Config) -> Self {
        let all = config.run_time.overrides.iter();
        let overrides = all.filter(|one| one.rejection.is_some()).cloned().collect();
        Self { overrides, problems: config.run_time.problems.clone() }
    }

    /// Whether overrides and problems are equal, except for their positions in the file.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let titles = |of: &Self| of.problems.iter().flat_map(Diagnostics::iter).map(str::to_owned).collect::<Vec<_>>();
        self.overrides == other.overrides && titles(self) == titles(other)
    }

    pub(super) fn log(&self) {
        if let Some(problems) = &self.problems {
            tracing::error!("overrides set at run time are left out: they do not fit the configuration\n{problems}");
        }
    }
}

impl Installed {
    pub(super) fn of(config: &Config) -> Self {
        let (sources, overrides) = (config.sources.clone(), config.run_time.kept.clone());
        let (restart_only, rejected) = (RestartOnly::of(config), RejectedOverrides::of(config));
        let overrides_etcd = match config.peers.as_ref().map(|peers| &peers.settings.members) {
            Some(MemberSource::Etcd(etcd)) if overrides.place != OverridesPlace::Off => Some(Arc::clone(etcd)),
            _ => None,
        };
        let watches = config.fixed.watches;
        let next_end = config.run_time.overrides.iter().filter_map(|one| one.until).min();
        let has_ended = config.run_time.has_ended;
        Self { restart_only, sources, overrides, watches, rejected, next_end, has_ended, overrides_etcd }
    }

    /// Why overrides that operators set are lost with the process; `None` if they are not.
    pub(super) fn reason_of_loss(&self) -> Option<Arc<str>> {
        match &self.overrides.place {
            OverridesPlace::Memory { no_file } if self.overrides_etcd.is_none() => {
                Some(no_file.clone().unwrap_or_else(|| "`admin.overrides` is `memory`".into()))
            }
            _ => None,
        }
    }

    /// Logs that overrides are lost with the process, unless the configuration asks for that.
    pub(super) fn warn_of_memory(&self) {
        let is_wanted = self.overrides.place == OverridesPlace::Memory { no_file: None };
        let has_operators = self.restart_only.admin.0.is_some();
        if let Some(reason) = self.reason_of_loss().filter(|_| has_operators && !is_wanted) {
            let reason = &*reason;
            tracing::warn!(reason, "overrides set at run time end with the process; `admin.overrides` can name a file");
        }
    }
}

/// The settings that only a restart can change.
#[derive(Clone, Debug)]
pub(super) struct RestartOnly {
    fixed: StartupSettings,
    check: Option<CheckListener>,
    admin: (Option<ListenAddress>, bool, Option<PathBuf>),
    grpc: Option<ServiceListener>,
    /// The listener for other replicas.
    fleet: Option<ListenAddress>,
    snapshot: Option<snapshot::Settings>,
    pub(super) fleet_secret: Option<FleetSecret>,
    log: telemetry::LogSettings,
}

impl RestartOnly {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            // A reload changes whether files are watched.
            fixed: StartupSettings { watches: true, ..config.fixed.clone() },
            check: config.check_listener.clone(),
            admin: (config.admin.listen.clone(), config.admin.tls.is_some(), config.admin.bans.clone()),
            grpc: config.grpc.as_ref().map(|grpc| grpc.listener.clone()),
            fleet: config.peers.as_ref().map(|peers| peers.listen.clone()),
            snapshot: config.snapshot.clone(),
            fleet_secret: config.fleet_secret.clone(),
            log: config.log.clone(),
        }
    }

    /// Gives `config` the TLS of `before` for listeners that keep other addresses than its own until a restart: its TLS
    /// fits its own addresses, which other machines may not reach.
    pub(super) fn keep_tls(&self, config: &mut Config, before: &Settings, fleet: Option<&Hub>) {
        let (proxy, listen) = (&mut config.proxy, &config.fixed.listen);
        let is_missing = |all: &[ListenAddress], new: &[ListenAddress]| all.iter().any(|place| !new.contains(place));
        // Listeners with TLS beside others serve nobody if `config` has no TLS.
        let tls_moves = proxy.tls.is_some() && is_missing(&self.fixed.tls_listen, &config.fixed.tls_listen);
        if tls_moves || is_missing(&self.fixed.listen, listen) {
            (proxy.tls, proxy.plain) = (before.tls.clone(), before.plain);
        } else if proxy.plain.is_some() && self.fixed.tls_listen.is_empty() {
            // There is no listener with TLS beside the others, so they keep what they have, and nothing is redirected.
            let have_tls = before.tls.is_some() && before.plain.is_none();
            proxy.plain = (!have_tls).then_some(PlainListeners { redirect_port: None });
        }
        let listen = |check: &Option<CheckListener>| check.as_ref().map(|check| check.listen.clone());
        if self.check.is_some() && listen(&self.check) != listen(&config.check_listener) {
            let both = proxy.check.take().zip(before.check.as_ref());
            proxy.check = both.map(|(new, before)| CheckSettings { tls: before.tls.clone(), ..new });
        }
        if let Some((fleet, peers)) = fleet.zip(config.peers.as_mut())
            && self.fleet.as_ref() != Some(&peers.listen)
        {
            fleet.keep_tls(&mut peers.settings);
        }
    }

    /// The tables and options whose settings differ in `new`. A reload changes which requests are logged.
    pub(super) fn changed_tables(&self, new: &Self) -> Vec<&'static str> {
        let tables = [
            ("server", self.fixed != new.fixed),
            ("check", self.check != new.check),
            ("admin", self.admin != new.admin),
            ("grpc", self.grpc != new.grpc),
            ("fleet.listen", self.fleet != new.fleet),
            ("snapshot", self.snapshot != new.snapshot),
            ("fleet.secret", self.fleet_secret != new.fleet_secret),
            ("log.format", self.log.format != new.log.format),
            ("log.access_file", self.log.access_file != new.log.access_file),
            ("log.access_format", self.log.access_format != new.log.access_format),
        ];
        tables.into_iter().filter_map(|(table, differs)| differs.then_some(table)).collect()
    }
}
