//! `[fleet]`, and the strategy of each limit: how replicas share limits.

use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::policy::Strategy;

/// The words of `strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StrategyWord {
    Local,
    Split,
}

const STRATEGY_WORDS: [(&str, StrategyWord); 2] = [("local", StrategyWord::Local), ("split", StrategyWord::Split)];

/// A compiled `[fleet]`.
pub(super) struct Fleet {
    strategy: Option<StrategyWord>,
    replicas: Option<u64>,
}

/// Reads `[fleet]`. Without it each replica decides alone.
pub(super) fn fleet(table: &Table<'_>) -> Fleet {
    if !table.is_present() {
        return Fleet { strategy: Some(StrategyWord::Local), replicas: None };
    }
    let strategy = table.choice("strategy", &STRATEGY_WORDS);
    let replicas = table.count("replicas").map(Located::into_inner);
    if strategy == Some(StrategyWord::Split) && !table.has("replicas") {
        note_missing_replicas(table);
    }
    Fleet { strategy, replicas }
}

impl Fleet {
    /// The strategy of the limit `table`; `None` if it cannot be read.
    pub(super) fn strategy(&self, table: &Table<'_>) -> Option<Strategy> {
        let word = if table.has("strategy") { table.choice("strategy", &STRATEGY_WORDS) } else { self.strategy };
        match (word?, self.replicas) {
            (StrategyWord::Local, _) => Some(Strategy::Local),
            (StrategyWord::Split, Some(replicas)) => Some(Strategy::Split(replicas)),
            (StrategyWord::Split, None) => {
                if table.has("strategy") && self.strategy != Some(StrategyWord::Split) {
                    note_missing_replicas(table);
                }
                None
            }
        }
    }
}

/// Notes that `strategy` of `table` needs a number of replicas.
fn note_missing_replicas(table: &Table<'_>) {
    let Some(value) = table.get("strategy") else { return };
    let fault = Fault::new("`split` needs the number of replicas");
    let help = "add `replicas = 3` to `[fleet]`: each replica gets an equal share of the limit";
    table.fault("strategy", value.span(), Fault { absence: true, ..fault.help(Some(help.to_owned())) });
}
