//! Reports: what each pair shares and what the model predicts, as text and JSON.

use std::fmt::Write as _;

use report::sharing::{Pair, SharedLines, Sharing};

use crate::model::{CPUS, Demand, Machine};
use crate::target::COUNTED;
use crate::verdict::{Shared, Verdict};

/// The report of all verdicts.
pub fn report(verdicts: &[Verdict], machine: &Machine) -> Sharing {
    let pair = |verdict: &Verdict| {
        let demand = Demand::of(verdict);
        Pair {
            name: verdict.pair.clone(),
            instructions: verdict.instructions,
            trace_lines: verdict.trace_lines,
            shared: verdict.shared.iter().map(shared).collect(),
            predicted: CPUS.iter().map(|cpus| (*cpus, demand.throughput(machine, *cpus))).collect(),
            complaints: verdict.complaints(),
        }
    };
    let versions = [(std::path::PathBuf::from("valgrind"), "--version")];
    Sharing {
        machine: Some(report::machine::Machine::here(&versions)),
        transfer_ns: machine.transfer_ns,
        instructions_per_ns: machine.instructions_per_ns,
        pairs: verdicts.iter().map(pair).collect(),
    }
}

fn shared(shared: &Shared) -> SharedLines {
    SharedLines {
        writers: shared.writers.iter().cloned().collect(),
        readers: shared.readers.iter().cloned().collect(),
        lines: shared.lines,
        transfers: shared.transfers,
        rounds: shared.rounds as f64 / COUNTED as f64,
        reasons: shared.reasons.iter().map(|reason| format!("{reason:?}")).collect(),
    }
}

/// A table: a line for each pair, with its shared lines below it.
pub fn text(report: &Sharing) -> String {
    let mut text = format!("{}. Rates are in thousands.\n\n", report.assumptions());
    let cpus: String = CPUS.iter().map(|cpus| format!("{cpus:>9}")).collect();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:64}{:>6}{:>10}{cpus}", "pair", "lines", "transfers");
    for pair in &report.pairs {
        let (name, lines, transfers) = (&pair.name, pair.lines(), pair.transfers());
        let rates: String = pair.predicted.iter().map(|(_, rate)| format!("{:>9.0}", rate / 1e3)).collect();
        let _ = writeln!(text, "{name:64}{lines:>6.1}{transfers:>10.1}{rates}");
        for shared in &pair.shared {
            let (writers, reasons) = (shared.writers.join(", "), shared.reasons.join(", "));
            let _ = writeln!(text, "    {:5.1} lines, {reasons}: {writers}", shared.lines);
        }
    }
    text
}
