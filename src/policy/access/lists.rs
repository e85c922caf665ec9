//! The access lists, prepared for lookups.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::ranges::Ranges;
use super::rule::AccessRule;
use crate::policy::identity::principal::Principal;
use crate::policy::matching::matcher::Matcher;
use crate::policy::matching::pattern::PathPattern;
use crate::policy::matching::values::as_read;

/// `[access]`.
#[derive(Debug)]
pub struct Access {
    v4: Ranges,
    v6: Ranges,
    paths: Matcher,
    /// By the index of an identity in the policy; only those that an entry names.
    identities: Vec<(usize, IdentityEntries)>,
    require: Vec<Requirement>,
    required_at: Matcher,
}

/// What is said of the values of one identity.
#[derive(Debug, Default)]
struct IdentityEntries {
    /// By the exact value.
    exact: HashMap<Box<[u8]>, AccessRule>,
    /// Those that are denied, as a service may read them: see [`as_read`].
    denied: HashSet<Box<[u8]>>,
}

/// All entries, as written. No two say opposite things of the same network, path or value.
#[derive(Debug, Default)]
pub struct AccessSpec {
    /// Networks of clients.
    pub networks: Vec<(IpNet, AccessRule)>,
    /// Paths.
    pub paths: Vec<(PathPattern, AccessRule)>,
    /// Values of the identity with this index in the policy.
    pub identities: Vec<(usize, Box<str>, AccessRule)>,
    /// What needs a plan.
    pub require: Vec<Requirement>,
}

/// Paths that only requests with a certain plan may ask for.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// Any of these.
    pub paths: Vec<PathPattern>,
    /// Names of plans, any of which will do.
    pub plans: Vec<Box<str>>,
}

/// What shuts a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason<'p> {
    /// Its client's address.
    Address,
    /// Its path.
    Path,
    /// The identity of this name.
    Identity(&'p str),
    /// It has none of these plans.
    Plan(&'p [Box<str>]),
}

impl fmt::Display for DenialReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("this address is denied"),
            Self::Path => f.write_str("this path is denied"),
            Self::Identity(identity) => write!(f, "this {identity} is denied"),
            Self::Plan(plans) => write!(f, "this path needs the plan {}", plans.join(" or ")),
        }
    }
}

impl Requirement {
    /// Whether a request with this plan, or none, may go on.
    pub fn is_met_by(&self, plan: Option<&str>) -> bool {
        plan.is_some_and(|plan| self.plans.iter().any(|name| **name == *plan))
    }
}

impl Access {
    /// Prepares the entries for look-ups.
    pub fn new(spec: AccessSpec) -> Self {
        let mut v4 = Vec::<(Ipv4Net, AccessRule)>::new();
        let mut v6 = Vec::<(Ipv6Net, AccessRule)>::new();
        for (network, rule) in spec.networks {
            match canonical(network) {
                IpNet::V4(network) => v4.push((network.trunc(), rule)),
                IpNet::V6(network) => v6.push((network.trunc(), rule)),
            }
        }
        // A network stands before those that it holds.
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
        let by_place = spec.require.iter().enumerate();
        let required = by_place.flat_map(|(place, one)| one.paths.iter().map(move |path| (place, path)));
        Self {
            v4: Ranges::of(v4),
            v6: Ranges::of(v6),
            paths: Matcher::over(spec.paths.iter().map(|(path, rule)| (*rule as usize, path))),
            identities,
            required_at: Matcher::over(required),
            require: spec.require,
        }
    }

    /// What is said of the client's address, IPv4 if it is one.
    pub fn by_address(&self, ip: IpAddr) -> Option<AccessRule> {
        match ip {
            IpAddr::V4(ip) => self.v4.at(upper(ip)),
            IpAddr::V6(ip) => self.v6.at(ip.to_bits()),
        }
    }

    /// What is said of the normalised path.
    pub fn by_path(&self, path: &str) -> Option<AccessRule> {
        let mut first = None;
        self.paths.for_each_path_match(path, |rule, _| {
            first.get_or_insert(if rule == AccessRule::Deny as usize { AccessRule::Deny } else { AccessRule::Allow });
        });
        first
    }

    /// What is said of address and path together: whether the request is freed from limits, or why it is shut out.
    pub fn on_arrival(&self, ip: IpAddr, path: &str) -> Result<bool, DenialReason<'static>> {
        let (by_address, by_path) = (self.by_address(ip), self.by_path(path));
        match (by_address, by_path) {
            (Some(AccessRule::Deny), _) => Err(DenialReason::Address),
            (_, Some(AccessRule::Deny)) => Err(DenialReason::Path),
            _ => Ok(by_address.or(by_path).is_some()),
        }
    }

    /// Whether anything but address and path matters.
    pub fn looks_beyond_arrival(&self) -> bool {
        !self.identities.is_empty() || !self.require.is_empty()
    }

    /// The indices of the identities that entries name.
    pub fn identities(&self) -> impl Iterator<Item = usize> {
        self.identities.iter().map(|(index, _)| *index)
    }

    /// What is said of someone by the identity with this index. An address that stands in for one is not looked up.
    pub fn by_identity(&self, index: usize, who: &Principal<'_>) -> Option<AccessRule> {
        let (_, values) = self.identities.iter().find(|(known, _)| *known == index)?;
        match who {
            Principal::Bytes(bytes) => values.of_header(bytes),
            Principal::Joined(bytes) => values.of_header(bytes),
            Principal::Claim(claim) => values.exact.get(claim.as_bytes()).copied(),
            Principal::Anonymous | Principal::Ip => None,
        }
    }

    /// What the normalised path needs; all of it.
    pub fn required(&self, path: &str) -> Required<'_> {
        let mut required = Required::new();
        self.required_at.for_each_path_match(path, |place, _| required.push(&self.require[place]));
        required
    }
}

impl IdentityEntries {
    fn insert(&mut self, value: Box<str>, rule: AccessRule) {
        if rule == AccessRule::Deny {
            self.denied.insert(as_read(value.as_bytes()).into());
        }
        self.exact.insert(value.into_boxed_bytes(), rule);
    }

    /// What is said of a value that the client wrote: it is denied if a service may read it as one that is, and allowed
    /// only as it stands.
    fn of_header(&self, value: &[u8]) -> Option<AccessRule> {
        let is_denied = !self.denied.is_empty() && self.denied.contains(&*as_read(value));
        if is_denied { Some(AccessRule::Deny) } else { self.exact.get(value).copied() }
    }
}

/// An IPv4 address as the upper bits of one of IPv6, whose upper half is looked for first.
fn upper(ip: Ipv4Addr) -> u128 {
    u128::from(ip.to_bits()) << 96
}

/// What one path needs.
pub type Required<'p> = smallvec::SmallVec<[&'p Requirement; 2]>;

/// The IPv4 network inside one of IPv4-mapped IPv6 addresses (RFC 4291, 2.5.5.2), as clients' addresses are unmapped.
pub fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    v4.and_then(|(ip, prefix)| Ipv4Net::new(ip, prefix).ok()).map_or(network, IpNet::V4)
}
