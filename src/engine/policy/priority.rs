//! The priority of a request: who passes first of those that wait, and who is shed last under overload.
//!
//! It decides about nothing else. A client cannot raise its priority: a header, also one with a plan, counts only from a
//! trusted proxy.

use http::HeaderName;

use super::facts::Facts;
use super::matching::conditions::Match;
use crate::base::fields::Fields;

/// The priority of a request, highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// It passes before all others, and is never shed.
    Critical,
    /// The priority of most requests.
    #[default]
    Normal,
    /// It passes after all others, and is shed first.
    Background,
}

impl Priority {
    /// All priorities, highest first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Normal, Self::Background];

    /// Its word in configurations, headers and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Normal => "normal",
            Self::Background => "background",
        }
    }
}

/// The rules that give requests their priorities.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    /// The header in which trusted proxies name the priority; it outweighs the rules.
    pub header: Option<HeaderName>,
    /// The first rule that fits decides.
    pub rules: Vec<PriorityRule>,
    /// The least part in percent of the units of a limit that waiting requests of each priority below critical get; 0
    /// for none.
    pub min_share_percent: u8,
}

/// A rule for the priority of requests.
#[derive(Clone, Debug)]
pub struct PriorityRule {
    /// The priority that it gives.
    pub priority: Priority,
    /// The requests that it fits.
    pub matches: Match,
    /// The plans of which a request must have one; empty for all requests.
    pub plans: Vec<Box<str>>,
}

impl Priorities {
    /// The priority of a request. `has_plan` says whether the request has one of these plans.
    pub fn of(&self, facts: &Facts<'_>, mut has_plan: impl FnMut(&[Box<str>]) -> bool) -> Priority {
        let by_proxy =
            self.header.as_ref().filter(|_| facts.is_proxied).and_then(|name| in_header(facts.headers, name));
        let mut fits =
            |rule: &&PriorityRule| rule.matches.fits(facts) && (rule.plans.is_empty() || has_plan(&rule.plans));
        by_proxy
            .unwrap_or_else(|| self.rules.iter().find(|rule| fits(rule)).map(|rule| rule.priority).unwrap_or_default())
    }
}

/// The priority that a header names, if the request has it. The lowest if it has another value, or several: one of them may
/// be the client's own.
fn in_header(headers: Fields<'_>, name: &HeaderName) -> Option<Priority> {
    let mut values = headers.all(name.as_str());
    let value = values.next()?.trim_ascii();
    let known = Priority::ALL.into_iter().find(|priority| priority.word().as_bytes() == value);
    Some(known.filter(|_| values.next().is_none()).unwrap_or(Priority::Background))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::PathPattern;
    use crate::engine::policy::testing::facts;

    fn rule(priority: Priority, path: &str, plans: &[&str]) -> PriorityRule {
        let paths = vec![PathPattern::parse(path).unwrap()];
        let matches = Match { paths, methods: vec![Method::GET], ..Match::default() };
        PriorityRule { priority, matches, plans: plans.iter().map(|plan| (*plan).into()).collect() }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = vec![
            rule(Priority::Critical, "/pay/{*rest}", &[]),
            rule(Priority::Background, "/{*rest}", &["free", "trial"]),
            rule(Priority::Background, "/reports", &[]),
        ];
        let priorities = Priorities { rules, ..Priorities::default() };
        for (path, plan, expected) in [
            ("/pay/1", "free", Priority::Critical),
            ("/a", "free", Priority::Background),
            ("/a", "trial", Priority::Background),
            ("/a", "premium", Priority::Normal),
            ("/reports", "premium", Priority::Background),
            ("/reports/1", "premium", Priority::Normal),
        ] {
            let none = FieldBuf::default();
            let has_plan = |plans: &[Box<str>]| plans.iter().any(|one| **one == *plan);
            assert_eq!(priorities.of(&facts("a", path, &none), has_plan), expected, "{path} {plan}");
            let post = Facts { method: &Method::POST, ..facts("a", path, &none) };
            assert_eq!(priorities.of(&post, has_plan), Priority::Normal, "{path} {plan}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_names_the_priority() {
        let header = Some(HeaderName::from_static("x-priority"));
        let rules = vec![rule(Priority::Critical, "/{*rest}", &[])];
        let priorities = Priorities { header, rules, ..Priorities::default() };
        for (values, is_proxied, expected) in [
            (&["critical"][..], true, Priority::Critical),
            (&[" normal "], true, Priority::Normal),
            (&["background"], true, Priority::Background),
            (&["background"], false, Priority::Critical),
            (&[], true, Priority::Critical),
            (&["Critical"], true, Priority::Background),
            (&["urgent"], true, Priority::Background),
            (&["critical", "critical"], true, Priority::Background),
        ] {
            let headers: FieldBuf = values.iter().map(|value| ("X-Priority", value)).collect();
            let facts = Facts { is_proxied, ..facts("a", "/a", &headers) };
            assert_eq!(priorities.of(&facts, |_| false), expected, "{values:?} {is_proxied}");
        }
    }
}
