//! The plans that overrides assign to the keys of a request, as far as a client cannot invent these keys.
//!
//! They follow from no mode, match or exemption of a limit: a limit that does not apply to the request counts too.

use smallvec::SmallVec;

use super::identify::RequestIdentities;
use crate::engine::limit::Key;
use crate::engine::policy::{Facts, KeyPart, Limit, Policy, Principal};

/// The plans of all keys of the request.
pub(super) fn assigned_plans<'l>(request: &mut RequestIdentities<'_, 'l, '_>) -> SmallVec<[&'l str; 1]> {
    let (live, facts) = (request.live, request.facts);
    let mut plans = SmallVec::new();
    for &index in &live.policy.assigning {
        let limit = &live.policy.limits()[index];
        if !is_proven(&live.policy, &limit.key, facts) {
            continue;
        }
        let special = key(request, limit).and_then(|key| live.special(index, key));
        plans.extend(special.and_then(|variant| limit.allowed.assigned(variant)));
    }
    plans
}

/// Whether a key of these parts names a client, and the client cannot invent it. An identity in a header is trusted as it
/// is: who sends the value of an override knows it. Another header counts from a trusted proxy only. A proxy forwards
/// parameters and cookies of clients, and a route follows from `match`.
fn is_proven(policy: &Policy, parts: &[KeyPart], facts: &Facts<'_>) -> bool {
    let is_proven = |part: &KeyPart| match part {
        KeyPart::Header(..) => facts.is_proxied,
        KeyPart::Identity(index) => policy.identities.get(*index).is_some(),
        KeyPart::Query(..)
        | KeyPart::Cookie(..)
        | KeyPart::Json(_)
        | KeyPart::Named(_)
        | KeyPart::Route
        | KeyPart::Parameter(_) => false,
        _ => true,
    };
    let names_client = |part: &KeyPart| {
        matches!(part, KeyPart::Ip | KeyPart::Network { .. } | KeyPart::Identity(_) | KeyPart::Header(..))
    };
    parts.iter().any(names_client) && parts.iter().all(is_proven)
}

/// The key of the request in a limit; `None` if an identity is missing or wrong, or a part has several values.
fn key(request: &mut RequestIdentities<'_, '_, '_>, limit: &Limit) -> Option<Key> {
    let (live, facts) = (request.live, request.facts);
    let mut principals: SmallVec<[Principal<'_>; 2]> = SmallVec::new();
    for index in 0..live.policy.identities.len() {
        let is_needed = limit.key.contains(&KeyPart::Identity(index));
        principals.push(if is_needed { request.find(index).ok()??.principal.clone() } else { Principal::Anonymous });
    }
    request.gate.secret.key(&limit.key, "", facts, live.policy.client_ip.prefixes, &principals).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
    use crate::engine::policy::testing::facts;
    use crate::engine::policy::{CertificateName, Identity, IdentitySource, OnMissing, Repeated};

    #[test]
    fn keys_that_clients_cannot_invent() {
        let identity = |source| Identity { name: "a".into(), source, on_missing: OnMissing::Ip, is_plain: false };
        let name = HeaderName::from_static("x-a");
        let sources = [
            IdentitySource::Header(name.clone(), Repeated::Reject),
            IdentitySource::Certificate(CertificateName::SanDns),
        ];
        let rules =
            ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() };
        let policy = Policy::new(Vec::new(), Vec::from(sources.map(identity)), rules);
        let (ip, header) = (KeyPart::Ip, KeyPart::Header(name, Repeated::Reject));
        let network = KeyPart::Network { v4: 24, v6: None };
        let (query, cookie) =
            (KeyPart::Query("a".into(), Repeated::Reject), KeyPart::Cookie("a".into(), Repeated::Reject));
        let [by_header, certificate, unknown] = [0, 1, 2].map(KeyPart::Identity);
        let none = FieldBuf::default();
        for (parts, direct, proxied) in [
            (vec![], false, false),
            (vec![ip.clone()], true, true),
            (vec![network, KeyPart::Path, KeyPart::Method, KeyPart::Host], true, true),
            (vec![KeyPart::Path], false, false),
            (vec![certificate.clone()], true, true),
            (vec![certificate.clone(), KeyPart::Route], false, false),
            (vec![by_header.clone()], true, true),
            (vec![unknown], false, false),
            (vec![certificate.clone(), by_header], true, true),
            (vec![certificate, KeyPart::Parameter("a".into())], false, false),
            (vec![header.clone()], false, true),
            (vec![ip.clone(), header], false, true),
            (vec![ip.clone(), query], false, false),
            (vec![cookie], false, false),
            (vec![ip, KeyPart::Named("a".into())], false, false),
        ] {
            let facts = |is_proxied| Facts { is_proxied, ..facts("a", "/", &none) };
            assert_eq!([false, true].map(|is| is_proven(&policy, &parts, &facts(is))), [direct, proxied], "{parts:?}");
        }
    }
}
