//! What is printed and kept: one row for each thing that is measured.

use serde::Serialize;

use crate::measure::median;

/// One thing that is measured, on both sides or in two ways.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What is done, in words.
    pub task: String,
    /// What the numbers count: `files/s`.
    pub unit: &'static str,
    /// What the first column is.
    pub ours_is: &'static str,
    /// What the second column is.
    pub other_is: &'static str,
    /// Measured values, in the order in which they were taken.
    pub ours: Vec<f64>,
    /// The other's, each right after ours; empty where only a value is asked for.
    pub other: Vec<f64>,
    /// What is to be reached.
    pub target: Option<Target>,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Target {
    /// The first column's median through the second's is at least this.
    RatioAtLeast(f64),
    /// At most this.
    RatioAtMost(f64),
    /// The first column's median is at least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// Something that adds rows, each as soon as it is known.
pub type Part<S> = fn(&S, &mut Table) -> anyhow::Result<()>;

/// All rows.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
}

impl Table {
    /// Runs the parts that have `only` in their names.
    pub fn run<S>(&mut self, scale: &S, parts: &[(&str, Part<S>)], only: &str) -> anyhow::Result<()> {
        parts.iter().filter(|(name, _)| name.contains(only)).try_for_each(|(_, run)| run(scale, self))
    }

    /// Adds a row and prints it.
    pub fn add(&mut self, row: Row) {
        if self.rows.is_empty() {
            println!();
            println!(
                "{:<62} {:>22} {:>22} {:>7}  target",
                "task [what the numbers count]", "first: median", "second: median", "ratio"
            );
        }
        row.print();
        self.rows.push(row);
    }

    /// Says what the columns mean.
    pub fn print_foot(&self) {
        if self.rows.is_empty() {
            return;
        }
        println!();
        println!(
            "`first` and `second` are named under each task. Each number is the median of the turns, which the two"
        );
        println!("took alternately. `ratio` is first through second.");
    }
}

impl Row {
    /// First through second.
    pub fn ratio(&self) -> Option<f64> {
        (!self.other.is_empty()).then(|| middle(&self.ours) / middle(&self.other))
    }

    fn print(&self) {
        let ratio = self.ratio();
        let shown = ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        let other = if self.other.is_empty() { "-".into() } else { number(middle(&self.other)) };
        let ours = number(middle(&self.ours));
        let name = format!("{} [{}]", self.task, self.unit);
        println!("{name:<62} {ours:>22} {other:>22} {shown:>7}  {}", self.verdict(ratio));
        let low_high = |values: &[f64]| {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(0.0, f64::max);
            if values.is_empty() { String::new() } else { format!("{} - {}", number(low), number(high)) }
        };
        println!("    first: {} ({})", self.ours_is, low_high(&self.ours));
        if !self.other.is_empty() {
            println!("    second: {} ({})", self.other_is, low_high(&self.other));
        }
    }

    fn verdict(&self, ratio: Option<f64>) -> String {
        let reached = |well: bool| if well { "reached" } else { "MISSED" };
        let (ours, ratio) = (middle(&self.ours), ratio.unwrap_or(f64::NAN));
        match self.target {
            None => "-".into(),
            Some(Target::RatioAtLeast(least)) => format!("ratio >= {least:.3}: {}", reached(ratio >= least)),
            Some(Target::RatioAtMost(most)) => format!("ratio <= {most:.3}: {}", reached(ratio <= most)),
            Some(Target::AtLeast(least)) => format!(">= {}: {}", number(least), reached(ours >= least)),
            Some(Target::AtMost(most)) => format!("<= {}: {}", number(most), reached(ours <= most)),
        }
    }
}

fn middle(values: &[f64]) -> f64 {
    median(values.iter().copied())
}

/// Four digits that count.
fn number(value: f64) -> String {
    match value {
        value if value >= 100_000.0 => format!("{:.0} k", value / 1000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.3}"),
    }
}
