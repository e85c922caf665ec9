//! Locations and servers that nginx refuses: `return` with a status of an error, and `internal`.

use std::collections::BTreeSet;

use super::others::Refusal;
use super::site::{Site, Spot};
use crate::import::draft::{Block, Draft, list};
use crate::import::report::{Kind, OPEN};

/// Writes the refusals of locations as paths to deny, and notes others. `others` are those of servers that are no site,
/// with their hosts.
pub(super) fn write(others: &[(Vec<String>, Refusal)], sites: &[Site], draft: &mut Draft) {
    // Without a service, all requests go to that which the user sets.
    let has_service = sites.iter().any(|site| site.listening.has_service);
    for (hosts, refusal) in others {
        if has_service && !sites.iter().any(|site| has_some(site, hosts)) {
            answer(*refusal, 404, draft);
        } else {
            draft.left_out(refusal.0, OPEN);
        }
    }
    let (mut places, mut denied) = (BTreeSet::new(), BTreeSet::new());
    for site in sites {
        let is_of_others = sites.iter().any(|other| !std::ptr::eq(other, site) && has_some(other, &site.hosts));
        let forwarded = || site.spots.iter().filter(|spot| spot.proxy.is_some());
        for spot in &site.spots {
            let Some(refusal) = spot.refusal else { continue };
            let is_within = forwarded().any(|outer| spot.path.is_within(&outer.path));
            let is_around = forwarded().any(|inner| inner.path.is_within(&spot.path));
            if has_service && !is_within && !is_of_others {
                answer(refusal, 404, draft);
            } else if sites.len() == 1 && !is_around && !spot.path.is_all() {
                answer(refusal, 403, draft);
                places.insert(refusal.0);
                denied.extend(spot.path.patterns());
            } else {
                draft.left_out(refusal.0, OPEN);
            }
        }
    }
    if !denied.is_empty() {
        let denied: Vec<_> = denied.into_iter().collect();
        draft.push(Block::new("[access]", places).option("deny", format!("{{ path = {} }}", list(&denied))));
    }
}

/// Whether a site has requests for some of these hosts in Weir.
fn has_some(site: &Site, hosts: &[String]) -> bool {
    let has = |host: &String| site.hosts.iter().any(|own| own == host || own.starts_with('*'));
    site.hosts.is_empty() || hosts.iter().any(has)
}

/// Notes the status of Weir.
fn answer((place, status): Refusal, ours: u16, draft: &mut Draft) {
    if status == ours {
        draft.note(Kind::NotNeeded, place, format!("Weir answers {ours}, too"));
    } else {
        draft.differs(place, format!("Weir answers {ours}"));
    }
}

/// Notes locations whose files nginx serves, and whose requests Weir forwards.
pub(super) fn note_files(sites: &[Site], draft: &mut Draft) {
    for site in sites {
        let is_forwarded =
            |spot: &Spot| site.spots.iter().any(|outer| outer.proxy.is_some() && spot.path.is_within(&outer.path));
        for spot in site.spots.iter().filter(|spot| spot.has_files && is_forwarded(spot)) {
            draft.differs(spot.place, "nginx serves files here, and Weir forwards to the service around it");
        }
    }
}
