//! Figures of kept runs in documents, between markers.
//!
//! | marker | figure |
//! |---|---|
//! | `<!-- figures: EXPERIMENT -->` | its tables |
//! | `<!-- figures: runs -->` | the kept runs: machine, commit, command |
//! | `<!-- figure: EXPERIMENT; TASK; SUBJECT -->` | a median, within a line |
//! | `<!-- figure: EXPERIMENT; TASK; SUBJECT; PEER -->` | the ratio of two medians |
//!
//! A marker in a code span is text. Each figure ends at `<!-- end -->`. Runs are ordered: full ones before quick ones,
//! optimized builds before others, the latest first. The first run that has an experiment decides whether its tables
//! are of full or quick runs, and of which kind of build; of these runs, each task is taken from the first one that has
//! it. A single figure is taken from the first full run of an optimized build that has it, with the fewest threads.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};

use crate::Report;
use crate::machine::RELEASE;
use crate::markdown;
use crate::number::rough;
use crate::record::{Comparison, Measurement, Results};

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

    /// The runs that have results of an experiment: full ones before quick ones, optimized builds before others, the
    /// latest first.
    fn with(&self, experiment: &str) -> Vec<(&str, &Report, &Results)> {
        let with = self.0.iter().filter_map(|(path, report)| {
            let results = report.experiments.iter().find(|results| results.experiment == experiment)?;
            // An interrupted run may have notes only.
            let has_results = !results.measurements.is_empty() || results.sharing.is_some();
            has_results.then_some((path.as_str(), report, results))
        });
        let mut runs: Vec<_> = with.collect();
        runs.sort_by_key(|(path, report, _)| {
            (
                report.quick,
                report.machine.profile != RELEASE,
                Reverse(report.machine.date.clone()),
                path.to_string(),
            )
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
        let is_text = is_quoted(text.get(..text.len() - BEGIN.len() - after.len()).unwrap_or_default());
        filled += &format!("{before}{BEGIN}");
        rest = after;
        if is_text {
            continue;
        }
        let (name, after) = after.split_once(BEGIN_END).context("a marker of figures without an end")?;
        let marker = format!("`{BEGIN}{name}{BEGIN_END}`");
        let (old, after) = after.split_once(END).with_context(|| format!("{marker} has no `{END}`"))?;
        // Otherwise the text up to the end of the next marker would be replaced.
        ensure!(!old.contains(BEGIN), "{marker} has no `{END}` before the next marker");
        let figure = match name.split_once(": ") {
            Some(("s", experiment)) => format!("\n{}\n", block(experiment, runs)?.trim_end()),
            Some(("", query)) => one(query, runs)?,
            _ => bail!("{marker} is neither `figure: ...` nor `figures: ...`"),
        };
        filled += &format!("{name}{BEGIN_END}{figure}{END}");
        rest = after;
    }
    Ok(filled + rest)
}

/// Whether a text ends within a code span or a fence. A code span is within a paragraph.
fn is_quoted(before: &str) -> bool {
    let fences = before.lines().filter(|line| line.trim_start().starts_with("```")).count();
    let paragraph = before.rsplit("\n\n").next().unwrap_or_default();
    fences % 2 == 1 || paragraph.matches('`').count() % 2 == 1
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
    for (_, report, results) in with.iter().filter(|(_, report, _)| is_alike(report, best)) {
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
    ensure!(!text.trim().is_empty(), "the kept runs have no table for the experiment `{experiment}`");
    Ok(text)
}

/// Whether the tables of an experiment may have tasks of both.
fn is_alike(report: &Report, best: &Report) -> bool {
    report.quick == best.quick && report.machine.profile == best.machine.profile
}

fn one(query: &str, runs: &Runs) -> anyhow::Result<String> {
    let words: Vec<&str> = query.split("; ").collect();
    let (experiment, task, subject, peer) = match words[..] {
        [experiment, task, subject] => (experiment, task, subject, None),
        [experiment, task, subject, peer] => (experiment, task, subject, Some(peer)),
        _ => bail!("`{query}` does not name an experiment, a task and a subject"),
    };
    // A table says whether its run was quick, and the build not optimized; a sentence does not.
    let trusted = runs.with(experiment).into_iter().filter(|(_, report, _)| is_trusted(report));
    for (_, _, results) in trusted {
        let figure = match peer {
            None => of_subject(results, task, subject),
            Some(peer) => of_pair(results, task, subject, peer),
        };
        if let Some(figure) = figure.with_context(|| format!("`{query}`"))? {
            return Ok(figure);
        }
    }
    bail!("no kept full run of an optimized build has `{query}`")
}

/// Whether a figure may stand in a sentence.
fn is_trusted(report: &Report) -> bool {
    !report.quick && report.machine.profile == RELEASE
}

/// The median of a subject with its unit, by the fewest threads.
fn of_subject(results: &Results, task: &str, subject: &str) -> anyhow::Result<Option<String>> {
    let is_it = |found: &&Measurement| found.task == task && found.subject == subject;
    let all: Vec<&Measurement> = results.measurements.iter().filter(is_it).collect();
    one_unit(all.iter().map(|found| found.unit.as_str()))?;
    let found = all.into_iter().min_by_key(|found| found.threads);
    Ok(found.map(|found| rough(found.median(), &found.unit)))
}

/// The ratio of two subjects, by the fewest threads. They were compared with each other.
fn of_pair(results: &Results, task: &str, subject: &str, peer: &str) -> anyhow::Result<Option<String>> {
    let is_it = |made: &&Comparison| {
        made.task == task && made.subject == subject && made.peer.as_deref() == Some(peer)
    };
    let all: Vec<&Comparison> = results.comparisons.iter().filter(is_it).collect();
    one_unit(all.iter().map(|made| made.unit.as_str()))?;
    let made = all.into_iter().min_by_key(|made| made.threads);
    let ratio = made.and_then(|made| results.outcome(made)?.ratio);
    Ok(ratio.map(|ratio| rough(ratio, "")))
}

fn one_unit<'u>(units: impl Iterator<Item = &'u str>) -> anyhow::Result<()> {
    let units: BTreeSet<&str> = units.collect();
    ensure!(units.len() < 2, "the task has several units: {units:?}");
    Ok(())
}
