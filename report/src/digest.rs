//! The results of an experiment in short: a line for each task and peer.

use crate::number::{NONE, quantity, ratio};
use crate::record::{Comparison, Measurement, Results};
use crate::tables::{Cell, Table, target_in_words, threads_in_words};
use crate::tasks::{Judged, Task, tasks};

/// The tables of an experiment: tasks by number of threads, and the other tasks.
pub fn digest(results: &Results) -> Vec<Table> {
    let (by_threads, others): (Vec<_>, Vec<_>) =
        tasks(results).into_iter().partition(|task| task.is_scaling());
    let tables = [scaling(results, &by_threads), single(results, &others)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// Ratios by number of threads, with the values of both.
fn scaling(results: &Results, tasks: &[Task<'_>]) -> Table {
    let mut threads: Vec<Option<u32>> = tasks.iter().flat_map(Task::threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut head = vec!["task".to_string(), "beside".into()];
    head.extend(threads.iter().map(|threads| threads.map_or_else(|| NONE.into(), threads_in_words)));
    head.push("target".into());
    let mut rows = Vec::new();
    for task in tasks {
        let mut name = task.name;
        for comparison in first_of_each_pair(&task.comparisons) {
            let at = |threads: &Option<u32>| {
                let is_it =
                    |other: &&&Comparison| other.threads == *threads && is_same_pair(other, comparison);
                task.comparisons.iter().find(is_it).and_then(|found| Judged::new(results, found))
            };
            let judged: Vec<_> = threads.iter().map(at).collect();
            let mut row = vec![Cell::text(std::mem::take(&mut name)), Cell::text(beside(comparison))];
            row.extend(judged.iter().map(|judged| judged.as_ref().map_or_else(|| Cell::text(NONE), brief)));
            row.push(target(comparison, judged.iter().flatten()));
            rows.push(row);
        }
    }
    Table { title: String::new(), head, rows }
}

/// Values, ratio and target.
fn single(results: &Results, tasks: &[Task<'_>]) -> Table {
    let head = ["task", "Xebec", "peer", "ratio", "target"].map(String::from).into();
    let mut rows = Vec::new();
    for task in tasks {
        let mut name = task.name;
        for judged in task.comparisons.iter().filter_map(|comparison| Judged::new(results, comparison)) {
            let ratio = judged.outcome.ratio.map_or_else(|| NONE.into(), ratio);
            rows.push(vec![
                Cell::text(std::mem::take(&mut name)),
                with_spread(&judged.ours, judged.ours.subject != "Xebec, as a library"),
                judged.peer.as_ref().map_or_else(|| Cell::text(NONE), |peer| with_spread(peer, true)),
                Cell::text(ratio),
                target(judged.comparison, [&judged]),
            ]);
        }
    }
    Table { title: String::new(), head, rows }
}

fn is_same_pair(one: &Comparison, other: &Comparison) -> bool {
    one.subject == other.subject && one.peer == other.peer
}

fn first_of_each_pair<'r>(comparisons: &[&'r Comparison]) -> Vec<&'r Comparison> {
    let mut pairs: Vec<&Comparison> = Vec::new();
    for comparison in comparisons {
        if !pairs.iter().any(|pair| is_same_pair(pair, comparison)) {
            pairs.push(comparison);
        }
    }
    pairs
}

fn beside(comparison: &Comparison) -> String {
    match (&comparison.peer, comparison.subject.as_str()) {
        (None, subject) => format!("{subject} alone"),
        (Some(peer), "Xebec, as a library") => peer.clone(),
        (Some(peer), subject) => format!("{peer}; {subject}"),
    }
}

/// The ratio with both values, or the value.
fn brief(judged: &Judged<'_>) -> Cell {
    let unit = &judged.comparison.unit;
    let ours = quantity(judged.outcome.value, unit);
    match (judged.outcome.ratio, judged.outcome.peer) {
        (Some(value), Some(peer)) => {
            Cell::text(ratio(value)).with_detail(format!("{ours}; {}", quantity(peer, unit)))
        }
        _ => Cell::text(ours),
    }
}

/// The median with the lowest and the highest run, and the subject if the column does not say it.
fn with_spread(measurement: &Measurement, is_named: bool) -> Cell {
    let mut text = quantity(measurement.median(), &measurement.unit);
    if is_named {
        text = format!("{text}, {}", measurement.subject);
    }
    let cell = Cell::text(text);
    if measurement.runs.len() < 2 {
        return cell;
    }
    let (low, high) = measurement.spread();
    cell.with_detail(format!("{} to {}", quantity(low, &measurement.unit), quantity(high, &measurement.unit)))
}

/// What must hold, and whether it does with each number of threads.
fn target<'j>(comparison: &Comparison, judged: impl IntoIterator<Item = &'j Judged<'j>>) -> Cell {
    let Some(words) = target_in_words(comparison) else { return Cell::text(NONE) };
    let missed: Vec<String> = judged
        .into_iter()
        .filter(|judged| judged.is_missed())
        .map(|judged| judged.comparison.threads.map_or_else(String::new, |threads| format!(" by {threads}")))
        .collect();
    let outcome = if missed.is_empty() { "reached".into() } else { format!("missed{}", missed.join(",")) };
    Cell::text(format!("{words}: {outcome}"))
}
