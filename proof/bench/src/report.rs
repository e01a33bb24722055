//! Results as text and JSON.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::benches::Comparison;
use crate::machine::Machine;
use crate::measure::{Usage, median, seconds};
use crate::table::Table;

/// All results.
#[derive(Serialize)]
pub struct Report {
    /// Version of the JSON format.
    version: u32,
    /// Whether this is a smoke test, whose numbers mean nothing.
    smoke: bool,
    machine: Machine,
    comparisons: Vec<Comparison>,
    /// Results of everything but commands.
    rates: Table,
}

impl Report {
    /// An empty report.
    pub fn new(machine: Machine, smoke: bool) -> Self {
        Self { version: 2, smoke, machine, comparisons: Vec::new(), rates: Table::default() }
    }

    /// Prints the machine and the versions.
    pub fn print_head(&self) {
        let Machine { processor, cores, memory_bytes, kernel, system, load, commit, profile, .. } =
            &self.machine;
        println!("machine   {processor}, {cores} cores, {} MiB of memory", memory_bytes >> 20);
        println!("system    {system}, {kernel}, load {load} before the first run");
        println!("commit    {commit}, {profile}");
        for (program, version) in &self.machine.versions {
            println!("program   {program}: {version}");
        }
        if *load > 0.5 {
            println!("WARNING   the machine is busy: times are too long, and ratios less accurate");
        }
        if self.smoke || cfg!(debug_assertions) {
            println!("WARNING   small images or an unoptimised build: the numbers mean nothing");
        }
    }

    /// Prints and adds comparisons.
    pub fn add(&mut self, comparisons: Vec<Comparison>) {
        for comparison in &comparisons {
            print(comparison, self.smoke);
        }
        self.comparisons.extend(comparisons);
    }

    /// The table, which prints quantities that are added.
    pub fn rates(&mut self) -> &mut Table {
        &mut self.rates
    }

    /// Explains the columns.
    pub fn print_foot(&self) {
        if !self.comparisons.is_empty() {
            Self::print_foot_of_comparisons();
        }
        self.rates.print_foot();
    }

    fn print_foot_of_comparisons() {
        println!();
        println!(
            "Each number is the median of the runs, with the lowest and the highest in brackets. Xebec and its"
        );
        println!(
            "peer ran alternately on the same image in the page cache. `ratio` is Xebec's median divided by"
        );
        println!("the peer's: below 1 means that Xebec needs less. `target` is the highest accepted ratio.");
    }

    /// Writes everything as JSON.
    pub fn write_json(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(file, text + "\n").with_context(|| file.display().to_string())
    }
}

/// One measured quantity.
struct Quantity<'a> {
    name: &'a str,
    of: fn(&Usage) -> f64,
    show: fn(f64) -> String,
    target: Option<f64>,
}

fn print(comparison: &Comparison, smoke: bool) {
    let quantities = [
        Quantity {
            name: "wall time",
            of: |usage| usage.wall_s,
            show: seconds,
            target: comparison.wall_target,
        },
        Quantity {
            name: "processor time",
            of: |usage| usage.user_s + usage.system_s,
            show: seconds,
            target: None,
        },
        Quantity {
            name: "peak memory",
            of: |usage| usage.rss_peak_bytes as f64,
            show: |bytes| format!("{:.1} MiB", bytes / f64::from(1 << 20)),
            target: comparison.rss_target,
        },
    ];
    println!();
    println!("{} (runs of each: {})", comparison.task, comparison.xebec.len());
    println!("  Xebec: {}", comparison.xebec_command);
    println!("  peer:  {}", comparison.peer_command);
    println!("  {:<15} {:>32} {:>32} {:>7}  target", "", "Xebec", "peer", "ratio");
    for quantity in quantities {
        let ratio = middle(&comparison.xebec, quantity.of) / middle(&comparison.peer, quantity.of);
        let target = match quantity.target.filter(|_| !smoke) {
            Some(target) if ratio <= target => format!("<= {target}: reached"),
            Some(target) => format!("<= {target}: MISSED"),
            None => "-".into(),
        };
        let (ours, theirs) = (spread(&comparison.xebec, &quantity), spread(&comparison.peer, &quantity));
        println!("  {:<15} {ours:>32} {theirs:>32} {ratio:>7.3}  {target}", quantity.name);
    }
}

fn middle(runs: &[Usage], of: fn(&Usage) -> f64) -> f64 {
    median(runs.iter().map(of))
}

fn spread(runs: &[Usage], quantity: &Quantity<'_>) -> String {
    let numbers = || runs.iter().map(quantity.of);
    let (low, high) = (numbers().fold(f64::INFINITY, f64::min), numbers().fold(0.0, f64::max));
    format!(
        "{} [{} - {}]",
        (quantity.show)(middle(runs, quantity.of)),
        (quantity.show)(low),
        (quantity.show)(high)
    )
}
