//! `weir healthcheck`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::Request;

use super::ask::{AdminAddress, Credentials, ask, not_of_weir, refusal};
use super::operate::address_in;
use super::output::{Exit, failed};
use crate::admin::HEALTHY;

/// The bound on the time of the check; health checks have longer intervals.
const AT_MOST: Duration = Duration::from_secs(3);

pub(super) fn healthcheck(admin: Option<AdminAddress>, config: Option<&Path>, credentials: &Credentials) -> Exit {
    let admin = admin.map_or_else(|| address_in(config), Ok)?;
    let answer = ask(&admin, credentials, Request::get("/healthz"), Vec::new(), AT_MOST).map_err(failed)?;
    if !answer.status().is_success() {
        return Err(failed(refusal(&admin, &answer)));
    }
    if answer.body() == HEALTHY { Ok(ExitCode::SUCCESS) } else { Err(failed(not_of_weir(&admin, &answer))) }
}
