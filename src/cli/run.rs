//! `weir run`.

use std::process::ExitCode;

use super::output::{Exit, announce_large, failed, unusable};
use crate::app::remote::{self, ConfigAddress, FeedOptions, RemoteOptions};
use crate::app::{App, ignore_signals};
use crate::base::telemetry::start_logs;
use crate::config::Origin;

pub(super) fn run(address: ConfigAddress, options: &RemoteOptions, feed: &FeedOptions) -> Exit {
    ignore_signals().map_err(failed)?;
    if let ConfigAddress::File(path) = &address {
        announce_large(&Origin::from(path.as_path()));
    }
    let (config, feed) = remote::open(address, options, feed).map_err(|error| unusable(&error))?;
    let log = config.log.clone();
    let app = App::new(config, Some(feed)).map_err(failed)?.succeeded_by(std::env::args_os());
    let logs = start_logs(&log).map_err(failed)?;
    app.run(Some(&logs), std::future::ready(())).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
