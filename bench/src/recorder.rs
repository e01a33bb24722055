//! Collects what an experiment measures, and reports it while it runs.

use std::time::Instant;

use anyhow::bail;
use report::record::{Comparison, Measurement, Results, Target};

use crate::registry::Part;
use crate::scale::{Scale, Size};

/// Receives what happens in a run, to show it to the user.
pub trait Observer {
    /// A part of an experiment begins.
    fn begins(&self, experiment: &str, part: &Part, size: Size);
    /// It has ended.
    fn part_ended(&self);
    /// A task of it has ended; the last measurements are of this task.
    fn ended(&self, results: &Results, task: &str);
    /// Whether to stop before the next run.
    fn is_interrupted(&self) -> bool;
}

/// The results of the current experiment.
pub struct Recorder<'o> {
    /// What was recorded.
    pub results: Results,
    observer: &'o dyn Observer,
    begun: Instant,
}

/// One measurement of two subjects, or of two settings of one.
#[derive(Debug)]
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

/// Units of which less is better.
const OF_COST: [&str; 10] =
    ["s", "ms", "us", "ns", "instructions", "writes", "MiB", "reads", "bytes", "syscalls"];

impl<'o> Recorder<'o> {
    /// An experiment without results.
    pub fn begin(results: Results, observer: &'o dyn Observer) -> Self {
        Self { results, observer, begun: Instant::now() }
    }

    /// Ends it.
    pub fn end(mut self) -> Results {
        self.results.seconds = self.begun.elapsed().as_secs_f64();
        self.results
    }

    /// Adds a measurement.
    pub fn measured(&mut self, measurement: Measurement) {
        self.results.measurements.push(measurement);
    }

    /// Adds a comparison of two measurements.
    pub fn compared(&mut self, comparison: Comparison) {
        self.results.comparisons.push(comparison);
    }

    /// Adds a reason why something was not measured.
    pub fn note(&mut self, text: String) {
        self.results.notes.push(text);
    }

    /// Whether a peer can be measured. If not, notes why, unless the user wants none.
    pub fn has_peer(&mut self, what: &str, alone: bool, ready: Result<(), String>) -> bool {
        if let (false, Err(why)) = (alone, &ready) {
            self.note(format!("{what}: not measured: {why}"));
        }
        !alone && ready.is_ok()
    }

    /// Runs a part.
    ///
    /// # Errors
    /// Xebec failed, or the user wants the run to end.
    pub fn run(&mut self, part: &Part, scale: &Scale) -> anyhow::Result<()> {
        self.go_on()?;
        self.observer.begins(&self.results.experiment, part, scale.size);
        let outcome = part.run(scale, self);
        self.observer.part_ended();
        outcome
    }

    /// Reports a task, after its measurements were added.
    pub fn ended(&self, task: &str) {
        self.observer.ended(&self.results, task);
    }

    /// Fails if the user wants the run to end.
    ///
    /// # Errors
    /// The user does.
    pub fn go_on(&self) -> anyhow::Result<()> {
        if self.observer.is_interrupted() {
            bail!(Interrupted);
        }
        Ok(())
    }

    /// Adds a measurement of two subjects, and reports it.
    pub fn add(&mut self, row: Row) {
        let less_is_better = OF_COST.contains(&row.unit) || row.unit.starts_with("ms ");
        let sides = [(row.ours_is, row.ours), (row.other_is, row.other)];
        let peer = !sides[1].1.is_empty();
        for (subject, runs) in sides.into_iter().filter(|(_, runs)| !runs.is_empty()) {
            let measurement = Measurement {
                task: row.task.clone(),
                subject: subject.into(),
                unit: row.unit.into(),
                less_is_better,
                threads: None,
                runs,
                latency: None,
            };
            // One subject may be measured beside several peers.
            match self.results.measurements.iter_mut().find(|known| {
                known.task == measurement.task
                    && known.subject == measurement.subject
                    && known.unit == measurement.unit
            }) {
                // Unless these runs are there, as they were compared with another peer.
                Some(known) if known.runs.ends_with(&measurement.runs) => {}
                Some(known) => known.runs.extend(measurement.runs),
                None => self.measured(measurement),
            }
        }
        self.compared(Comparison {
            task: row.task.clone(),
            unit: row.unit.into(),
            threads: None,
            subject: row.ours_is.into(),
            peer: peer.then(|| row.other_is.into()),
            target: row.target,
        });
        self.ended(&row.task);
    }
}

/// The user wants the run to end.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
