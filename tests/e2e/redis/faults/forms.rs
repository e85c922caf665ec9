//! Faults of all servers of a store, whatever its form.

use std::time::Duration;

use super::{Fault, TOKEN_BUCKET};
use crate::support::{Cert, Cluster, Redis, Sentinels};

/// What happens to a server.
#[derive(Clone, Copy)]
pub(super) struct Action {
    pub(super) name: &'static str,
    begin: fn(&mut Redis),
    end: fn(&mut Redis),
}

/// The fault is over as soon as it has happened.
fn nothing(_: &mut Redis) {}

fn set(server: &Redis, option: &str, value: &str) {
    server.call(&["CONFIG", "SET", option, value]);
}

pub(super) const KILL: Action = Action { name: "kill -9", begin: Redis::kill, end: Redis::restart };
pub(super) const FREEZE: Action = Action { name: "SIGSTOP", begin: |one| one.freeze(), end: |one| one.thaw() };
pub(super) const DISCONNECT: Action = Action { name: "CLIENT KILL", begin: |one| one.disconnect_all(), end: nothing };
pub(super) const SCRIPT_FLUSH: Action =
    Action { name: "SCRIPT FLUSH", begin: |one| drop(one.call(&["SCRIPT", "FLUSH"])), end: nothing };
pub(super) const FLUSH_ALL: Action =
    Action { name: "FLUSHALL", begin: |one| drop(one.call(&["FLUSHALL"])), end: nothing };
pub(super) const OUT_OF_MEMORY: Action = Action {
    name: "maxmemory reached",
    begin: |one| set(one, "maxmemory", "1"),
    end: |one| set(one, "maxmemory", "0"),
};
/// The password changes, and connections end.
pub(super) const WRONG_PASSWORD: Action = Action {
    name: "wrong password",
    begin: |one| {
        set(one, "requirepass", "changed");
        one.disconnect_all();
    },
    end: |one| set(one, "requirepass", ""),
};

/// A killed server forgets what was set while it ran, so `KILL` is the last one.
pub(super) const ACTIONS: [Action; 7] =
    [FREEZE, DISCONNECT, SCRIPT_FLUSH, FLUSH_ALL, OUT_OF_MEMORY, WRONG_PASSWORD, KILL];

/// One of each kind: nothing answers, connections end, nothing is allowed, and keys are lost.
pub(super) const SOME: [Action; 4] = [FREEZE, DISCONNECT, WRONG_PASSWORD, KILL];

/// The servers of a store.
pub(super) enum Form {
    One(Redis),
    Tls(Redis, tempfile::TempDir),
    Ring(Vec<Redis>),
    Cluster(Cluster),
    Sentinels(Sentinels),
}

impl Form {
    pub(super) fn tls() -> Self {
        let (folder, cert) = (tempfile::tempdir().unwrap(), Cert::of_hosts(&["localhost"]));
        cert.write(folder.path(), "ca");
        Self::Tls(Redis::with_tls(&cert, ""), folder)
    }

    pub(super) fn ring(servers: usize) -> Self {
        Self::Ring((0..servers).map(|_| Redis::start()).collect())
    }

    fn store(&self) -> String {
        match self {
            Self::One(server) => format!("redis = [\"{}\"]", server.url()),
            Self::Tls(server, folder) => {
                let (port, ca) = (server.address().port(), folder.path().join("ca.pem"));
                format!("redis = [\"rediss://localhost:{port}\"]\ntls.ca = \"{}\"", ca.display())
            }
            Self::Ring(servers) => format!("redis = {:?}", servers.iter().map(Redis::url).collect::<Vec<_>>()),
            Self::Cluster(cluster) => format!("cluster = {}", cluster.urls()),
            Self::Sentinels(group) => format!("sentinel = {}", group.toml()),
        }
    }

    /// The servers that decide.
    fn servers(&mut self) -> &mut [Redis] {
        match self {
            Self::One(server) | Self::Tls(server, _) => std::slice::from_mut(server),
            Self::Ring(servers) => servers,
            Self::Cluster(cluster) => &mut cluster.masters,
            Self::Sentinels(group) => std::slice::from_mut(&mut group.master),
        }
    }
}

/// A fault of the first `of` servers, or of all.
pub(super) struct Servers {
    pub(super) form: Form,
    pub(super) action: Action,
    pub(super) of: usize,
    pub(super) keys: usize,
    /// As [`Fault::limit`].
    pub(super) limit: &'static str,
}

impl Servers {
    /// A fault of the only server.
    pub(super) fn one(action: Action) -> Box<dyn Fault> {
        Box::new(Self { form: Form::One(Redis::start()), action, of: 1, keys: 1, limit: TOKEN_BUCKET })
    }

    /// Empties all servers: the next replicas find them as if they were new.
    pub(super) fn empty(&mut self) {
        for server in self.form.servers() {
            server.call(&["FLUSHALL"]);
        }
    }

    fn each(&mut self, what: fn(&mut Redis)) {
        self.form.servers().iter_mut().take(self.of).for_each(what);
    }
}

impl Fault for Servers {
    fn store(&self) -> String {
        self.form.store()
    }

    fn begin(&mut self) {
        self.each(self.action.begin);
    }

    fn end(&mut self) {
        self.each(self.action.end);
    }

    fn keys(&self) -> usize {
        self.keys
    }

    fn limit(&self) -> &'static str {
        self.limit
    }

    fn lends_for(&self) -> Duration {
        Duration::from_millis(if self.limit.contains("lease") { 700 } else { 0 })
    }
}
