//! The conditions under which a limit or a route takes a request: path, host, method and headers.

use http::{HeaderName, HeaderValue, Method};

use super::pattern::PathPattern;
use super::values::compared;
use crate::policy::facts::Facts;

/// Which requests a limit sees: in each list any entry will do, an empty list excludes nothing.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Patterns of the normalised path.
    pub paths: Vec<PathPattern>,
    /// Hosts without port.
    pub hosts: Vec<HostPattern>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Headers, all of which must be as said.
    pub headers: Vec<(HeaderName, HeaderTest)>,
}

/// A host, or every host below one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Exactly this host, in lower case.
    Exact(Box<str>),
    /// `*.example.com`: any host that ends in this text (`.example.com`) and is longer.
    Below(Box<str>),
}

/// What a header must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// Present, with any value.
    Present,
    /// Present with exactly this value among its values.
    Is(HeaderValue),
}

impl Match {
    pub(crate) fn matches_beyond_path(&self, facts: &Facts<'_>) -> bool {
        self.has_method(facts) && self.has_host(facts) && self.headers.iter().all(|header| has_header(header, facts))
    }

    pub(crate) fn has_method(&self, facts: &Facts<'_>) -> bool {
        self.methods.is_empty() || self.methods.contains(facts.method)
    }

    pub(crate) fn has_host(&self, facts: &Facts<'_>) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(facts.host))
    }

    /// Whether it takes every request that `later` takes.
    pub fn covers(&self, later: &Self) -> bool {
        let is_implied = |(name, test): &_| {
            later.headers.iter().any(|(other, as_said)| other == name && (as_said == test || is_presence(test)))
        };
        within(&later.paths, &self.paths, PathPattern::covers)
            && within(&later.hosts, &self.hosts, HostPattern::covers)
            && within(&later.methods, &self.methods, |wide, narrow| wide == narrow)
            && self.headers.iter().all(is_implied)
    }
}

/// Whether a header of the request is as said.
pub(crate) fn has_header((name, test): &(HeaderName, HeaderTest), facts: &Facts<'_>) -> bool {
    match test {
        HeaderTest::Present => facts.headers.contains(name.as_str()),
        HeaderTest::Is(value) => {
            let value = compared(value.as_bytes());
            facts.headers.all(name.as_str()).any(|found| compared(found) == value)
        }
    }
}

impl HostPattern {
    /// Whether every host that `other` matches is matched.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(host)) => self.matches(host),
            (Self::Below(suffix), Self::Below(narrower)) => narrower.ends_with(&**suffix),
            (Self::Exact(_), Self::Below(_)) => false,
        }
    }

    pub(super) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => host == &**exact,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
        }
    }
}

fn is_presence(test: &HeaderTest) -> bool {
    *test == HeaderTest::Present
}

/// Whether all of `narrow` lies in `wide`; an empty list is everything.
fn within<T>(narrow: &[T], wide: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    wide.is_empty() || !narrow.is_empty() && narrow.iter().all(|one| wide.iter().any(|other| covers(other, one)))
}
