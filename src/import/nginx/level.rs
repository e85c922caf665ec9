//! Directives that a block of nginx inherits from the block around it.

use super::directives::Directive;
use crate::import::draft::{Draft, SourceLine};
use crate::import::report::Kind;

/// A `limit_req` or a `limit_conn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) place: SourceLine,
    pub(super) zone: String,
    /// Of `limit_req`: requests beyond the rate, and those of them that are not delayed.
    pub(super) burst: u64,
    pub(super) undelayed: u64,
    /// Of `limit_conn`.
    pub(super) max: u64,
    pub(super) is_dry: bool,
    /// That of refusals, if it is written.
    pub(super) status: Option<u16>,
}

impl Use {
    /// Whether it delays requests.
    pub(super) fn delays(&self) -> bool {
        self.undelayed < self.burst
    }

    /// Whether both decide alike.
    pub(super) fn equals(&self, other: &Self) -> bool {
        Self { place: other.place, ..self.clone() } == *other
    }
}

/// The directives in force in a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    pub(super) requests: Vec<Use>,
    pub(super) connections: Vec<Use>,
    /// Whether the service gets the host of the client.
    pub(super) keeps_host: bool,
    is_dry: [bool; 2],
    statuses: [Option<u16>; 2],
}

impl Level {
    /// The directives in force in `block`, which is within the block of this level. Directives of a block replace
    /// directives of the same name around it.
    pub(super) fn within(&self, block: &[Directive], draft: &mut Draft) -> Self {
        let named = |name: &'static str| block.iter().filter(move |directive| directive.name == name);
        let mut level = self.clone();
        if named("limit_req").next().is_some() {
            level.requests = named("limit_req").filter_map(|directive| limit_req(directive, draft)).collect();
        }
        if named("limit_conn").next().is_some() {
            level.connections = named("limit_conn").filter_map(|directive| limit_conn(directive, draft)).collect();
        }
        for (name, is_dry) in ["limit_req_dry_run", "limit_conn_dry_run"].into_iter().zip(&mut level.is_dry) {
            *is_dry = named(name).next_back().map_or(*is_dry, |directive| directive.word(0) == "on");
        }
        for (name, status) in ["limit_req_status", "limit_conn_status"].into_iter().zip(&mut level.statuses) {
            for directive in named(name) {
                // nginx sends no answer with 444.
                *status = directive.word(0).parse().ok().filter(|status| *status != 444);
                if directive.word(0) == "444" {
                    draft.differs(directive.place, "Weir answers 429 in place of closing the connection");
                }
            }
        }
        let kinds = [&mut level.requests, &mut level.connections].into_iter().zip(level.is_dry).zip(level.statuses);
        for ((uses, is_dry), status) in kinds {
            for one in uses {
                (one.is_dry, one.status) = (is_dry, status);
            }
        }
        if named("proxy_set_header").next().is_some() {
            level.keeps_host = false;
        }
        for directive in named("proxy_set_header") {
            match (directive.word(0).to_ascii_lowercase().as_str(), directive.word(1)) {
                ("host", "$host" | "$http_host") => level.keeps_host = true,
                ("x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "connection", _) => {
                    draft.note(Kind::NotNeeded, directive.place, "Weir sets this header itself");
                }
                _ => draft.left_out(directive.place, "Weir does not add this header"),
            }
        }
        level
    }
}

/// The names of directives that [`Level::within`] reads.
pub(super) fn is_inherited(name: &str) -> bool {
    let names = "limit_req limit_conn limit_req_dry_run limit_conn_dry_run limit_req_status limit_conn_status \
        proxy_set_header";
    names.split_whitespace().any(|known| known == name)
}

fn limit_req(directive: &Directive, draft: &mut Draft) -> Option<Use> {
    let place = directive.place;
    let mut one = Use { place, zone: String::new(), burst: 0, undelayed: 0, max: 0, is_dry: false, status: None };
    for word in &directive.words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = value.parse().ok();
        match (name, number) {
            ("zone", _) => value.clone_into(&mut one.zone),
            ("burst", Some(number)) => one.burst = number,
            ("delay", Some(number)) => one.undelayed = number,
            ("nodelay", _) => one.undelayed = u64::MAX,
            _ => {
                draft.left_out(place, format!("`{word}` is unknown"));
                return None;
            }
        }
    }
    Some(one)
}

fn limit_conn(directive: &Directive, draft: &mut Draft) -> Option<Use> {
    let (place, zone) = (directive.place, directive.word(0).to_owned());
    let Ok(max) = directive.word(1).parse() else {
        draft.left_out(place, "its number of connections is missing");
        return None;
    };
    Some(Use { place, zone, burst: 0, undelayed: 0, max, is_dry: false, status: None })
}
