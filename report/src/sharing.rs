//! What operations that commute share, as `xebec-sharing --json` found out, and what a model predicts for many CPUs.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::number::quantity;
use crate::tables::{Cell, Table};

/// The result of a trace of pairs of operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Machine and commit of the trace. The report that shows it may be made on another machine, by another build.
    /// None in traces that were made before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Nanoseconds of a transfer of a cache line in the model.
    pub transfer_ns: f64,
    /// Instructions per nanosecond in the model.
    pub instructions_per_ns: f64,
    /// All pairs.
    pub pairs: Vec<Pair>,
}

/// Two operations that commute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The operations, and where they work.
    #[serde(rename = "pair")]
    pub name: String,
    /// Instructions of an operation of each side.
    pub instructions: [f64; 2],
    /// Lines of the trace, with those of warm rounds.
    pub trace_lines: u64,
    /// The cache lines that both touch, and at least one of them writes.
    pub shared: Vec<SharedLines>,
    /// Predicted operations per second by number of CPUs.
    pub predicted: Vec<(u32, f64)>,
    /// Lines without a reason, and reasons without lines.
    pub complaints: Vec<String>,
}

/// Shared lines that are written by the same function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedLines {
    /// The functions that write them.
    pub writers: Vec<String>,
    /// The functions that only read them.
    pub readers: Vec<String>,
    /// Shared lines in a round.
    pub lines: f64,
    /// Transfers for each operation.
    pub transfers: f64,
    /// Share of the rounds in which there was a transfer.
    pub rounds: f64,
    /// Names of the reasons.
    pub reasons: Vec<String>,
}

impl Pair {
    /// Shared lines in a round.
    pub fn lines(&self) -> f64 {
        // The sum of no numbers is -0.
        self.shared.iter().fold(0.0, |sum, shared| sum + shared.lines)
    }

    /// Transfers of lines for each operation.
    pub fn transfers(&self) -> f64 {
        self.shared.iter().fold(0.0, |sum, shared| sum + shared.transfers)
    }

    /// Why lines are shared, in words; empty if none is.
    pub fn reasons(&self) -> String {
        let mut reasons: Vec<String> =
            self.shared.iter().flat_map(|shared| &shared.reasons).map(|name| in_words(name)).collect();
        reasons.sort_unstable();
        reasons.dedup();
        reasons.join(", ")
    }

    /// Predicted operations per second of a number of CPUs.
    pub fn predicted_by(&self, cpus: u32) -> Option<f64> {
        self.predicted.iter().find(|(known, _)| *known == cpus).map(|(_, rate)| *rate)
    }
}

/// Numbers of CPUs of the predictions in a table.
const CPUS: [u32; 4] = [1, 4, 16, 256];

impl Sharing {
    /// The pairs that share lines, and those that share none.
    pub fn tables(&self) -> [Table; 2] {
        let (alone, sharing): (Vec<&Pair>, Vec<&Pair>) =
            self.pairs.iter().partition(|pair| pair.shared.is_empty());
        let cpus = || CPUS.map(|cpus| if cpus == 1 { "1 CPU".into() } else { format!("{cpus} CPUs") });
        let rates = |pair: &Pair| {
            CPUS.map(|cpus| {
                pair.predicted_by(cpus)
                    .map_or_else(|| Cell::text("–"), |rate| Cell::number(rate, quantity(rate, "/s")))
            })
        };
        let mut head = vec!["pair".to_string(), "lines".into(), "transfers".into()];
        head.extend(cpus());
        head.push("reasons".into());
        let row = |pair: &&Pair| {
            let mut row = vec![Cell::text(&pair.name)];
            row.extend(
                [pair.lines(), pair.transfers()].map(|count| Cell::number(count, format!("{count:.1}"))),
            );
            row.extend(rates(pair));
            row.push(Cell::text(pair.reasons()));
            row
        };
        let title = format!("{} pairs share cache lines", sharing.len());
        let of_sharing = Table { title, head, rows: sharing.iter().map(row).collect() };
        let mut head = vec!["pair".to_string()];
        head.extend(cpus());
        let row = |pair: &&Pair| std::iter::once(Cell::text(&pair.name)).chain(rates(pair)).collect();
        let title = format!("{} pairs share none", alone.len());
        [of_sharing, Table { title, head, rows: alone.iter().map(row).collect() }]
    }

    /// What was traced, and what the predictions assume.
    pub fn assumptions(&self) -> String {
        let traced = self.machine.as_ref().map_or_else(String::new, |machine| {
            let Machine { date, commit, processor, .. } = machine;
            format!("Traced {date}, commit {commit}, {processor}. ")
        });
        format!(
            "{traced}Predicted operations per second: {} ns for a transfer of a line, {} instructions per ns",
            self.transfer_ns, self.instructions_per_ns
        )
    }
}

/// `log order` for `LogOrder`.
fn in_words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
