//! The options of the limiter service: `[grpc]`.

use super::option::Kind::{self, Count, OneOf, Size, Switch, Tables, Text};
use super::option::Preset::{Required, Toml, Unset};
use super::option::{NONE, Opt, PLACE, opt};
use super::words;

const ANY: super::option::Preset = Unset("any");
const PART: &str =
    "Text of this part of the limit's key; `{ENTRY}` is the value of an entry, `{{` and `}}` are braces.";

#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("grpc.listen", Text(PLACE), Required,
        "Address of the limiter service."),
    opt("grpc.insecure", Switch, Toml("false"),
        "Accept callers of other machines without a certificate."),
    opt("grpc.tls.certificates", Tables("`cert` and `key` each"), Required,
        "As `server.tls.certificates`."),
    opt("grpc.tls.certificates.cert", Text("file"), Required,
        "A certificate in PEM, then those of its issuers."),
    opt("grpc.tls.certificates.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("grpc.tls.client_ca", Text("file"), NONE,
        "As `server.tls.client_ca`."),
    opt("grpc.tls.client_auth", OneOf(&words::CLIENT_AUTH), Toml("\"required\""),
        "As `server.tls.client_auth`."),
    opt("grpc.max_connections", Count(1, 1_000_000), Toml("1000"),
        "Connections open at once; further ones are closed unserved."),
    opt("grpc.max_streams", Count(1, 100_000), Toml("1000"),
        "Calls in progress at once on a connection."),
    opt("grpc.max_message_bytes", Size(1024, 16 << 20), Toml("\"256KiB\""),
        "Longest message; must hold all descriptors of Envoy's longest head."),
    opt("grpc.headers", Switch, Toml("true"),
        "Add the headers of `[headers]` to answers of Envoy's rate limit service."),
    opt("grpc.check.scope", Kind::Some("scope"), ANY,
        "Scopes of checks for this table."),
    opt("grpc.check.method", Kind::Some("method"), ANY,
        "Methods of checks for this table."),
    opt("grpc.check.limits.NAME.PART", Text("text with `{actor}`, `{scope}` and `{method}`"), Required, PART),
    opt("grpc.descriptor.domain", Text("domain"), Required,
        "Domain of the descriptors that this table is for."),
    opt("grpc.descriptor.entries", Tables("`key`, and perhaps `value`"), Required,
        "All entries of the descriptors that this table is for, in their order."),
    opt("grpc.descriptor.entries.key", Text("key"), Required,
        "Key of the entry."),
    opt("grpc.descriptor.entries.value", Kind::Some("value"), ANY,
        "Values of the entry."),
    opt("grpc.descriptor.plan", Text("text with `{ENTRY}`"), NONE,
        "Plan of the caller."),
    opt("grpc.descriptor.limits.NAME.PART", Text("text with `{ENTRY}`"), Required, PART),
    opt("grpc.descriptor.accept_limit", Switch, Toml("false"),
        "Let the `limit` of a descriptor replace the rate of the table's limit: a local window with `on_full = \
         \"reject\"`."),
    opt("grpc.descriptor.apply_on_stream_done", Switch, Toml("false"),
        "Charge units that are spent already, as those of Envoy's `apply_on_stream_done`, whether they fit or not."),
];
