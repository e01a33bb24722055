//! Two reports beside each other: what became better or worse.

use std::fmt::Write as _;

use crate::record::Measurement;

use super::number::{quantity, ratio};
use super::tables::{Cell, Table, Tone, threads_in_words};
use super::tasks::is_within_spread;
use super::{Report, text};

/// Runs that both measurements need before a difference counts. With three each, runs of equal subjects are apart in
/// one of ten cases; with five, in one of 126.
const RUNS_MIN: usize = 3;

/// The differences of two reports.
#[derive(Debug, Default)]
pub struct Changes {
    /// Why the two may not be comparable.
    pub differences: Vec<String>,
    /// Measurements that both have: those beyond the spread first, of those the worse ones first.
    pub changes: Vec<Change>,
    /// Number of measurements that only the first report has.
    pub only_before: usize,
    /// Number of measurements that only the second report has.
    pub only_after: usize,
}

/// A measurement of both reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Name of the experiment.
    pub experiment: String,
    /// What was measured, with the runs of the first report.
    pub before: Measurement,
    /// The same of the second report.
    pub after: Measurement,
}

impl Change {
    /// The second median divided by the first.
    pub fn ratio(&self) -> f64 {
        self.after.median() / self.before.median()
    }

    /// Whether no run of one report is within the spread of the other, with enough runs to tell.
    pub fn is_beyond_spread(&self) -> bool {
        let has_runs = |of: &Measurement| of.runs.iter().filter(|run| run.is_finite()).count() >= RUNS_MIN;
        has_runs(&self.before) && has_runs(&self.after) && !is_within_spread(&self.before, &self.after)
    }

    /// Above 1 if the second report is worse; NaN if there is no ratio.
    fn loss(&self) -> f64 {
        if self.before.less_is_better { self.ratio() } else { 1.0 / self.ratio() }
    }

    /// Whether the second report is worse.
    pub fn is_worse(&self) -> bool {
        self.loss() > 1.0
    }

    fn result(&self) -> Cell {
        let direction = match self.loss() {
            loss if loss > 1.0 => "worse",
            loss if loss < 1.0 => "better",
            loss if loss.is_nan() => return Cell::text("not comparable"),
            _ => "equal",
        };
        match (self.is_beyond_spread(), direction) {
            (true, "worse") => Cell::text("worse").with_tone(Tone::Bad),
            (true, _) | (false, "equal") => Cell::text(direction),
            (false, _) => Cell::text(format!("{direction}, within the spread or too few runs")),
        }
    }
}

/// Compares two reports.
pub fn compare(before: &Report, after: &Report) -> Changes {
    let mut changes = Changes { differences: differences(before, after), ..Changes::default() };
    let (old, new) = (measurements(before), measurements(after));
    for (experiment, measurement) in &old {
        match new.iter().find(|other| is_same((experiment, measurement), (other.0, other.1))) {
            Some((_, after)) => changes.changes.push(Change {
                experiment: (*experiment).into(),
                before: (*measurement).clone(),
                after: (*after).clone(),
            }),
            None => changes.only_before += 1,
        }
    }
    changes.only_after = new.len() - changes.changes.len().min(new.len());
    // The sort is stable: equal ones stay in the order of measurement.
    changes.changes.sort_by(|one, other| {
        let is_first = |change: &Change| change.is_beyond_spread();
        let loss = |change: &Change| if change.loss().is_nan() { 0.0 } else { change.loss() };
        is_first(other).cmp(&is_first(one)).then(loss(other).total_cmp(&loss(one)))
    });
    changes
}

/// Prints the differences of two reports.
///
/// # Errors
/// None is expected.
pub fn print(before: &Report, after: &Report) -> anyhow::Result<()> {
    print!("{}", compare(before, after).to_text());
    Ok(())
}

impl Changes {
    /// The differences as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for difference in &self.differences {
            let _ = writeln!(text, "NOTE      {difference}");
        }
        if !self.differences.is_empty() {
            text.push('\n');
        }
        if self.changes.is_empty() {
            text.push_str("The reports have no measurement in common.\n");
        } else {
            text.push_str(&text::render(&self.table()));
            let beyond = self.changes.iter().filter(|change| change.is_beyond_spread());
            let (worse, better): (Vec<_>, Vec<_>) = beyond.partition(|change| change.is_worse());
            let _ = write!(
                text,
                "\n{} measurements in both reports. Beyond the spread of their runs: {} worse, {} better.\n\
                 Each number is a median. The ratio is the second report's median divided by the first's.\n\
                 A difference is beyond the spread if each report has at least {RUNS_MIN} runs, and they do not \
                 overlap.\n",
                self.changes.len(),
                worse.len(),
                better.len()
            );
        }
        let only = [(self.only_before, "first"), (self.only_after, "second")];
        for (count, name) in only.into_iter().filter(|(count, _)| *count > 0) {
            let _ = writeln!(text, "Measurements of the {name} report only: {count}.");
        }
        text
    }

    /// The measurements that both have.
    pub fn table(&self) -> Table {
        let head = ["task", "subject", "first", "second", "ratio", "second is"].map(String::from).into();
        let row = |change: &Change| {
            let Change { experiment, before, after } = change;
            let place = match before.threads {
                Some(threads) => format!("{experiment}, {}", threads_in_words(threads)),
                None => experiment.clone(),
            };
            let median = |of: &Measurement| Cell::number(of.median(), quantity(of.median(), &of.unit));
            vec![
                Cell::text(&before.task).with_detail(place),
                Cell::text(&before.subject),
                median(before),
                median(after),
                Cell::number(change.ratio(), ratio(change.ratio())),
                change.result(),
            ]
        };
        Table { title: String::new(), head, rows: self.changes.iter().map(row).collect() }
    }
}

fn measurements(report: &Report) -> Vec<(&str, &Measurement)> {
    report
        .experiments
        .iter()
        .flat_map(|results| results.measurements.iter().map(|found| (results.experiment.as_str(), found)))
        .collect()
}

fn is_same((experiment, one): (&str, &Measurement), (other_experiment, other): (&str, &Measurement)) -> bool {
    experiment == other_experiment
        && one.task == other.task
        && one.unit == other.unit
        && one.threads == other.threads
        && one.subject == other.subject
}

fn differences(before: &Report, after: &Report) -> Vec<String> {
    let described = |report: &Report| {
        let machine = &report.machine;
        [
            ("machine", format!("{}, {} CPUs", machine.processor, machine.cores)),
            ("memory", format!("{} MiB", machine.memory_bytes >> 20)),
            ("kernel", machine.kernel.clone()),
            ("system", machine.system.clone()),
            ("commit", machine.commit.clone()),
            ("build", machine.profile.clone()),
            ("size", if report.quick { "quick run" } else { "full run" }.into()),
        ]
    };
    let mut differences: Vec<String> = described(before)
        .into_iter()
        .zip(described(after))
        .filter(|((_, first), (_, second))| first != second)
        .map(|((what, first), (_, second))| format!("the {what} differs: {first}; {second}"))
        .collect();
    for (name, report) in [("first", before), ("second", after)] {
        differences.extend(report.warnings().into_iter().map(|warning| format!("{name} report: {warning}")));
    }
    differences
}
