//! `weir healthcheck`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::Request;

use super::ask::{AdminAddress, Credentials, ask, body_of};
use super::operate::address_in;
use super::output::{Exit, failed};

/// The bound on the time of the check; health checks have longer intervals.
const AT_MOST: Duration = Duration::from_secs(3);

pub(super) fn healthcheck(admin: Option<AdminAddress>, config: Option<&Path>, credentials: &Credentials) -> Exit {
    let admin = admin.map_or_else(|| address_in(config), Ok)?;
    let answer = ask(&admin, credentials, Request::get("/healthz"), Vec::new(), AT_MOST).map_err(failed)?;
    body_of(&admin, &answer).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
