//! The admin listener: the settings that a reload changes, and its connections with or without TLS.

use std::future::ready;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::config_reader::RunningText;
use super::descriptors::DescriptorBudget;
use super::remote::ConfigFeed;
use super::versions::Versions;
use crate::admin::{self, Access, Admin, AuditFile, BanFile, Change, Order, Overrides, Reloads};
use crate::config::{AdminSettings, Config};
use crate::engine::gate::{OperatorBan, Routing};
use crate::transport::net::ListenAddress;
use crate::transport::net::accept::AsyncListener;
use crate::transport::net::socket::Socket;
use crate::transport::net::tls::ServerTls;

/// The settings of the admin listener that a reload changes.
pub(super) struct Operators {
    pub(super) access: Arc<ArcSwap<Access>>,
    pub(super) overrides: Overrides,
    pub(super) bans: Arc<BanFile>,
    pub(super) audit: Arc<AuditFile>,
    pub(super) routing: Arc<ArcSwap<Routing>>,
    pub(super) text: Arc<RunningText>,
    pub(super) reloads: Reloads,
    /// The address of the start.
    listen: Option<ListenAddress>,
    connections_max: usize,
    tls: ArcSwapOption<ServerTls>,
}

/// The access rules of the admin listener in a configuration.
fn access(config: &Config) -> Access {
    let AdminSettings { hosts, tokens, audit, .. } = config.admin.clone();
    Access { hosts, tokens, audit }
}

/// The routes and the upstreams of a configuration.
pub(crate) fn routing(config: &Config) -> Routing {
    let upstreams = config.proxy.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
    Routing { routes: config.proxy.routes.clone(), upstreams }
}

/// The orders of operators to the task that reloads.
pub(super) struct Orders {
    pub(super) changes: mpsc::Receiver<Change>,
    pub(super) reloads: mpsc::Receiver<Order>,
}

impl Operators {
    /// The settings of a configuration that comes from `feed`, the receiver of orders, and the bans in the file.
    /// `budget` has the bounds on connections.
    pub(super) fn of(
        config: &Config,
        feed: Option<&ConfigFeed>,
        budget: &DescriptorBudget,
    ) -> (Arc<Self>, Orders, Vec<OperatorBan>) {
        let (overrides, changes) = Overrides::new(config.run_time.overrides.clone());
        let (file, bans) =
            BanFile::open(config.admin.bans.clone(), config.snapshot.is_some() || config.fleet_secret.is_some());
        let access = Arc::new(ArcSwap::from_pointee(access(config)));
        let tls = ArcSwapOption::from(config.admin.tls.clone().map(Arc::new));
        let routing = Arc::new(ArcSwap::from_pointee(routing(config)));
        let versions = Versions::open(feed.and_then(ConfigFeed::versions_file));
        let text = Arc::new(RunningText::new(config, feed.map(ConfigFeed::in_force), budget.clients, versions));
        let (reloads, orders) = Reloads::new();
        let (bans_file, audit) = (Arc::new(file), Arc::default());
        let (listen, connections_max) = (config.admin.listen.clone(), budget.operators);
        let operators =
            Self { access, overrides, bans: bans_file, audit, routing, text, reloads, listen, connections_max, tls };
        (Arc::new(operators), Orders { changes, reloads: orders }, bans)
    }

    /// Replaces the settings by those of `config`, and takes its overrides. The tables `restart` wait for a restart.
    /// Whether there is TLS at all cannot change. Access stays until a restart if `config` has another address: its rules
    /// fit that address, which may need no token.
    pub(super) fn reload(&self, config: &mut Config, restart: &[&'static str]) {
        if config.admin.listen == self.listen {
            self.access.store(Arc::new(access(config)));
            if let (Some(tls), true) = (config.admin.tls.clone(), self.is_tls()) {
                self.tls.store(Some(Arc::new(tls)));
            }
        }
        self.routing.store(Arc::new(routing(config)));
        self.text.written.store(Arc::new(config.written.clone()));
        self.text.restart.store(Arc::new(restart.to_vec()));
        self.text.overrides.store(Arc::new(config.run_time.kept.clone()));
        self.overrides.in_force.store(Arc::new(std::mem::take(&mut config.run_time.overrides)));
    }

    /// Whether the listener speaks TLS. A reload does not change this.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.load().is_some()
    }

    /// Serves until the future is dropped.
    pub(super) async fn serve(self: Arc<Self>, listener: AsyncListener, admin: Admin) {
        if !self.is_tls() {
            return admin::serve(listener, admin, self.connections_max, |socket| ready(Ok(socket))).await;
        }
        let connections_max = self.connections_max;
        let handshake = move |socket: Socket| {
            let config = self.tls.load().as_ref().map(|tls| tls.http1_config());
            async move {
                match config {
                    Some(config) => TlsAcceptor::from(config).accept(socket).await,
                    None => Err(std::io::ErrorKind::NotConnected.into()),
                }
            }
        };
        admin::serve(listener, admin, connections_max, handshake).await;
    }
}
