//! The options of replicas: `[fleet]`, and `[store.NAME]`.

use super::limit::{STRATEGIES, UNITS};
use super::option::Kind::{self, Count, Duration, DurationIn, OneOf, Switch, Text};
use super::option::Preset::{Required, Toml, Unset};
use super::option::{NONE, Opt, opt};

const REDIS: Kind = Kind::Some("`redis://host[:port]` or `rediss://host[:port]`");
const ETCD: Kind = Kind::Some("`http://host[:port]` or `https://host[:port]`");
const MEMBER: &str = "host and port";
const ONE_SOURCE: &str = "one of `static`, `dns` and `etcd` is required";
const ONE_OF_FIVE: &str = "one of `redis`, `cluster`, `sentinel`, `service` and `etcd` is required";
const SECRET_FILE: &str = "File with it; one newline at its end does not count.";

#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("fleet.strategy", Kind::OneOfOrTable(STRATEGIES), Required,
        "How replicas share each limit that has no `strategy` of its own."),
    opt("fleet.strategy.use", OneOf(STRATEGIES), Required,
        "As `limit.strategy.use`."),
    opt("fleet.strategy.store", Text("name of a store"), Unset("the only store"),
        "As `limit.strategy.store`."),
    opt("fleet.strategy.url", Text("`http://host:port` or `https://host:port`"), NONE,
        "As `limit.strategy.url`."),
    opt("fleet.strategy.units", UNITS, Toml("\"auto\""),
        "As `limit.strategy.units`."),
    opt("fleet.replicas", Count(1, 10_000), Unset("required for `split`, `redis`, `lease` and `service` without `fleet.members`"),
        "Replicas that share a limit with `split`, or while its store is down or has lost its keys; with \
         `fleet.members` until these are known."),
    opt("fleet.secret.env", Text("name"), NONE,
        "Environment variable with the secret of the fleet, 32 bytes or more; this or `file`. With it all replicas \
         hash keys alike. Required for `redis`, `lease`, `stream` and `service`."),
    opt("fleet.secret.file", Text("file"), NONE, SECRET_FILE),
    opt("fleet.listen", Text("address and port"), NONE,
        "Address for other replicas, which tell each other their charges; needs `fleet.secret` and `fleet.members`."),
    opt("fleet.members.static", Kind::Some(MEMBER), Unset(ONE_SOURCE),
        "Addresses of all replicas; this one may be among them."),
    opt("fleet.members.dns", Text(MEMBER), Unset(ONE_SOURCE),
        "Name with an address record for each replica, and the port of all."),
    opt("fleet.members.etcd", ETCD, Unset(ONE_SOURCE),
        "Servers of an etcd in which each replica registers itself. The default port is 2379."),
    opt("fleet.members.prefix", Text("key that begins with `/`"), Toml("\"/weir\""),
        "Start of all keys in etcd; members are below `members/`. Fleets with one etcd need a prefix each."),
    opt("fleet.members.user", Text("name"), NONE,
        "User of etcd."),
    opt("fleet.members.password.env", Text("name"), NONE,
        "Environment variable with the password; this or `file`."),
    opt("fleet.members.password.file", Text("file"), NONE, SECRET_FILE),
    opt("fleet.members.tls.ca", Text("file"), Unset("the authorities of the system"),
        "Authorities of the certificates of etcd, in PEM, with `https://`."),
    opt("fleet.members.tls.cert", Text("file"), NONE,
        "Weir's own certificate in PEM, then those of its issuers."),
    opt("fleet.members.tls.key", Text("file"), NONE,
        "Its private key in PEM, without a password."),
    opt("fleet.advertise", Text(MEMBER), Unset("with `etcd`: the address from which this replica reaches etcd"),
        "Address at which other replicas reach this one. Without it, Weir recognises itself when it connects to itself."),
    opt("fleet.tls.cert", Text("file"), Required,
        "Certificate of this replica in PEM, for servers and clients, then those of its issuers."),
    opt("fleet.tls.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("fleet.tls.ca", Text("file"), Required,
        "Authorities of the other replicas' certificates, in PEM. Names in these certificates do not count."),
    opt("fleet.insecure", Switch, Toml("false"),
        "Talk to replicas on other machines without TLS."),
    opt("fleet.interval", DurationIn(1, 10_000), Toml("\"20ms\""),
        "Time for which charges are added up before other replicas are told."),
    opt("fleet.isolate_after", DurationIn(100, 600_000), Toml("\"1s\""),
        "A replica that hears of no other for this time keeps to its share of each limit; at least 5 intervals."),
    opt("fleet.max_replicas", Count(1, 1000), Toml("100"),
        "Replicas that count at most, and connections to other replicas."),
    opt("fleet.leave_after", Duration, Toml("\"30s\""),
        "Time for which a member counts after it has left."),
    opt("store.NAME.redis", Kind::Some("`redis://host[:port]`, `rediss://host[:port]` or `unix:/path`"), Unset(ONE_OF_FIVE),
        "Redis servers that do not know of each other; each has a part of the keys. `rediss` is TLS, for all or none. \
         The default port is 6379. `unix:` has an absolute path."),
    opt("store.NAME.cluster", REDIS, Unset(ONE_OF_FIVE),
        "Some nodes of a Redis Cluster; they name the others."),
    opt("store.NAME.sentinel.master", Text("name"), Required,
        "Name by which the sentinels know the master."),
    opt("store.NAME.sentinel.nodes", REDIS, Required,
        "Sentinels, which name the address of the master. The default port is 26379."),
    opt("store.NAME.sentinel.user", Text("name"), NONE,
        "User of the sentinels."),
    opt("store.NAME.sentinel.password.env", Text("name"), NONE,
        "Environment variable with their password; this or `file`."),
    opt("store.NAME.sentinel.password.file", Text("file"), NONE, SECRET_FILE),
    opt("store.NAME.service", Text("`http://host:port` or `https://host:port`"), Unset(ONE_OF_FIVE),
        "The limiter service of another Weir: its `[grpc]` listener."),
    opt("store.NAME.etcd", ETCD, Unset(ONE_OF_FIVE),
        "Members of one etcd, for `lease`. `https` is TLS, for all or none. The default port is 2379."),
    opt("store.NAME.user", Text("name"), Unset("the default user"),
        "User of the servers' access control list."),
    opt("store.NAME.password.env", Text("name"), NONE,
        "Environment variable with the password; this or `file`."),
    opt("store.NAME.password.file", Text("file"), NONE, SECRET_FILE),
    opt("store.NAME.tls.ca", Text("file"), Unset("the authorities of the system"),
        "Authorities of the servers' certificates, in PEM."),
    opt("store.NAME.tls.cert", Text("file"), NONE,
        "Weir's own certificate in PEM, then those of its issuers."),
    opt("store.NAME.tls.key", Text("file"), NONE,
        "Its private key in PEM, without a password."),
    opt("store.NAME.timeout", DurationIn(1, 10_000), Unset("`10ms`; with `etcd` `250ms`"),
        "Longest wait for an answer; then the call has failed."),
    opt("store.NAME.prefix", Text("1 to 64 of `A-Z a-z 0-9 _ - . : /`"), Toml("\"weir\""),
        "Start of all keys in Redis or etcd. Fleets with one Redis or etcd need a prefix each."),
    opt("store.NAME.on_failure", OneOf(&["split", "local", "reject", "allow"]), Toml("\"split\""),
        "Decisions while a server is down: by this replica's share of the limit, by the whole limit, refuse all, or admit \
         all."),
];
