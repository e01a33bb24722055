//! Figures of kept runs in documents, between markers.
//!
//! | marker | figure |
//! |---|---|
//! | `<!-- figures: EXPERIMENT -->` | its tables |
//! | `<!-- figures: runs -->` | the kept runs: machine, commit, command |
//! | `<!-- figure: EXPERIMENT; TASK; SUBJECT -->` | a median, within a line |
//! | `<!-- figure: EXPERIMENT; TASK; SUBJECT; PEER -->` | the ratio of two medians |
//!
//! A marker after a backtick is text. Each figure ends at `<!-- end -->`. Runs are asked in an order: full ones before
//! quick ones, the latest first. A figure is that of the first run that has it, and so is each task of an experiment,
//! but full and quick runs are not mixed in its tables. With several numbers of threads, a figure is that of the
//! fewest.

use std::cmp::Reverse;

use anyhow::{Context, bail};

use crate::Report;
use crate::markdown;
use crate::number::rough;
use crate::record::{Measurement, Results};

const BEGIN: &str = "<!-- figure";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- end -->";

/// The kept runs.
#[derive(Debug, Default)]
pub struct Runs(Vec<(String, Report)>);

impl Runs {
    /// Adds a run: the path of its file, and the text.
    ///
    /// # Errors
    /// It is no report of this version.
    pub fn add(&mut self, path: &str, text: &str) -> anyhow::Result<()> {
        self.0.push((path.into(), Report::parse(path, text.as_bytes())?));
        Ok(())
    }

    /// The runs that have an experiment: full ones before quick ones, the latest first.
    fn with(&self, experiment: &str) -> Vec<(&str, &Report, &Results)> {
        let with = self.0.iter().filter_map(|(path, report)| {
            let results = report.experiments.iter().find(|results| results.experiment == experiment)?;
            Some((path.as_str(), report, results))
        });
        let mut runs: Vec<_> = with.collect();
        runs.sort_by_key(|(path, report, _)| {
            (report.quick, Reverse(report.machine.date.clone()), path.to_string())
        });
        runs
    }
}

/// The text of a document with its figures. A text without markers stays as it is.
///
/// # Errors
/// A marker is not closed, or names what no kept run has.
pub fn fill(text: &str, runs: &Runs) -> anyhow::Result<String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        // One that is quoted is text.
        if before.ends_with('`') {
            filled += &format!("{before}{BEGIN}");
            rest = after;
            continue;
        }
        let (name, after) = after.split_once(BEGIN_END).context("a marker of figures without an end")?;
        let (_, after) =
            after.split_once(END).with_context(|| format!("`{BEGIN}{name}{BEGIN_END}` has no `{END}`"))?;
        let figure = match name.split_once(": ") {
            Some(("s", experiment)) => format!("\n{}\n", block(experiment, runs)?.trim_end()),
            Some(("", query)) => one(query, runs)?,
            _ => bail!("`{BEGIN}{name}{BEGIN_END}` is neither `figure: ...` nor `figures: ...`"),
        };
        filled += &format!("{before}{BEGIN}{name}{BEGIN_END}{figure}{END}");
        rest = after;
    }
    Ok(filled + rest)
}

fn block(experiment: &str, runs: &Runs) -> anyhow::Result<String> {
    if experiment == "runs" {
        return Ok(runs.0.iter().map(|(path, report)| markdown::machine(path, report)).collect());
    }
    let with = runs.with(experiment);
    let (_, best, _) =
        with.first().with_context(|| format!("no kept run has the experiment `{experiment}`"))?;
    let mut parts: Vec<Results> = Vec::new();
    let mut text = String::new();
    // A part may have been measured in a run of its own. Quick runs have other sizes, and so other tasks.
    for (_, report, results) in with.iter().filter(|(_, report, _)| report.quick == best.quick) {
        let mut part = (*results).clone();
        part.measurements
            .retain(|new| parts.iter().all(|part| part.measurements.iter().all(|old| old.task != new.task)));
        if !parts.is_empty() {
            part.published.clear();
            part.sharing = None;
        }
        if !part.measurements.is_empty() || part.sharing.is_some() {
            text.push_str(&markdown::experiment(report, &part));
            text.push('\n');
        }
        parts.push(part);
    }
    Ok(text)
}

fn one(query: &str, runs: &Runs) -> anyhow::Result<String> {
    let words: Vec<&str> = query.split("; ").collect();
    let (experiment, task, subject, peer) = match words[..] {
        [experiment, task, subject] => (experiment, task, subject, None),
        [experiment, task, subject, peer] => (experiment, task, subject, Some(peer)),
        _ => bail!("`{query}` does not name an experiment, a task and a subject"),
    };
    let figure = runs.with(experiment).into_iter().find_map(|(_, _, results)| {
        let (value, unit) = median(results, task, subject)?;
        match peer {
            None => Some(rough(value, unit)),
            Some(peer) => Some(rough(value / median(results, task, peer)?.0, "")),
        }
    });
    figure.with_context(|| format!("no kept run has `{query}`"))
}

/// The median of a subject, and its unit.
fn median<'r>(results: &'r Results, task: &str, subject: &str) -> Option<(f64, &'r str)> {
    let is_it = |found: &&Measurement| found.task == task && found.subject == subject;
    let found = results.measurements.iter().filter(is_it).min_by_key(|found| found.threads)?;
    Some((found.median(), found.unit.as_str()))
}
