//! `weir run`.

use std::process::ExitCode;

use super::output::{announce_large, fail, unusable};
use crate::app::remote::{self, ConfigAddress, FeedOptions, RemoteOptions};
use crate::app::{App, ignore_signals};
use crate::base::telemetry::start_logs;
use crate::config::Origin;

pub(super) fn run(address: ConfigAddress, options: &RemoteOptions, feed: &FeedOptions) -> ExitCode {
    if let Err(error) = ignore_signals() {
        return fail(&error);
    }
    if let ConfigAddress::File(path) = &address {
        announce_large(&Origin::from(path.as_path()));
    }
    let (config, feed) = match remote::open(address, options, feed) {
        Ok(opened) => opened,
        Err(error) => return unusable(&error),
    };
    let log = config.log.clone();
    let app = match App::new(config, Some(feed)) {
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
