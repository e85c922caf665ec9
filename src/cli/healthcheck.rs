//! `weir healthcheck`.

use std::process::ExitCode;
use std::time::Duration;

use http::Request;
use serde_json::Value;

use super::ask::{AdminAddress, Credentials, ask, refusal};
use super::output::{Exit, failed};
use crate::admin::HEALTHY;

/// The bound on the time of the check; health checks have longer intervals.
const AT_MOST: Duration = Duration::from_secs(3);

pub(super) fn healthcheck(admin: Option<AdminAddress>, credentials: &Credentials) -> Exit {
    let admin = admin.map_or_else(AdminAddress::of_environment, Ok).map_err(failed)?;
    let (status, body) = ask(&admin, credentials, Request::get("/healthz"), Vec::new(), AT_MOST).map_err(failed)?;
    if !status.is_success() {
        return Err(failed(refusal(&admin, status, &Value::Null)));
    }
    if body == HEALTHY {
        return Ok(ExitCode::SUCCESS);
    }
    Err(failed(format!("{admin} answers {status}, but not as Weir does; `--admin` names the admin listener of Weir")))
}
