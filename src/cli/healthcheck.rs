//! `weir healthcheck`.

use std::process::ExitCode;
use std::time::Duration;

use http::Request;
use serde_json::Value;

use super::ask::{AdminAddress, Credentials, ask, refusal};
use super::output::fail;
use crate::admin::HEALTHY;

/// The bound on the time of the check; health checks have longer intervals.
const AT_MOST: Duration = Duration::from_secs(3);

pub(super) fn healthcheck(admin: Option<AdminAddress>, credentials: &Credentials) -> ExitCode {
    let admin = match admin.map_or_else(AdminAddress::of_environment, Ok) {
        Ok(admin) => admin,
        Err(error) => return fail(&error),
    };
    match ask(&admin, credentials, Request::get("/healthz"), Vec::new(), AT_MOST) {
        Ok((status, body)) if status.is_success() && body == HEALTHY => ExitCode::SUCCESS,
        Ok((status, _)) if status.is_success() => {
            fail(&format!("{admin} answers {status}, but not as Weir does; `--admin` names the admin listener of Weir"))
        }
        Ok((status, _)) => fail(&refusal(&admin, status, &Value::Null)),
        Err(error) => fail(&error),
    }
}
