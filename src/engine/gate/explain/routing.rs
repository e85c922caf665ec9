//! The route and the upstream of a request.

use std::sync::Arc;

use crate::engine::policy::Facts;
use crate::engine::policy::route::Routes;

/// The routes and the upstreams of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// The routes; `None` if all requests go to the first upstream.
    pub routes: Option<Arc<Routes>>,
    /// The names of the upstreams; `None` for one without a name.
    pub upstreams: Vec<Option<Box<str>>>,
}

/// The route of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteExplanation {
    /// The position of the route in the configuration, from 1; `None` without routes.
    pub number: Option<usize>,
    /// The patterns of its paths; empty if it takes all paths.
    pub paths: Vec<String>,
    /// The name of the upstream; `None` if it has no name.
    pub upstream: Option<Box<str>>,
}

impl Routing {
    /// The route of a request, and the identities of which it needs one; `None` if no route takes it.
    ///
    /// A configuration without upstreams only answers checks, so nothing is missing there.
    pub(super) fn find(&self, facts: &Facts<'_>) -> Option<(RouteExplanation, &[usize])> {
        let Some(routes) = &self.routes else {
            let upstream = self.upstreams.first().cloned().flatten();
            return Some((RouteExplanation { number: None, paths: Vec::new(), upstream }, &[]));
        };
        let (index, route) = routes.find_with_index(facts)?;
        let paths = route.matches.paths.iter().map(|path| path.as_str().to_owned()).collect();
        let upstream = self.upstreams.get(route.upstream).cloned().flatten();
        Some((RouteExplanation { number: Some(index + 1), paths, upstream }, &route.require))
    }
}
