//! Operators: their tokens and their roles.

use std::net::IpAddr;
use std::path::PathBuf;

use http::HeaderMap;

use crate::engine::policy::bearer::BearerToken;

/// The conditions that a request must meet, and the file that lists changes. They change on reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Host names of the listener, in lower case, beside its address.
    pub hosts: Box<[Box<str>]>,
    /// The tokens; every request except probes must have one of them. If there are none, no token is required.
    pub tokens: Box<[OperatorToken]>,
    /// The file to which each change adds a line; `None` if there is only the log.
    pub audit: Option<PathBuf>,
}

/// A token with the name by which the audit log knows its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorToken {
    /// The name.
    pub name: Box<str>,
    /// The requests that the token allows.
    pub role: Role,
    /// The secret.
    pub token: BearerToken,
}

/// The requests that a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Requests that change nothing.
    Read,
    /// All requests.
    Write,
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    /// The name of the token; `None` if no token is required.
    pub(super) token: Option<Box<str>>,
    /// The address; `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// The requests that the token allows.
    pub(super) role: Role,
}

/// The address of a connection; `None` for a Unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) Option<IpAddr>);

impl Access {
    /// The name and the role that the headers of a request show; `None` if they show no token and need one. The time
    /// that this takes does not depend on the token that is shown, except on its length.
    pub(super) fn role_of(&self, headers: &HeaderMap) -> Option<(Option<Box<str>>, Role)> {
        if self.tokens.is_empty() {
            return Some((None, Role::Write));
        }
        let shown =
            self.tokens.iter().fold(None, |found, one| if one.token.is_shown(headers) { Some(one) } else { found });
        shown.map(|one| (Some(one.name.clone()), one.role))
    }

    /// The token that `shown` is; `None` if there is no such token. The time that this takes does not depend on `shown`,
    /// except on its length.
    pub(super) fn token_of(&self, shown: &[u8]) -> Option<&OperatorToken> {
        self.tokens.iter().fold(None, |found, one| if one.token.is(shown) { Some(one) } else { found })
    }
}
