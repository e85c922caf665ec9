//! The reasons why a limit does not apply to a request, found by the conditions that matching uses.

use http::HeaderName;
use ipnet::IpNet;

use super::compiled::{Applied, Policy};
use super::facts::Facts;
use super::limit::{Limit, Mode};
use super::matching::conditions::has_header;
use super::matching::matcher::Matcher;
use crate::engine::units::Pointer;

/// A reason why a limit does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The mode of the limit is off.
    #[error("its mode is off")]
    Off,
    /// Only callers of the limiter service have such a key.
    #[error("its key has a `name:` part, which only callers of the limiter service have")]
    Named,
    /// The request is a free CORS preflight.
    #[error("CORS preflights are free")]
    Preflight,
    /// No pattern matches the path.
    #[error("match.path has no pattern for this path")]
    Path,
    /// No regular expression matches the path.
    #[error("match.path_regex does not match this path")]
    PathRegex,
    /// The limit does not list the method.
    #[error("match.method does not have this method")]
    Method,
    /// The limit does not list the host.
    #[error("match.host does not have this host")]
    Host,
    /// The condition for this header is not met.
    #[error("match.header: {0} does not have the required value")]
    Header(HeaderName),
    /// The condition for this member of the body is not met, as without a body.
    #[error("match.json: {0} is unknown without the body")]
    Body(Pointer),
    /// The limit does not list a network of the client.
    #[error("match.ip does not have the client")]
    Client,
    /// The client is in this exempt network.
    #[error("except.ip has the client in {0}")]
    Except(IpNet),
    /// The path matches this exempt pattern.
    #[error("except.path has {0}")]
    ExceptPath(Box<str>),
}

impl Policy {
    /// The limit with this index, if it applies to the request; otherwise all reasons why it does not.
    pub fn applies(&self, index: usize, facts: &Facts<'_>) -> Result<Applied<'_>, Vec<Mismatch>> {
        let Some((limit, traits)) = self.limits.get(index).zip(self.traits.get(index)) else {
            return Err(Vec::new());
        };
        if limit.mode == Mode::Off {
            return Err(vec![Mismatch::Off]);
        }
        if limit.is_for_callers() {
            return Err(vec![Mismatch::Named]);
        }
        let paths = Matcher::over([(index, &limit.matches.paths[..])]).path_matches(facts.path);
        let route = paths.first().map(|leaf| limit.matches.route(leaf.pattern));
        let is_free = facts.is_free_preflight && self.frees(limit, facts);
        let mut why = Vec::new();
        why.extend(is_free.then_some(Mismatch::Preflight));
        why.extend(route.is_none().then_some(Mismatch::Path));
        why.extend(limit.mismatches_beyond_path(facts));
        match route {
            Some(route) if why.is_empty() => Ok(Applied { index, limit, traits, route }),
            _ => Err(why),
        }
    }
}

impl Limit {
    fn mismatches_beyond_path<'l>(&'l self, facts: &'l Facts<'_>) -> impl Iterator<Item = Mismatch> + 'l {
        let method = (!self.matches.has_method(facts)).then_some(Mismatch::Method);
        let host = (!self.matches.has_host(facts)).then_some(Mismatch::Host);
        let headers = self.matches.headers.iter().filter(|header| !has_header(header, facts));
        let headers = headers.map(|(name, _)| Mismatch::Header(name.clone()));
        let regex = (!self.matches.has_path_regex(facts)).then_some(Mismatch::PathRegex);
        let client = (!self.matches.has_client(facts)).then_some(Mismatch::Client);
        let network = self.except.network(facts.client_ip).copied().map(Mismatch::Except);
        let path = self.except.path(facts.path).map(|pattern| Mismatch::ExceptPath(pattern.as_str().into()));
        let json = self.matches.json.iter().filter(|(member, test)| !member.fits(test, facts.body));
        let json = json.map(|(member, _)| Mismatch::Body(member.pointer.clone()));
        let own = regex.into_iter().chain(method).chain(host).chain(headers).chain(json).chain(client);
        own.chain(network).chain(path)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
    use crate::engine::policy::testing::{facts, limit};
    use crate::engine::policy::{
        BodyMember, Except, HeaderTest, HostPattern, Match, MemberTest, PathPattern, Stage, TextRegex,
    };

    fn limits() -> Vec<Limit> {
        let matches = || limit("l", &["/a/{x}"]).matches;
        let except = || Except {
            networks: ["192.0.2.0/24".parse().unwrap()].into_iter().collect(),
            paths: vec![PathPattern::parse("/c").unwrap()],
        };
        let regex = |text: &str| TextRegex::new(text, false).unwrap();
        let header = |test| vec![(HeaderName::from_static("x-a"), test)];
        let member = BodyMember { pointer: Pointer::parse("/a").unwrap(), read_bytes: 1 };
        let with = |matches| Limit { matches, ..limit("l", &[]) };
        vec![
            limit("all", &[]),
            limit("path", &["/a", "/b/{*rest}"]),
            Limit { mode: Mode::Off, ..limit("off", &[]) },
            Limit { stage: Stage::Arrival, ..limit("arrival", &[]) },
            Limit { except: except(), ..limit("except", &["/a"]) },
            with(Match { methods: vec![Method::GET], ..matches() }),
            with(Match { methods: vec![Method::OPTIONS], ..matches() }),
            with(Match { hosts: vec![HostPattern::Exact("h".into())], ..matches() }),
            with(Match { headers: header(HeaderTest::Present), ..Match::default() }),
            with(Match { headers: header(HeaderTest::Is(HeaderValue::from_static("1"))), ..matches() }),
            with(Match { headers: header(HeaderTest::Matches(regex("^1$"))), ..Match::default() }),
            with(Match { path_regexes: vec![regex("/[ab]$")], ..Match::default() }),
            with(Match { networks: except().networks, ..Match::default() }),
            with(Match { json: vec![(member, MemberTest::Present)], ..Match::default() }),
        ]
    }

    fn policy() -> Policy {
        Policy::new(
            limits(),
            Vec::new(),
            ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() },
        )
    }

    #[test]
    fn all_reasons_are_listed() {
        let policy = policy();
        let none = FieldBuf::default();
        let facts = Facts { method: &Method::PUT, ..facts("i", "/c", &none) };
        let texts: Vec<String> = (0..policy.limits().len())
            .map(|index| match policy.applies(index, &facts) {
                Ok(applied) => format!("{} applies", applied.limit.name),
                Err(why) => why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            })
            .collect();
        insta::assert_snapshot!(texts.join("\n"), @r#"
        all applies
        match.path has no pattern for this path
        its mode is off
        arrival applies
        match.path has no pattern for this path; except.ip has the client in 192.0.2.0/24; except.path has /c
        match.path has no pattern for this path; match.method does not have this method
        match.path has no pattern for this path; match.method does not have this method
        match.path has no pattern for this path; match.host does not have this host
        match.header: x-a does not have the required value
        match.path has no pattern for this path; match.header: x-a does not have the required value
        match.header: x-a does not have the required value
        match.path_regex does not match this path
        l applies
        match.json: /a is unknown without the body
        "#);
    }

    proptest! {
        #[test]
        fn reasons_agree_with_matching(
            method in prop::sample::select(vec![Method::GET, Method::PUT, Method::OPTIONS]),
            host in "[hi]",
            path in prop::sample::select(vec!["/a", "/b/", "/a/1", "/c", "*"]),
            client in prop::sample::select(vec!["192.0.2.1", "192.0.3.1"]),
            names in prop::collection::vec(
                prop::sample::select(vec!["x-a", "origin", "access-control-request-method"]), 0..4),
            value in "[12]",
        ) {
            let policy = policy();
            let headers: FieldBuf = names.iter().map(|name| (*name, &value)).collect();
            let facts = Facts {
                method: &method, host: &host, path, query: None, headers: headers.fields(),
                client_ip: client.parse().unwrap(),
                is_free_preflight: names.len() == 3,
                is_proxied: false,
                certificate: None,
                cost: None,
                body: None,
            };
            let mut met = Vec::new();
            for stage in [Stage::Arrival, Stage::Identified] {
                policy.for_each_applied(stage, &facts, |applied| met.push((applied.index, applied.route)));
            }
            met.sort_unstable();
            let found = (0..policy.limits().len()).filter_map(|index| policy.applies(index, &facts).ok());
            let found: Vec<_> = found.map(|applied| (applied.index, applied.route)).collect();
            prop_assert_eq!(found, met);
        }
    }
}
