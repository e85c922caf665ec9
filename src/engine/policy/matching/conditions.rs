//! The conditions of a limit or a route: path, host, method, headers, body and the address of the client.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;

use super::networks::Networks;
use super::pattern::PathPattern;
use super::regex::TextRegex;
use super::values::compared;
use crate::engine::policy::body_member::{BodyMember, MemberTest};
use crate::engine::policy::facts::Facts;

/// The conditions of a limit or a route. One entry of each list must fit; an empty list fits every request.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Patterns of the normalised path.
    pub paths: Vec<PathPattern>,
    /// Regular expressions of the normalised path.
    pub path_regexes: Vec<TextRegex>,
    /// Hosts without port.
    pub hosts: Vec<HostPattern>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Headers; all of them must fit.
    pub headers: Vec<(HeaderName, HeaderTest)>,
    /// Members of the body; all of them must fit.
    pub json: Vec<(BodyMember, MemberTest)>,
    /// Networks of clients.
    pub networks: Networks,
}

/// The requests that a limit or a requirement leaves out, of those that its conditions fit.
#[derive(Clone, Debug, Default)]
pub struct Except {
    /// Networks of exempt clients.
    pub networks: Networks,
    /// Patterns of exempt paths.
    pub paths: Vec<PathPattern>,
}

/// A host, or all hosts below a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Exactly this host, in lower case.
    Exact(Box<str>),
    /// `*.example.com`: a host that ends in this text (`.example.com`) and is longer.
    Below(Box<str>),
}

/// The condition for a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// The header is present.
    Present,
    /// One of the values of the header is this value.
    Is(HeaderValue),
    /// One of the values of the header is one of these values, in the form of [`compared`].
    OneOf(Arc<HashSet<Box<[u8]>>>),
    /// One of the values of the header matches.
    Matches(TextRegex),
}

impl Match {
    /// The path pattern with this index, as written; empty without path patterns.
    pub(crate) fn route(&self, pattern: usize) -> &str {
        self.paths.get(pattern).map_or("", PathPattern::as_str)
    }

    /// Whether all conditions but the body fit the request.
    pub fn fits(&self, facts: &Facts<'_>) -> bool {
        let has_path = self.paths.is_empty() || self.paths.iter().any(|path| path.matches(facts.path));
        has_path && self.matches_beyond_path(facts)
    }

    /// Whether all conditions but the path patterns and the body fit the request.
    pub(crate) fn matches_beyond_path(&self, facts: &Facts<'_>) -> bool {
        self.fits_any_client(facts) && self.has_client(facts)
    }

    /// Whether all conditions but the path patterns, the networks and the body fit the request.
    pub(crate) fn fits_any_client(&self, facts: &Facts<'_>) -> bool {
        self.has_method(facts)
            && self.has_host(facts)
            && self.headers.iter().all(|header| has_header(header, facts))
            && self.has_path_regex(facts)
    }

    /// Whether the path patterns are the only conditions.
    pub(crate) fn is_path_only(&self) -> bool {
        let Self { paths: _, path_regexes, hosts, methods, headers, json, networks } = self;
        let has_texts = !(path_regexes.is_empty() && hosts.is_empty() && headers.is_empty() && json.is_empty());
        !has_texts && methods.is_empty() && networks.is_empty()
    }

    pub(crate) fn has_path_regex(&self, facts: &Facts<'_>) -> bool {
        self.path_regexes.is_empty() || self.path_regexes.iter().any(|regex| regex.matches(facts.path.as_bytes()))
    }

    pub(crate) fn has_body(&self, facts: &Facts<'_>) -> bool {
        self.json.iter().all(|(member, test)| member.fits(test, facts.body))
    }

    pub(crate) fn has_client(&self, facts: &Facts<'_>) -> bool {
        self.networks.is_empty() || self.networks.find(facts.client_ip).is_some()
    }

    pub(crate) fn has_method(&self, facts: &Facts<'_>) -> bool {
        self.methods.is_empty() || self.methods.contains(facts.method)
    }

    pub(crate) fn has_host(&self, facts: &Facts<'_>) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(facts.host))
    }

    /// Whether some request may fit both conditions. Headers, bodies and regular expressions do not count.
    pub fn overlaps(&self, other: &Self) -> bool {
        fn any<T>(own: &[T], other: &[T], overlaps: impl Fn(&T, &T) -> bool) -> bool {
            own.is_empty() || other.is_empty() || own.iter().any(|one| other.iter().any(|two| overlaps(one, two)))
        }
        any(&self.paths, &other.paths, PathPattern::overlaps)
            && any(&self.hosts, &other.hosts, |one, two| one.covers(two) || two.covers(one))
            && any(&self.methods, &other.methods, |one, two| one == two)
            && (self.networks.is_empty() || other.networks.is_empty() || self.networks.overlap(&other.networks))
    }

    /// Whether these conditions fit every request that `later` fits. `false` also if that is unknown.
    pub fn covers(&self, later: &Self) -> bool {
        let is_implied = |(name, test): &_| {
            later.headers.iter().any(|(other, other_test)| other == name && (other_test == test || is_presence(test)))
        };
        within(&later.paths, &self.paths, PathPattern::covers)
            && within(&later.path_regexes, &self.path_regexes, |wide, narrow| wide == narrow)
            && within(&later.hosts, &self.hosts, HostPattern::covers)
            && within(&later.methods, &self.methods, |wide, narrow| wide == narrow)
            && (self.networks.is_empty() || !later.networks.is_empty() && self.networks.cover(&later.networks))
            && self.headers.iter().all(is_implied)
            && self.json.iter().all(|own| later.json.contains(own))
    }
}

impl Except {
    /// Whether nothing is exempt.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.paths.is_empty()
    }

    /// The exempt network that contains the address.
    pub fn network(&self, ip: IpAddr) -> Option<&IpNet> {
        self.networks.find(ip)
    }

    /// The exempt pattern that matches the normalised path.
    pub fn path(&self, path: &str) -> Option<&PathPattern> {
        self.paths.iter().find(|pattern| pattern.matches(path))
    }

    /// Whether everything that is exempt here is exempt in `other`. `false` also if that is unknown.
    pub fn is_within(&self, other: &Self) -> bool {
        other.networks.cover(&self.networks)
            && self.paths.iter().all(|path| other.paths.iter().any(|wide| wide.covers(path)))
    }
}

/// Whether a header of the request fits.
pub(crate) fn has_header((name, test): &(HeaderName, HeaderTest), facts: &Facts<'_>) -> bool {
    match test {
        HeaderTest::Present => facts.headers.contains(name.as_str()),
        HeaderTest::Is(value) => {
            let value = compared(value.as_bytes());
            facts.headers.all(name.as_str()).any(|found| compared(found) == value)
        }
        HeaderTest::OneOf(values) => facts.headers.all(name.as_str()).any(|found| values.contains(compared(found))),
        HeaderTest::Matches(regex) => facts.headers.all(name.as_str()).any(|found| regex.matches(compared(found))),
    }
}

impl HostPattern {
    /// Whether this pattern matches every host that `other` matches.
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

/// Whether `wide` covers all of `narrow`; an empty list covers everything.
fn within<T>(narrow: &[T], wide: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    wide.is_empty() || !narrow.is_empty() && narrow.iter().all(|one| wide.iter().any(|other| covers(other, one)))
}
