//! The options of the limiter service: `[grpc]`.

use super::option::Kind::{self, Count, OneOf, Size, Switch, Tables, Text};
use super::option::Preset::{Required, Toml, Unset};
use super::option::{NONE, Opt, opt};

const ANY: super::option::Preset = Unset("any");
const PART: &str =
    "Text of this part of the limit's key; `{ENTRY}` stands for the value of an entry, and `{{` and `}}` for braces.";

#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("grpc.listen", Text("address and port, or `unix:` and a path"), Required,
        "Address of the limiter service."),
    opt("grpc.insecure", Switch, Toml("false"),
        "Accept callers of other machines without a certificate."),
    opt("grpc.tls.certificates", Tables("`cert` and `key` each"), Required,
        "As `server.tls.certificates`, for callers."),
    opt("grpc.tls.certificates.cert", Text("file"), Required,
        "A certificate in PEM, followed by the certificates of its issuers."),
    opt("grpc.tls.certificates.key", Text("file"), Required,
        "Its private key in PEM, without a password."),
    opt("grpc.tls.client_ca", Text("file"), NONE,
        "Authorities of callers' certificates, in PEM; with it, callers show a certificate."),
    opt("grpc.tls.client_auth", OneOf(&["required", "optional"]), Toml("\"required\""),
        "Whether Weir refuses a caller without a certificate."),
    opt("grpc.max_connections", Count(1, 1_000_000), Toml("1000"),
        "Connections open at once; further ones are closed unserved."),
    opt("grpc.max_streams", Count(1, 100_000), Toml("1000"),
        "Calls in progress at once on a connection."),
    opt("grpc.max_message_bytes", Size(1024, 16 << 20), Toml("\"64KiB\""),
        "Longest message of a caller."),
    opt("grpc.headers", Switch, Toml("true"),
        "Add the headers of `[headers]` to answers of Envoy's rate limit service."),
    opt("grpc.check.scope", Kind::Some("scope"), ANY,
        "Scopes of the checks that this table is for."),
    opt("grpc.check.method", Kind::Some("method"), ANY,
        "Methods of the checks that this table is for."),
    opt("grpc.check.limits.NAME.PART", Text("text with `{actor}`, `{scope}` and `{method}`"), Required, PART),
    opt("grpc.descriptor.domain", Text("domain"), Required,
        "Domain of the descriptors that this table is for."),
    opt("grpc.descriptor.entries", Tables("`key`, and perhaps `value`"), Required,
        "Entries of the descriptors that this table is for, in their order. A descriptor has no others."),
    opt("grpc.descriptor.entries.key", Text("key"), Required,
        "Key of the entry."),
    opt("grpc.descriptor.entries.value", Kind::Some("value"), ANY,
        "Values of the entry."),
    opt("grpc.descriptor.plan", Text("text with `{ENTRY}`"), NONE,
        "Plan of the caller."),
    opt("grpc.descriptor.limits.NAME.PART", Text("text with `{ENTRY}`"), Required, PART),
    opt("grpc.descriptor.accept_limit", Switch, Toml("false"),
        "Let the `limit` of a descriptor replace the rate of the table's limit: a local window with `on_full = \"reject\"`."),
];
