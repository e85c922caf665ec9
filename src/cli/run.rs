//! `weir run`.

use std::path::Path;
use std::process::ExitCode;

use super::output::{fail, invalid};
use crate::app::App;
use crate::config;
use crate::telemetry::start_logs;

pub(super) fn run(file: &Path) -> ExitCode {
    let config = match config::load(file) {
        Ok(config) => config,
        Err(diagnostics) => return invalid(&diagnostics),
    };
    let log = config.log.clone();
    let app = match App::new(config, Some(file.to_owned())) {
        Ok(app) => app.succeeded_by(std::env::args_os()),
        Err(error) => return fail(&error),
    };
    let logs = match start_logs(&log) {
        Ok(logs) => logs,
        Err(error) => return fail(&error),
    };
    match app.run(Some(&logs), std::future::ready(())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}
