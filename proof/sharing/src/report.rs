//! Reports: what each pair shares and what the model predicts, as text and JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::model::{CPUS, Demand, Machine};
use crate::target::COUNTED;
use crate::verdict::{Shared, Verdict};

/// A report in JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Nanoseconds of a transfer in the model.
    transfer_ns: f64,
    /// Instructions per nanosecond in the model.
    instructions_per_ns: f64,
    /// All pairs.
    pairs: Vec<PairReport>,
}

#[derive(Debug, Serialize)]
struct PairReport {
    pair: String,
    /// Instructions of an operation of each side.
    instructions: [f64; 2],
    /// Lines of the trace, with those of warm rounds.
    trace_lines: u64,
    shared: Vec<SharedReport>,
    /// Predicted operations per second by number of CPUs.
    predicted: Vec<(u32, f64)>,
    complaints: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SharedReport {
    writers: Vec<String>,
    readers: Vec<String>,
    /// Shared lines in a round.
    lines: f64,
    /// Transfers for each operation.
    transfers: f64,
    /// Share of the rounds in which there was a transfer.
    rounds: f64,
    reasons: Vec<String>,
}

impl Report {
    /// The report of all verdicts.
    pub fn new(verdicts: &[Verdict], machine: &Machine) -> Self {
        let pair = |verdict: &Verdict| {
            let demand = Demand::of(verdict);
            PairReport {
                pair: verdict.pair.clone(),
                instructions: verdict.instructions,
                trace_lines: verdict.trace_lines,
                shared: verdict.shared.iter().map(SharedReport::new).collect(),
                predicted: CPUS.iter().map(|cpus| (*cpus, demand.throughput(machine, *cpus))).collect(),
                complaints: verdict.complaints(),
            }
        };
        Self {
            transfer_ns: machine.transfer_ns,
            instructions_per_ns: machine.instructions_per_ns,
            pairs: verdicts.iter().map(pair).collect(),
        }
    }

    /// A table: a line for each pair, with its shared lines below it.
    pub fn text(&self) -> String {
        let mut text = format!(
            "predicted thousand operations per second: {} ns for a transfer, {} instructions per ns\n\n",
            self.transfer_ns, self.instructions_per_ns
        );
        let cpus: String = CPUS.iter().map(|cpus| format!("{cpus:>9}")).collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:64}{:>6}{:>10}{cpus}", "pair", "lines", "transfers");
        for pair in &self.pairs {
            // The sum of no numbers is -0.
            let sum =
                |of: fn(&SharedReport) -> f64| pair.shared.iter().map(of).fold(0.0, |sum, one| sum + one);
            let (lines, transfers) = (sum(|shared| shared.lines), sum(|shared| shared.transfers));
            let rates: String =
                pair.predicted.iter().map(|(_, rate)| format!("{:>9.0}", rate / 1e3)).collect();
            let _ = writeln!(text, "{:64}{lines:>6.1}{transfers:>10.1}{rates}", pair.pair);
            for shared in &pair.shared {
                let (writers, reasons) = (shared.writers.join(", "), shared.reasons.join(", "));
                let _ = writeln!(text, "    {:5.1} lines, {reasons}: {writers}", shared.lines);
            }
        }
        text
    }
}

impl SharedReport {
    fn new(shared: &Shared) -> Self {
        Self {
            writers: shared.writers.iter().cloned().collect(),
            readers: shared.readers.iter().cloned().collect(),
            lines: shared.lines,
            transfers: shared.transfers,
            rounds: shared.rounds as f64 / COUNTED as f64,
            reasons: shared.reasons.iter().map(|reason| format!("{reason:?}")).collect(),
        }
    }
}
