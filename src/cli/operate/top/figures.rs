//! The figures of one moment, as the admin API returns them.

use serde_json::{Value, json};

use super::super::target::Target;
use crate::admin::{HistoryBody, UpstreamsBody};
use crate::cli::ask::AdminAddress;

/// Samples of the chart: ten minutes.
const SAMPLES: usize = 120;
/// The keys of each limit.
const KEYS: usize = 10;

/// The figures of one moment.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) history: HistoryBody,
    /// The answer of `/v1/top`.
    pub(super) top: Value,
    /// The answer of `/v1/fleet`; none without a fleet.
    pub(super) fleet: Option<Value>,
    pub(super) upstreams: UpstreamsBody,
}

impl Figures {
    /// Reads the figures of the Weir at `admin`.
    ///
    /// # Errors
    /// The problem as a message for the operator.
    pub(super) fn read(target: &Target, admin: &AdminAddress) -> Result<Self, String> {
        let get = |path: &str| target.get(admin, path);
        let needed = |path: &str| get(path)?.ok_or_else(|| format!("{admin} has no {path}"));
        let history = serde_json::from_value(needed(&format!("/v1/history?n={SAMPLES}"))?);
        let history = history.map_err(|error| format!("{admin}: the history is not as expected: {error}"))?;
        let upstreams = serde_json::from_value(needed("/v1/upstreams")?);
        let upstreams = upstreams.map_err(|error| format!("{admin}: the upstreams are not as expected: {error}"))?;
        Ok(Self { history, top: needed(&format!("/v1/top?n={KEYS}"))?, fleet: get("/v1/fleet")?, upstreams })
    }

    pub(super) fn json(&self) -> Value {
        json!({ "history": self.history, "top": self.top, "fleet": self.fleet, "upstreams": self.upstreams })
    }
}
