//! `weir top`: limits, verdicts, headroom, the most refused keys or networks, and the fleet of a running Weir.
//!
//! On a terminal it is a screen that is drawn anew. Elsewhere, and with `--once`, it is plain tables or JSON.

mod screen;

mod figures;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::{Args, value_parser};

use super::target::Target;
use crate::cli::output::{Exit, failed, say};
use figures::Figures;
use view::{Ranked, View};

#[derive(Debug, Args)]
pub(in crate::cli) struct TopArgs {
    /// Print tables once, also on a terminal.
    #[arg(long)]
    once: bool,
    /// Rank keys, or the networks of clients: IPv4 by /24, IPv6 by /48.
    #[arg(long, value_enum, default_value_t)]
    by: Ranked,
    /// Seconds between two questions to Weir.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = value_parser!(u64).range(1..=3600))]
    every: u64,
    #[command(flatten)]
    target: Target,
}

pub(in crate::cli) fn top(TopArgs { once, by, every, target }: TopArgs) -> Exit {
    let mut view = View::ranking(by);
    if !once && !target.json && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return screen::run(target, view, Duration::from_secs(every));
    }
    let figures = Figures::read(&target, &target.address()?).map_err(failed)?;
    if target.json {
        return say(&format_args!("{:#}", figures.json()));
    }
    view.show(Ok(figures));
    say(&view.plain())
}
