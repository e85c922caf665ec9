//! `weir healthcheck`.

use std::process::ExitCode;
use std::time::Duration;

use http::Request;

use super::ask::{AdminAddress, Credentials, ask};
use super::output::fail;

/// The bound on the time of the check; health checks have longer intervals.
const AT_MOST: Duration = Duration::from_secs(3);

pub(super) fn healthcheck(admin: &AdminAddress, credentials: &Credentials) -> ExitCode {
    match ask(admin, credentials, Request::get("/healthz"), Vec::new(), AT_MOST) {
        Ok((status, _)) if status.is_success() => ExitCode::SUCCESS,
        Ok((status, _)) => fail(&format_args!("{admin} answers {status}")),
        Err(error) => fail(&error),
    }
}
