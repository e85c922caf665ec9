//! The options of `[access]`.

use super::option::Kind;
use super::option::Preset::Unset;
use super::option::{NONE, Opt, opt};

#[rustfmt::skip]
pub(super) const OPTIONS: &[Opt] = &[
    opt("access.deny.ip", Kind::Rows("address or network"), NONE,
        "Clients that get 403, unless `allow.ip` has a longer prefix."),
    opt("access.deny.path", Kind::Some("path pattern"), NONE,
        "Paths that get 403, unless `allow.path` has a more specific pattern."),
    opt("access.deny.identity.NAME", Kind::Rows("value"), NONE,
        "Values of an identity that get 403."),
    opt("access.allow.ip", Kind::Rows("address or network"), NONE,
        "Clients without limits, unless `deny.ip` has a longer prefix."),
    opt("access.allow.path", Kind::Some("path pattern"), NONE,
        "Paths without limits, unless `deny.path` has a more specific pattern."),
    opt("access.allow.identity.NAME", Kind::Rows("value"), NONE,
        "Values of an identity without limits of the identified stage."),
    opt("access.require.path", Kind::Some("path pattern"), Unset("all"),
        "Paths that need an identity or a plan; a request must meet every entry that matches."),
    opt("access.require.method", Kind::Some("method"), Unset("all"),
        "Methods that need it; GET includes HEAD."),
    opt("access.require.except.path", Kind::Some("path pattern"), NONE,
        "Paths of these that do not need it."),
    opt("access.require.identity", Kind::Some("name of an identity"), NONE,
        "Identities of which a request needs one, whatever `on_missing` says; else 401."),
    opt("access.require.plan", Kind::Some("name of a plan"), NONE,
        "Plans of which a request needs one; else 403."),
];
