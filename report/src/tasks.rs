//! Measurements grouped by task, for tables and charts.

use crate::record::{Comparison, Measurement, Outcome, Results};

/// All measurements of one task in one unit.
pub struct Task<'r> {
    /// What was done, in words.
    pub name: &'r str,
    /// Unit of the values.
    pub unit: &'r str,
    /// Whether less is better.
    pub less_is_better: bool,
    /// In the order of measurement.
    pub measurements: Vec<&'r Measurement>,
    /// The claims about them.
    pub comparisons: Vec<&'r Comparison>,
}

/// The tasks of an experiment, in the order in which they were first measured.
pub fn tasks(results: &Results) -> Vec<Task<'_>> {
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for measurement in &results.measurements {
        let is_it = |task: &&mut Task<'_>| task.name == measurement.task && task.unit == measurement.unit;
        if let Some(task) = tasks.iter_mut().find(is_it) {
            task.measurements.push(measurement);
            continue;
        }
        tasks.push(Task {
            name: &measurement.task,
            unit: &measurement.unit,
            less_is_better: measurement.less_is_better,
            measurements: vec![measurement],
            comparisons: Vec::new(),
        });
    }
    for comparison in &results.comparisons {
        let is_it = |task: &&mut Task<'_>| task.name == comparison.task && task.unit == comparison.unit;
        if let Some(task) = tasks.iter_mut().find(is_it) {
            task.comparisons.push(comparison);
        }
    }
    tasks
}

impl<'r> Task<'r> {
    /// Names of the subjects, in order.
    pub fn subjects(&self) -> Vec<&'r str> {
        unique(self.measurements.iter().map(|measurement| measurement.subject.as_str()))
    }

    /// Numbers of threads, ascending.
    pub fn threads(&self) -> Vec<Option<u32>> {
        let mut threads = unique(self.measurements.iter().map(|measurement| measurement.threads));
        threads.sort_unstable();
        threads
    }

    /// Whether it was measured with several numbers of threads.
    pub fn is_scaling(&self) -> bool {
        self.threads().len() > 1
    }

    /// The measurement of a subject with a number of threads.
    pub fn find(&self, threads: Option<u32>, subject: &str) -> Option<&'r Measurement> {
        let is_it = |found: &&&Measurement| found.threads == threads && found.subject == subject;
        self.measurements.iter().find(is_it).copied()
    }

    /// Lowest and highest number of runs of the measurements.
    pub fn runs(&self) -> (usize, usize) {
        let counts = || self.measurements.iter().map(|measurement| measurement.runs.len());
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// The number of runs in words.
    pub fn runs_in_words(&self) -> String {
        match self.runs() {
            (1, 1) => "1 run".into(),
            (low, high) if low == high => format!("{high} runs"),
            (low, high) => format!("{low} to {high} runs"),
        }
    }

    /// Whether single calls were measured.
    pub fn has_latencies(&self) -> bool {
        self.measurements.iter().any(|measurement| measurement.latency.is_some())
    }
}

/// Whether the subject is Xebec or a variant of it.
pub fn is_xebec(subject: &str) -> bool {
    subject.get(..5).is_some_and(|name| name.eq_ignore_ascii_case("xebec"))
}

/// Whether the runs of both overlap, so that the difference may be chance.
pub fn is_within_spread(one: &Measurement, other: &Measurement) -> bool {
    let ((one_low, one_high), (other_low, other_high)) = (one.spread(), other.spread());
    one_low <= other_high && other_low <= one_high
}

/// A comparison that was made, with its measurements, of which both have the runs that were made in turns.
pub struct Judged<'r> {
    /// The claim.
    pub comparison: &'r Comparison,
    /// The subject's measurement.
    pub ours: Measurement,
    /// The peer's measurement, if the claim names one.
    pub peer: Option<Measurement>,
    /// Medians, ratio and target.
    pub outcome: Outcome,
}

impl<'r> Judged<'r> {
    /// Judges a claim; none if something was not measured.
    pub fn new(results: &'r Results, comparison: &'r Comparison) -> Option<Self> {
        let outcome = results.outcome(comparison)?;
        let (ours, peer) = results.compared(comparison)?;
        Some(Self { comparison, ours, peer, outcome })
    }

    /// Whether the target was missed.
    pub fn is_missed(&self) -> bool {
        self.outcome.reached == Some(false)
    }

    /// Whether the difference to the peer may be chance.
    pub fn is_within_spread(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| is_within_spread(&self.ours, peer))
    }

    /// The peer's median divided by the subject's if more is better, or the opposite: above 1, the subject is worse.
    pub fn loss(&self) -> f64 {
        let ratio = self.outcome.ratio.unwrap_or(1.0);
        if self.ours.less_is_better { ratio } else { 1.0 / ratio }
    }
}

/// Numbers of comparisons by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The subject is better than its peer.
    pub better: usize,
    /// It is worse.
    pub worse: usize,
    /// Of those: the runs of both overlap.
    pub worse_within_spread: usize,
    /// The target was reached.
    pub reached: usize,
    /// It was missed.
    pub missed: usize,
    /// One of both was not measured.
    pub not_measured: usize,
}

impl Tally {
    /// Counts claims.
    pub fn of<'r>(results: &'r Results, comparisons: impl IntoIterator<Item = &'r Comparison>) -> Self {
        let mut tally = Self::default();
        for comparison in comparisons {
            let Some(judged) = Judged::new(results, comparison) else {
                tally.not_measured += 1;
                continue;
            };
            match judged.outcome.reached {
                Some(true) => tally.reached += 1,
                Some(false) => tally.missed += 1,
                None => {}
            }
            if judged.outcome.ratio.is_some() {
                tally.better += usize::from(judged.loss() < 1.0);
                tally.worse += usize::from(judged.outcome.lost);
                tally.worse_within_spread += usize::from(judged.outcome.lost && judged.is_within_spread());
            }
        }
        tally
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            better: self.better + other.better,
            worse: self.worse + other.worse,
            worse_within_spread: self.worse_within_spread + other.worse_within_spread,
            reached: self.reached + other.reached,
            missed: self.missed + other.missed,
            not_measured: self.not_measured + other.not_measured,
        }
    }
}

fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique
}
