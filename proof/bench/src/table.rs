//! Rows of results.

use serde::Serialize;

use crate::measure::median;

/// One measurement, of two sides or two settings.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Description of the task.
    pub task: String,
    /// Unit of the numbers, such as `files/s`.
    pub unit: &'static str,
    /// Name of the first column.
    pub ours_is: &'static str,
    /// Name of the second column.
    pub other_is: &'static str,
    /// Values of the first column, in order.
    pub ours: Vec<f64>,
    /// Values of the second column, each measured after the first's; empty if there is only one.
    pub other: Vec<f64>,
    /// Target.
    pub target: Option<Target>,
}

/// A target.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Target {
    /// Minimum of the first column's median divided by the second's.
    RatioAtLeast(f64),
    /// Maximum of that ratio.
    RatioAtMost(f64),
    /// Minimum of the first column's median.
    AtLeast(f64),
    /// Maximum of the first column's median.
    AtMost(f64),
}

/// A part of a benchmark, which adds rows as soon as they are measured.
pub type Experiment<S> = fn(&S, &mut Table) -> anyhow::Result<()>;

/// The rows of a report.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    /// Rows in the order of measurement.
    pub rows: Vec<Row>,
}

impl Table {
    /// Runs the parts whose names contain `only`.
    pub fn run<S>(&mut self, scale: &S, parts: &[(&str, Experiment<S>)], only: &str) -> anyhow::Result<()> {
        parts.iter().filter(|(name, _)| name.contains(only)).try_for_each(|(_, run)| run(scale, self))
    }

    /// Adds a row and prints it.
    pub fn add(&mut self, row: Row) {
        if self.rows.is_empty() {
            println!();
            println!(
                "{:<62} {:>22} {:>22} {:>7}  target",
                "task [unit]", "first: median", "second: median", "ratio"
            );
        }
        row.print();
        self.rows.push(row);
    }

    /// Explains the columns.
    pub fn print_foot(&self) {
        if self.rows.is_empty() {
            return;
        }
        println!();
        println!(
            "`first` and `second` are named under each task. Each number is the median of the runs, which the two"
        );
        println!("made alternately. `ratio` is first divided by second.");
    }
}

impl Row {
    /// First median divided by the second.
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
        let reached = |is_reached: bool| if is_reached { "reached" } else { "MISSED" };
        let (ours, ratio) = (middle(&self.ours), ratio.unwrap_or(f64::NAN));
        match self.target {
            None => "-".into(),
            Some(Target::RatioAtLeast(min)) => format!("ratio >= {min:.3}: {}", reached(ratio >= min)),
            Some(Target::RatioAtMost(max)) => format!("ratio <= {max:.3}: {}", reached(ratio <= max)),
            Some(Target::AtLeast(min)) => format!(">= {}: {}", number(min), reached(ours >= min)),
            Some(Target::AtMost(max)) => format!("<= {}: {}", number(max), reached(ours <= max)),
        }
    }
}

fn middle(values: &[f64]) -> f64 {
    median(values.iter().copied())
}

/// Formats a number with about four significant digits.
fn number(value: f64) -> String {
    match value {
        value if value >= 100_000.0 => format!("{:.0} k", value / 1000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.3}"),
    }
}
