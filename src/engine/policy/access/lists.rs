//! The access lists, prepared for lookups.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::ranges::{AccessRule, Ranges};
use crate::engine::policy::facts::Facts;
use crate::engine::policy::identity::sources::Principal;
use crate::engine::policy::matching::conditions::{Except, Match};
use crate::engine::policy::matching::matcher::Matcher;
use crate::engine::policy::matching::pattern::PathPattern;
use crate::engine::policy::matching::values::as_read;

/// The compiled `[access]` section.
#[derive(Debug)]
pub struct Access {
    v4: Ranges,
    v6: Ranges,
    paths: Matcher,
    /// The entries of identities, by the index of the identity in the policy.
    identities: Vec<(usize, IdentityEntries)>,
    require: Vec<Requirement>,
    required_at: Matcher,
}

/// The entries for the values of one identity.
#[derive(Debug, Default)]
struct IdentityEntries {
    /// Entries by the exact value.
    exact: HashMap<Box<[u8]>, AccessRule>,
    /// Denied values in the form of [`as_read`].
    denied: HashSet<Box<[u8]>>,
}

/// All entries as configured. No two entries have opposite rules for one network, path or value.
#[derive(Debug, Default)]
pub struct AccessSpec {
    /// Entries for client networks.
    pub networks: Vec<(IpNet, AccessRule)>,
    /// Entries for paths.
    pub paths: Vec<(PathPattern, AccessRule)>,
    /// Entries for values of the identity with this index in the policy.
    pub identities: Vec<(usize, Box<str>, AccessRule)>,
    /// Requests that need an identity or a plan.
    pub require: Vec<Requirement>,
}

/// Requests that need an identity or a plan.
#[derive(Clone, Debug, Default)]
pub struct Requirement {
    /// The requests.
    pub matches: Match,
    /// The requests that are left out.
    pub except: Except,
    /// The indices of identities in the policy; any of them is enough. If empty, no identity is required.
    pub identities: Vec<usize>,
    /// The plans; any of them is enough. If empty, no plan is required.
    pub plans: Vec<Box<str>>,
}

/// The reason why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DenialReason<'p> {
    /// The client's address is denied.
    #[error("this address is refused")]
    Address,
    /// The path is denied.
    #[error("this path is refused")]
    Path,
    /// A value of the identity of this name is denied.
    #[error("this {0} is refused")]
    Identity(&'p str),
    /// The request has none of these plans.
    #[error("this path needs the plan {}", .0.join(" or "))]
    Plan(&'p [Box<str>]),
}

impl Requirement {
    /// Whether a request with this plan, or without a plan, has one of the required plans.
    pub fn is_met_by(&self, plan: Option<&str>) -> bool {
        self.plans.is_empty() || plan.is_some_and(|plan| self.plans.iter().any(|name| **name == *plan))
    }
}

impl Access {
    /// Prepares the entries for lookups.
    pub fn new(spec: AccessSpec) -> Self {
        let mut v4 = Vec::<(Ipv4Net, AccessRule)>::new();
        let mut v6 = Vec::<(Ipv6Net, AccessRule)>::new();
        for (network, rule) in spec.networks {
            match canonical(network) {
                IpNet::V4(network) => v4.push((network.trunc(), rule)),
                IpNet::V6(network) => v6.push((network.trunc(), rule)),
            }
        }
        // A network precedes the networks that it contains.
        v4.sort_unstable_by_key(|(network, _)| *network);
        v6.sort_unstable_by_key(|(network, _)| *network);
        let v4 = v4.iter().map(|(net, rule)| {
            let end = net.broadcast().to_bits().checked_add(1);
            (upper(net.network()), end.map(|end| upper(Ipv4Addr::from_bits(end))), *rule)
        });
        let v6 = v6.iter().map(|(net, rule)| {
            let end = net.broadcast().to_bits().checked_add(1);
            (net.network().to_bits(), end, *rule)
        });
        let mut identities: Vec<(usize, IdentityEntries)> = Vec::new();
        for (index, value, rule) in spec.identities {
            let at = identities.iter().position(|(known, _)| *known == index).unwrap_or_else(|| {
                identities.push((index, IdentityEntries::default()));
                identities.len() - 1
            });
            identities[at].1.insert(value, rule);
        }
        let required = spec.require.iter().map(|one| &one.matches).enumerate();
        Self {
            v4: Ranges::of(v4),
            v6: Ranges::of(v6),
            paths: Matcher::over(spec.paths.iter().map(|(path, rule)| (*rule as usize, std::slice::from_ref(path)))),
            identities,
            required_at: Matcher::of(required),
            require: spec.require,
        }
    }

    /// The rule for a client's address. An IPv4-mapped address is given as IPv4.
    pub fn by_address(&self, ip: IpAddr) -> Option<AccessRule> {
        match ip {
            IpAddr::V4(ip) => self.v4.at(upper(ip)),
            IpAddr::V6(ip) => self.v6.at(ip.to_bits()),
        }
    }

    /// The rule for a normalised path.
    pub fn by_path(&self, path: &str) -> Option<AccessRule> {
        let found = self.paths.path_matches(path);
        let deny = AccessRule::Deny as usize;
        found.first().map(|first| if first.number == deny { AccessRule::Deny } else { AccessRule::Allow })
    }

    /// Whether address and path exempt the request from limits.
    pub fn on_arrival(&self, ip: IpAddr, path: &str) -> Result<bool, DenialReason<'static>> {
        let (by_address, by_path) = (self.by_address(ip), self.by_path(path));
        match (by_address, by_path) {
            (Some(AccessRule::Deny), _) => Err(DenialReason::Address),
            (_, Some(AccessRule::Deny)) => Err(DenialReason::Path),
            _ => Ok(by_address.or(by_path).is_some()),
        }
    }

    /// Whether the lists have entries for identities or plans.
    pub fn looks_beyond_arrival(&self) -> bool {
        !self.identities.is_empty() || !self.require.is_empty()
    }

    /// The indices of the identities that have entries.
    pub fn identities(&self) -> impl Iterator<Item = usize> {
        self.identities.iter().map(|(index, _)| *index)
    }

    /// Whether values of the identity with this index are denied.
    pub fn denies_by(&self, index: usize) -> bool {
        self.identities.iter().any(|(known, values)| *known == index && !values.denied.is_empty())
    }

    /// The rule for a principal of the identity with this index. An address in place of an identity has no rule.
    pub fn by_identity(&self, index: usize, who: &Principal<'_>) -> Option<AccessRule> {
        let (_, values) = self.identities.iter().find(|(known, _)| *known == index)?;
        match who {
            Principal::Bytes(bytes) => values.of_header(bytes),
            Principal::Joined(bytes) => values.of_header(bytes),
            Principal::Claim(claim) => values.exact.get(claim.as_bytes()).copied(),
            Principal::Anonymous | Principal::Ip => None,
        }
    }

    /// The requirements of a request, in no defined order.
    pub fn required(&self, facts: &Facts<'_>) -> Required<'_> {
        let mut required = Required::new();
        self.required_at.for_each_candidate(facts, |leaf| {
            let one = &self.require[leaf.number];
            if one.matches.matches_beyond_path(facts) && one.except.path(facts.path).is_none() {
                required.push(one);
            }
        });
        required
    }

    /// All requirements, in the order of the configuration.
    pub fn requirements(&self) -> &[Requirement] {
        &self.require
    }
}

impl IdentityEntries {
    fn insert(&mut self, value: Box<str>, rule: AccessRule) {
        if rule == AccessRule::Deny {
            self.denied.insert(as_read(value.as_bytes()).into());
        }
        self.exact.insert(value.into_boxed_bytes(), rule);
    }

    /// The rule for a value that a client sent. It is denied if a service may read it as a denied value, and allowed
    /// only if it is exactly an allowed value.
    fn of_header(&self, value: &[u8]) -> Option<AccessRule> {
        let is_denied = !self.denied.is_empty() && self.denied.contains(&*as_read(value));
        if is_denied { Some(AccessRule::Deny) } else { self.exact.get(value).copied() }
    }
}

/// An IPv4 address as the upper bits of a range start. Searches compare the upper half first.
fn upper(ip: Ipv4Addr) -> u128 {
    u128::from(ip.to_bits()) << 96
}

/// The requirements of one request.
pub type Required<'p> = smallvec::SmallVec<[&'p Requirement; 2]>;

/// The IPv4 network for a network of IPv4-mapped addresses (RFC 4291, 2.5.5.2); other networks unchanged.
pub fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    v4.and_then(|(ip, prefix)| Ipv4Net::new(ip, prefix).ok()).map_or(network, IpNet::V4)
}
