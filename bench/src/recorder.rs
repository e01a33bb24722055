//! Collects what an experiment measures, and reports it while it runs.

use std::time::Instant;

use anyhow::bail;
use report::record::{Comparison, Measurement, Paired, Results, Target};

use crate::registry::Part;
use crate::scale::Scale;

/// Receives what happens in a run, to show it to the user.
pub trait Observer {
    /// A part of an experiment begins.
    fn begins(&self, results: &Results, part: &Part, scale: &Scale);
    /// It has ended.
    fn part_ended(&self);
    /// A task of it has ended; the last measurements are of this task.
    fn ended(&self, results: &Results, task: &str);
    /// All parts of an experiment that are to run have ended.
    fn experiment_ended(&self, results: &Results);
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
    /// Values of the second column, measured in turns with the first's where the task allows that; empty if there is
    /// only one column.
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
        self.observer.begins(&self.results, part, scale);
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
        let paired = Paired { subject: sides[0].1.clone(), peer: sides[1].1.clone() };
        let has_peer = !paired.peer.is_empty();
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
            // A subject that is measured beside several peers has several rows, and one measurement with all its runs.
            match self.results.measurements.iter_mut().find(|known| {
                known.task == measurement.task
                    && known.subject == measurement.subject
                    && known.unit == measurement.unit
            }) {
                // One series of runs may be compared with several peers. It is there since the first of these rows.
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
            peer: has_peer.then(|| row.other_is.into()),
            target: row.target,
            paired: has_peer.then_some(paired),
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Observer for Silent {
        fn begins(&self, _: &Results, _: &Part, _: &Scale) {}
        fn part_ended(&self) {}
        fn ended(&self, _: &Results, _: &str) {}
        fn experiment_ended(&self, _: &Results) {}
        fn is_interrupted(&self) -> bool {
            true
        }
    }

    /// Runs beside one peer were pooled with those beside another, so that a slow minute of the machine beside the
    /// first one made the ratio to the second one worse.
    #[test]
    fn a_ratio_is_that_of_the_runs_beside_the_peer() {
        let mut recorder = Recorder::begin(Results::default(), &Silent);
        for (other_is, ours, other) in [("one", 8.0, 16.0), ("another", 2.0, 4.0)] {
            let (ours, other) = (vec![ours], vec![other]);
            let task = "an image".to_string();
            recorder.add(Row { task, unit: "s", ours_is: "xebec", other_is, ours, other, target: None });
        }
        let results = recorder.end();
        let ratios: Vec<_> = results.comparisons.iter().map(|made| results.outcome(made)?.ratio).collect();
        assert_eq!(ratios, [Some(0.5), Some(0.5)]);
        assert_eq!(results.find("an image", "s", None, "xebec").map(Measurement::median), Some(5.0));
    }

    #[test]
    fn workloads_in_turns_end_when_the_user_wants() {
        let recorder = Recorder::begin(Results::default(), &Silent);
        let never = || -> anyhow::Result<()> { bail!("it ran") };
        let ended = crate::measure::alternate(&recorder, 5, never, never).expect_err("it is interrupted");
        assert!(ended.is::<Interrupted>(), "{ended}");
    }
}
