//! Sessions of operators who have logged in with a token.
//!
//! A session is in memory only. It ends when it is idle for too long, after its longest life, at the logout, and as soon as
//! the configuration in force no longer has its token with these bytes.

use std::collections::HashMap;
use std::fmt::Write as _;

use subtle::ConstantTimeEq;

use crate::admin::access::{Access, OperatorToken};
use crate::base::opaque::opaque_debug;
use crate::base::time::Timestamp;

const MINUTE_NS: u64 = 60_000_000_000;
/// A session ends after this time without a request of its operator.
const IDLE_NS_MAX: u64 = 30 * MINUTE_NS;
/// A session ends after this time in any case: a night shift.
const LIFE_NS_MAX: u64 = 12 * 60 * MINUTE_NS;
/// Most sessions of one token. At the bound, a login ends the session that is idle for longest.
const SESSIONS_OF_TOKEN_MAX: usize = 16;

/// 256 random bits as text. The `Debug` form does not show them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Secret(Box<str>);

/// The open sessions.
#[derive(Default)]
pub(super) struct Sessions(HashMap<Secret, Session>);

struct Session {
    token: OperatorToken,
    csrf: Secret,
    began: Timestamp,
    seen: Timestamp,
}

impl Secret {
    /// A new secret; `None` if the system has no random numbers.
    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).ok()?;
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Some(Self(text.into()))
    }

    /// A text that may be a secret.
    pub(super) fn of(text: &str) -> Self {
        Self(text.into())
    }

    /// The text of the secret.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is the secret. The time that this takes depends on the length only.
    pub(super) fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

opaque_debug!(Secret);

impl Sessions {
    /// Begins a session. Returns its id; `None` if the system has no random numbers.
    pub(super) fn begin(&mut self, token: OperatorToken, access: &Access, now: Timestamp) -> Option<Secret> {
        self.0.retain(|_, session| session.is_open(access, now));
        let of_token = || self.0.iter().filter(|(_, session)| session.token == token);
        if of_token().count() >= SESSIONS_OF_TOKEN_MAX {
            let idlest = of_token().min_by_key(|(_, session)| session.seen).map(|(id, _)| id.clone());
            idlest.and_then(|id| self.0.remove(&id));
        }
        let (id, csrf) = (Secret::random()?, Secret::random()?);
        self.0.insert(id.clone(), Session { token, csrf, began: now, seen: now });
        Some(id)
    }

    /// The token and the CSRF token of an open session. If the operator `is_active`, the session is idle from `now` on.
    pub(super) fn visit(
        &mut self,
        id: &Secret,
        access: &Access,
        is_active: bool,
        now: Timestamp,
    ) -> Option<(OperatorToken, Secret)> {
        let session = self.0.get_mut(id)?;
        if !session.is_open(access, now) {
            self.0.remove(id);
            return None;
        }
        if is_active {
            session.seen = now;
        }
        Some((session.token.clone(), session.csrf.clone()))
    }

    /// Ends a session.
    pub(super) fn end(&mut self, id: &Secret) {
        self.0.remove(id);
    }
}

impl Session {
    fn is_open(&self, access: &Access, now: Timestamp) -> bool {
        now.ns_since(self.seen) < IDLE_NS_MAX
            && now.ns_since(self.began) < LIFE_NS_MAX
            && access.tokens.contains(&self.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::access::Role;
    use crate::engine::policy::bearer::BearerToken;

    fn token(name: &str, secret: &str) -> OperatorToken {
        OperatorToken { name: name.into(), role: Role::Write, token: BearerToken::new(secret.as_bytes()).unwrap() }
    }

    fn access(tokens: &[&OperatorToken]) -> Access {
        Access { tokens: tokens.iter().copied().cloned().collect(), ..Access::default() }
    }

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_ns(1_700_000_000_000_000_000 + minutes * MINUTE_NS)
    }

    #[test]
    fn a_session_ends_when_idle_and_when_old() {
        let night = token("night", "0123456789abcdef");
        let access = access(&[&night]);
        let mut sessions = Sessions::default();
        let id = sessions.begin(night.clone(), &access, at(0)).unwrap();
        for (minute, is_active, is_open) in [
            (29, true, true),
            (58, true, true),
            (80, false, true),
            (87, false, true),
            (88, true, false),
            (89, true, false),
        ] {
            assert_eq!(sessions.visit(&id, &access, is_active, at(minute)).is_some(), is_open, "minute {minute}");
        }
        let id = sessions.begin(night, &access, at(100)).unwrap();
        for minute in (100..100 + 12 * 60).step_by(20) {
            assert!(sessions.visit(&id, &access, true, at(minute)).is_some(), "minute {minute}");
        }
        assert!(sessions.visit(&id, &access, true, at(100 + 12 * 60)).is_none());
        assert!(sessions.0.is_empty());
    }

    #[test]
    fn a_session_ends_with_its_token_and_at_the_logout() {
        let (night, changed) = (token("night", "0123456789abcdef"), token("night", "0123456789abcdefg"));
        let before = access(&[&night]);
        for (after, is_open) in [
            (access(&[&token("day", "0123456789abcdee"), &night]), true),
            (access(&[&changed]), false),
            (access(&[&OperatorToken { role: Role::Read, ..night.clone() }]), false),
            (access(&[]), false),
        ] {
            let mut sessions = Sessions::default();
            let id = sessions.begin(night.clone(), &before, at(0)).unwrap();
            assert_eq!(sessions.visit(&id, &after, true, at(1)).is_some(), is_open, "{after:?}");
        }
        let mut sessions = Sessions::default();
        let [first, second] = [0, 0].map(|minute| sessions.begin(night.clone(), &before, at(minute)).unwrap());
        let csrf = |sessions: &mut Sessions, id| sessions.visit(id, &before, true, at(1)).map(|(_, csrf)| csrf);
        assert_ne!(csrf(&mut sessions, &first), csrf(&mut sessions, &second));
        sessions.end(&first);
        assert!(csrf(&mut sessions, &first).is_none() && csrf(&mut sessions, &second).is_some());
        assert!(csrf(&mut sessions, &Secret::of("")).is_none());
    }

    #[test]
    fn sessions_of_a_token_are_bounded() {
        let [night, day] = [token("night", "0123456789abcdef"), token("day", "0123456789abcdee")];
        let access = access(&[&night, &day]);
        let mut sessions = Sessions::default();
        let of_day = sessions.begin(day, &access, at(0)).unwrap();
        let all: Vec<_> = (0..16).map(|minute| sessions.begin(night.clone(), &access, at(minute)).unwrap()).collect();
        let is_open = |sessions: &mut Sessions, id| sessions.visit(id, &access, false, at(17)).is_some();
        assert!(sessions.visit(&all[0], &access, true, at(16)).is_some());
        sessions.begin(night, &access, at(17)).unwrap();
        assert!(is_open(&mut sessions, &all[0]) && !is_open(&mut sessions, &all[1]) && is_open(&mut sessions, &all[2]));
        assert!(is_open(&mut sessions, &of_day) && sessions.0.len() == 17);
    }

    #[test]
    fn secrets_are_long_and_not_shown() {
        let secret = Secret::random().unwrap();
        assert!(secret.text().len() == 64 && secret.is(secret.text()) && !secret.is(&secret.text()[1..]));
        assert_ne!(secret, Secret::random().unwrap());
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
